"""Is it better than guessing: its score with an interval, beside the best answer that does not look at the input."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from sostenuto.audits.base import UNDECIDED, AuditResult, Check, Judged
from sostenuto.audits.batches import GUESSES, Measure, eval_batch, score_words
from sostenuto.audits.context import AuditContext
from sostenuto.audits.intervals import lost_interval
from sostenuto.audits.model import audited, place_of
from sostenuto.checks import check_count, require
from sostenuto.report.numbers import binomial_interval, counted, percent
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

RESAMPLES = 400
SURE = 0.001
"""A model that guesses is praised once in so many audits: all other verdicts rest on this one."""


@dataclass(frozen=True, kw_only=True)
class Skill(AuditResult):
    """The score and its 95 % interval, that of a guess, and what is gained over it with its interval.

    The score is the accuracy, or the root mean square error in ``unit``, as ``measure`` says; gains are points of
    accuracy, or shares of the guess's error, in 998 of 1000 repetitions. ``distinct`` counts the different sequences,
    and ``marks`` are each sequence's share of right answers, or its mean squared error. ``per_class`` holds for each
    class its number of answers, the share of them that is right, and Wilson's interval. ``baselines`` are scores of
    other methods on the same sequences.
    """

    measure: Measure
    score: float
    low: float
    high: float
    guess: float
    gained_low: float
    gained_high: float
    count: int
    sequences: int
    distinct: int = 0
    unit: str = ""
    per_class: tuple[Numbers, ...] = ()
    baselines: dict[str, float] = field(default_factory=dict)
    marks: Numbers = ()

    @property
    def is_constant(self) -> bool:
        """Say whether it is right in every sequence of one class and in none of the others, as one answer to all is."""
        shares = [share for count, share, *_ in self.per_class if count]
        return bool(shares) and sorted(shares) == [*[0.0] * (len(shares) - 1), 1.0]

    @property
    def best_baseline(self) -> str:
        """Name the baseline with the best score; empty without any."""
        choose = max if self.measure == "accuracy" else min
        return choose(self.baselines, key=lambda name: self.baselines[name], default="")

    def summary(self) -> str:
        """Say the score with its interval, and the score of a guess."""
        score, low, high, guess = (
            score_words(self.measure, value, self.unit) for value in (self.score, self.low, self.high, self.guess)
        )
        said = f"The {self.measure} is {score} ({low} to {high} in 19 of 20 repetitions) over "
        said += f"{counted(self.sequences, 'sequence')}; {GUESSES[self.measure]} gives {guess}"
        if self.best_baseline:
            reached = score_words(self.measure, self.baselines[self.best_baseline], self.unit)
            said += f", the best baseline ({self.best_baseline}) {reached}"
        return f"{said}."

    def plot(self, ax: Any) -> None:
        """Draw the share of right answers class by class, or the error, with intervals, and that of a guess."""
        if self.per_class:
            places = np.arange(len(self.per_class))
            shares = np.array([row[1:] for row in self.per_class])
            bars = 100 * np.abs(shares[:, 1:] - shares[:, :1]).T
            ax.errorbar(places, 100 * shares[:, 0], yerr=bars, marker="o", linestyle="", capsize=3, label="each class")
            ax.axhline(100 * self.score, linestyle="-", color="gray", label="all")
            ax.axhline(100 * self.guess, linestyle="--", color="gray", label="most frequent class")
            ax.set_ylim(0, 102)
            ax.set_xlabel("class")
            ax.set_ylabel("right, %")
            if len(places) <= 12:
                ax.set_xticks(places)
        else:
            names = {"model": self.score, "guess": self.guess, **self.baselines}
            factor = 100 if self.measure == "accuracy" else 1
            exact = [0.0] * (len(names) - 1)
            bars = factor * np.array([[self.score - self.low, *exact], [self.high - self.score, *exact]])
            heights = factor * np.array(list(names.values()))
            ax.bar(np.arange(len(names)), heights, 0.5, yerr=bars, capsize=4, label="95 % interval")
            ax.set_xticks(np.arange(len(names)), list(names))
            ax.set_xlabel("answers")
            error = f"root mean square error, {self.unit}" if self.unit else "root mean square error"
            ax.set_ylabel("right, %" if self.measure == "accuracy" else error)
        ax.legend()


def skill(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    baselines: Mapping[str, float] | None = None,
    seed: int = 0,
    lengths: Any = None,
    target_scale: float | Sequence[float] = 1.0,
    target_unit: str = "",
    batch_size: int = 256,
) -> Skill:
    """Measure a model's accuracy, or its error, with an interval, and what it gains over an answer that does not look.

    The guess is the best constant answer in hindsight: the most frequent class of ``y``, or its mean. The interval of
    an accuracy is Wilson's, that of the gain Bonett and Price's for paired shares, at 99.8 %; errors are
    resampled by sequence.

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``.
        X: sequences, as for `noise_accuracy`.
        y: class indices or numbers, as for `noise_accuracy`.
        baselines: scores of other methods on the same sequences, by name.
        seed: of the resampling.
        lengths: true length of each row of a padded array ``X``.
        target_scale: what one unit of numbers ``y`` is worth in ``target_unit``, a number or one an output.
        target_unit: its name.
        batch_size: sequences asked about at once.

    >>> import torch
    >>> class Last(nn.Module):
    ...     def forward(self, x):
    ...         return torch.cat([-x[:, -1], x[:, -1]], dim=-1)
    >>> X = np.linspace(-1, 1, 100)[:, None, None].repeat(5, axis=1)
    >>> found = skill(Last(), X, (X[:, 0, 0] > 0).astype(int))
    >>> found.score, found.guess, found.gained_low > 0.3
    (1.0, 0.5, True)
    """
    check_count("seed", seed, least=0)
    check_count("batch_size", batch_size)
    data = eval_batch(model, X, y, lengths, target_scale)
    with audited(model, seed):
        marks = data.all_marks(model, batch_size)
    lost = int(marks[:, 1].sum())
    require(
        data.measure == "accuracy" or lost == 0,
        "expected finite answers from the model",
        f"got {lost} of {data.count} that are not",
    )
    score, sequences = data.score(*marks.sum(0)), len(data.values)
    low, high = lost_interval(data, data.guess_marks(), marks[:, 0], seed, SURE)
    per_class: list[Numbers] = []
    if data.measure == "accuracy":
        around = binomial_interval(score, sequences)
        if not data.has_step_targets:
            per_class = [_of_class(marks[own, 0]) for own in _classes(data.targets.numpy())]
    else:
        generator = np.random.default_rng(seed)
        rows = generator.integers(0, sequences, (RESAMPLES, sequences))
        errors = np.sqrt(marks[rows, 0].sum(1) / data.answers_of[rows].sum(1))
        around = (float(np.quantile(errors, 0.025)), float(np.quantile(errors, 0.975)))
    device, dtype = place_of(model)
    return Skill(
        model=type(model).__name__,
        method=f"Every sequence was answered once; intervals count sequences; evaluation mode, in {str(dtype)[6:]}.",
        seed=seed,
        settings={"batch_size": batch_size},
        checksum=data.checksum(),
        environment=environment(str(device)),
        measure=data.measure,
        score=score,
        low=around[0],
        high=around[1],
        guess=data.guess,
        gained_low=-high,
        gained_high=-low,
        count=data.count,
        sequences=sequences,
        distinct=int(data.groups.max()) + 1,
        unit=target_unit,
        per_class=tuple(per_class),
        baselines=dict(baselines or {}),
        marks=tuple((marks[:, 0] / data.answers_of).tolist()),
    )


def _classes(targets: np.ndarray) -> list[np.ndarray]:
    return [targets == label for label in range(int(targets.max()) + 1)]


def _of_class(right: np.ndarray) -> Numbers:
    """Give the answers of one class: how many, the share that is right, and its interval."""
    count = len(right)
    share = float(right.mean()) if count else 0.0
    return (float(count), share, *(binomial_interval(share, count) if count else (0.0, 1.0)))


def _run(context: AuditContext) -> Skill:
    data = context.affordable(forward=2, data=context.test)
    return skill(
        context.model,
        data.values,
        data.targets,
        baselines=context.baselines,
        lengths=data.lengths,
        seed=context.seed,
        **context.unit,
    )


def _judge(result: Skill, limits: Mapping[str, float]) -> Judged:
    """Ask for a gain over a guess that is beyond doubt, and for no baseline that does better.

    Where none is shown, and at most a share ``hardly`` of what could be gained is left to hope for, that is told too.
    """
    gain = f"{percent(max(result.gained_low, -1.0))} to {percent(result.gained_high)}"
    basis = f"{result.summary()} Gained over the guess, in 998 of 1000 repetitions: {gain}; at least "
    basis += f"{limits['least']:.0f} different sequences are asked for."
    if result.distinct < limits["least"]:
        return Judged("unknown", UNDECIDED, f"{basis} There are too few, {result.distinct}, to tell.")
    if result.is_constant:
        told = "It is right in every sequence of one class and in none of the others, as one answer to all is."
        return Judged("bad", "No better than guessing", f"{told} {basis}")
    if result.gained_high <= 0:
        return Judged("bad", "No better than guessing", basis)
    possible = 1 - result.guess if result.measure == "accuracy" else 1.0
    if result.gained_low <= 0 and result.gained_high <= limits["hardly"] * possible:
        told = f"It gains at most {percent(result.gained_high)}, where {percent(possible)} could be gained."
        return Judged("bad", "Hardly better than guessing", f"{told} {basis}")
    if result.gained_low <= limits["gain"]:
        return Judged("unknown", UNDECIDED, basis)
    best = result.baselines.get(result.best_baseline)
    if best is not None:
        worse = result.high < best if result.measure == "accuracy" else result.low > best
        if worse:
            return Judged("caution", "Below a baseline", basis)
    return Judged("good", "Better than guessing", basis)


CHECK = Check(
    name="skill",
    title="Is it better than guessing?",
    caption="How often it is right, and how often an answer would be that does not look at the input.",
    order=0,
    result=Skill,
    needs=("y",),
    run=_run,
    judge=_judge,
    thresholds={"least": 30.0, "gain": 0.0, "hardly": 0.1},
    number=lambda result: result.score,
)

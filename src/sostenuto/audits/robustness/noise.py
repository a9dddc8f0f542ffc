"""The score under noise: how much of it is left when the input is measured badly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from sostenuto.audits.base import Check
from sostenuto.audits.batches import Measure, eval_batch
from sostenuto.audits.context import AuditContext
from sostenuto.audits.intervals import lost_interval
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.robustness.corruptions import CORRUPTIONS, checked_levels, damaged_batches
from sostenuto.audits.robustness.score_curve import ScoreCurve, judge_loss
from sostenuto.checks import check_choice, check_count, require
from sostenuto.report.numbers import percent, with_unit
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

_STEPS_AT_ONCE = 2**16
"""Steps, over all sequences, that an audit asks about at a time."""


@dataclass(frozen=True, kw_only=True)
class NoiseScores(ScoreCurve):
    """The score at each noise level: its mean and standard deviation over the draws of the noise.

    An error is over answers that are numbers; ``undefined`` is the share of those that are not, which count as wrong
    where accuracy is measured.
    """

    kind: str
    levels: Numbers
    deviation: Numbers
    undefined: Numbers
    repeats: int

    @property
    def strengths(self) -> Numbers:
        """Give the noise levels."""
        return self.levels

    def summary(self) -> str:
        """Say what is left of the score at the strongest noise tried."""
        worst = self.strongest
        said = f"The {self.measure} is {self.words(self.clean_score)} on the data as they are"
        if self.levels[worst] > 0 and np.isfinite(self.score[worst]):
            deviation = self.deviation[worst]
            spread = f"{100 * deviation:.1f} points" if self.measure == "accuracy" else with_unit(deviation, digits=2)
            said += f" and {self.words(self.score[worst])} (± {spread} over {self.repeats} draws) with "
            said += CORRUPTIONS[self.kind].describe(self.levels[worst])
        said += f"; {self.guess_words}."
        if max(self.undefined) > 0:
            fate = "count as wrong" if self.measure == "accuracy" else "are left out"
            said += f" Up to {percent(max(self.undefined))} of the answers were not a number and {fate}."
        return said

    def plot(self, ax: Any) -> None:
        """Draw the score over the noise level with its spread, and that of a guess."""
        self.draw(ax, "model", self.deviation)
        ax.set_xlabel(CORRUPTIONS[self.kind].unit)


def noise_accuracy(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    levels: Sequence[float] = (0, 0.05, 0.1, 0.2, 0.5, 1.0),
    kind: str = "gaussian",
    repeats: int = 3,
    seed: int = 0,
    lengths: Any = None,
    target_scale: float | Sequence[float] = 1.0,
    target_unit: str = "",
    batch_size: int = 256,
) -> NoiseScores:
    """Measure a classifier's accuracy, or a regressor's error, while noise on its input grows.

    ``"gaussian"`` adds level · s · ε to every sample, ε standard normal, s the standard deviation of its channel in
    ``X``; ``"salt-and-pepper"`` replaces a share ``level`` of the samples by the channel's largest or least value;
    ``"missing"`` loses a share of the steps and holds the value before; ``"shift"`` moves a sequence in time by up to
    a share of its length.
    Padding stays as it is. The same draws serve every level, so levels differ in strength alone, and the answer does
    not depend on ``batch_size``. Reference: erichson2021, section 6.4, eqs. (17)-(19).

    Args:
        model: maps ``(batch, time, channel)`` to scores ``(batch, classes)`` or ``(batch, time, classes)``; where it
            scores every step and a sequence has one class, the last true step answers. It is asked in evaluation mode,
            on its own device and in its own number format, and left as it was.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``. Unequal lengths
            need a model whose ``forward`` takes ``lengths``, or a padded array with ``lengths``.
        y: class indices ``(n,)``, or ``(n, time)`` for a class at every step; or floating-point numbers ``(n,)``,
            ``(n, out)``, or ``(n, time, out)`` for numbers at every step.
        levels: numbers of at least 0; at most 1 but for Gaussian noise.
        kind: ``"gaussian"``, ``"salt-and-pepper"``, ``"missing"`` or ``"shift"``.
        repeats: draws of the noise, at least 2.
        seed: of the draws.
        lengths: true length of each row of a padded array ``X``.
        target_scale: what one unit of numbers ``y`` is worth in ``target_unit``, a number or one an output.
        target_unit: its name.
        batch_size: sequences asked about at once.

    >>> import torch
    >>> class Last(nn.Module):
    ...     def forward(self, x):
    ...         return torch.cat([-x[:, -1], x[:, -1]], dim=-1)
    >>> X = np.sign(np.arange(-200.0, 200.0) + 0.5)[:, None, None].repeat(5, axis=1)
    >>> result = noise_accuracy(Last(), X, (X[:, 0, 0] > 0).astype(int), levels=(0, 1))
    >>> result.score[0], 0.80 < result.score[1] < 0.88  # Φ(1) = .841
    (1.0, True)
    """
    check_choice("kind", kind, CORRUPTIONS)
    check_count("repeats", repeats, least=2)
    check_count("seed", seed, least=0)
    check_count("batch_size", batch_size)
    steps = checked_levels(levels, kind)
    data = eval_batch(model, X, y, lengths, target_scale)
    noise = CORRUPTIONS[kind](data)
    marks = np.zeros((repeats, len(steps), len(data.values), 2))
    with audited(model, seed):
        clean = data.all_marks(model, batch_size)
        lost = int(clean[:, 1].sum())
        require(
            data.measure == "accuracy" or lost == 0,
            "expected finite answers from the model",
            f"got {lost} of {data.count} that are not",
        )
        for draw in range(repeats):
            for level, rows, damaged in damaged_batches(data, noise, steps, (seed, draw), batch_size):
                marks[draw, level, rows] = data.marks(data.scores(model, rows, damaged), rows).cpu().numpy()
    still = np.asarray(steps) == 0
    marks[:, still] = clean
    scores = np.array([[data.score(*level.sum(0)) for level in draw] for draw in marks])
    intervals = [
        (0.0, 0.0) if quiet else lost_interval(data, clean[:, 0], _worst_where_undefined(data.measure, own), seed)
        for own, quiet in zip(marks.mean(0), still, strict=True)
    ]
    strongest = marks[:, int(np.argmax(steps)), :, 0].mean(0)
    device, dtype = place_of(model)
    return NoiseScores(
        model=type(model).__name__,
        method=f"{noise.method}; {repeats} draws; the model in evaluation mode, in {str(dtype)[6:]}.",
        seed=seed,
        settings={"batch_size": batch_size},
        checksum=data.checksum(),
        environment=environment(str(device)),
        measure=data.measure,
        kind=kind,
        levels=steps,
        score=tuple(scores.mean(0).tolist()),
        deviation=tuple(np.where(still, 0.0, scores.std(0, ddof=1)).tolist()),
        undefined=tuple((marks[..., 1].mean(0).sum(-1) / data.count).tolist()),
        lost_low=tuple(low for low, _ in intervals),
        lost_high=tuple(high for _, high in intervals),
        clean_score=data.score(*clean.sum(0)),
        guess=data.guess,
        unit=target_unit,
        count=data.count,
        repeats=repeats,
        marks=tuple((strongest / data.answers_of).tolist()),
        most_lost=data.most_lost(clean[:, 0], strongest),
    )


def _worst_where_undefined(measure: Measure, marks: np.ndarray) -> np.ndarray:
    """Give the marks, infinite errors where an answer was no number."""
    return np.where((marks[:, 1] > 0) & (measure == "error"), np.inf, marks[:, 0])


def _run(context: AuditContext) -> NoiseScores:
    level = context.thresholds["noise"]["level"]
    data = context.affordable(forward=1 + 3 * context.budget.noise_draws, data=context.test)
    return noise_accuracy(
        context.model,
        data.values,
        data.targets,
        levels=(0, level / 4, level / 2, level),
        repeats=context.budget.noise_draws,
        lengths=data.lengths,
        seed=context.seed,
        batch_size=min(max(1, _STEPS_AT_ONCE // data.values.shape[1]), 256),
        **context.unit,
    )


CHECK = Check(
    name="noise",
    title="How does it take noise?",
    caption="How good its answers stay while random noise on the input grows.",
    order=70,
    result=NoiseScores,
    needs=("y",),
    run=_run,
    judge=judge_loss,
    thresholds={"level": 0.2, "steady": 0.05, "broken": 0.25},
    number=lambda result: result.lost,
)

"""The generalization gap: how much better a model does on its own sequences, and what is guaranteed of new ones."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from sostenuto.audits.base import AuditResult, Check, Judged, graded, points
from sostenuto.audits.batches import EvalBatch, Measure, eval_batch, is_real, named_part, score_words
from sostenuto.audits.context import AuditContext
from sostenuto.audits.generalization.guarantee import guarantee_words, guaranteed_risk
from sostenuto.audits.generalization.measures import standard_error
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.repeats import copied
from sostenuto.checks import check_count, check_fraction, check_positive, require
from sostenuto.report.numbers import count, counted, number, percent
from sostenuto.results import Record
from sostenuto.training.processes import environment

METHOD = (
    "Mean {loss} and {measure} on both parts, standard errors from the spread over sequences; the gap's is the root of "
    "the sum of both squares; the guarantee by theorem {theorem} of fermanian2021 with probability 1 − {delta:g}; the "
    "model in evaluation mode, in {precision}."
)


@dataclass(frozen=True, kw_only=True)
class PartScore(Record):
    """Score and mean loss of one part of the data with their standard errors, and the score of a guess."""

    count: int
    sequences: int
    score: float
    score_error: float
    loss: float
    loss_error: float
    guess: float


SHARED = 0.01
"""A test part of which a larger share was trained on shows nothing new."""


@dataclass(frozen=True, kw_only=True)
class GeneralizationGap(AuditResult):
    """Both parts measured, their gap, and the bound of fermanian2021 on new sequences.

    The score is the accuracy, or the root mean square error in ``unit``, as ``measure`` says. ``gap`` is above 0 where
    the model does worse on new sequences, as is ``loss_gap``. ``bound`` is on the probability of an error, or on the
    root mean square error; None where an assumption fails, and ``bound_reason`` says which.
    """

    measure: Measure
    train: PartScore
    test: PartScore
    gap: float
    gap_error: float
    loss_gap: float
    loss_gap_error: float
    bound: float | None
    bound_reason: str
    bound_terms: dict[str, float] = field(default_factory=dict)
    unit: str = ""
    shared: int = 0

    def summary(self) -> str:
        """Say both scores, the gap with its error, and the guarantee."""
        train, test = (score_words(self.measure, part.score, self.unit) for part in (self.train, self.test))
        said = f"The {self.measure} is {train} on {counted(self.train.count, 'training answer')} and {test} on "
        said += f"{count(self.test.count)} new: a gap of {self._gap()}. "
        if self.measure == "error":
            if self.test.score <= self.test.guess:
                explained = 1 - (self.test.score / self.test.guess) ** 2 if self.test.guess > 0 else 0.0
                said += f"On new ones {percent(explained)} of the targets' variance is explained. "
            else:
                guess = score_words("error", self.test.guess, self.unit)
                said += f"On new ones it does worse than always answering their mean ({guess}). "
            bounded = f"an error of at most {score_words('error', self.bound or 0.0, self.unit)}"
            return said + guarantee_words(self.bound, self.bound_reason, self.test.guess, bounded)
        bound = self.bound or 0.0
        shown = percent(bound) if bound < 1 else number(bound, digits=3)
        return said + guarantee_words(self.bound, self.bound_reason, 1.0, f"an error rate of at most {shown}")

    def _gap(self) -> str:
        if self.measure == "error":
            return f"{number(self.gap, digits=3)} ± {number(self.gap_error, digits=2)} {self.unit}".rstrip()
        gap = f"{points(self.gap)} ± {points(self.gap_error)} points"
        return f"{gap}, {number(self.loss_gap, digits=3)} ± {number(self.loss_gap_error, digits=2)} in loss"

    def plot(self, ax: Any) -> None:
        """Draw the score of both parts with its interval, and that of a guess."""
        factor = 100 if self.measure == "accuracy" else 1
        parts = (self.train, self.test)
        places = np.arange(2)
        errors = [1.96 * factor * part.score_error for part in parts]
        scores, guesses = (factor * np.array([(part.score, part.guess) for part in parts])).T
        ax.errorbar(places, scores, yerr=errors, fmt="o", capsize=4, label="model, 95 % interval")
        ax.hlines(guesses, places - 0.15, places + 0.15, color="gray", linestyle="--", label="guess")
        ax.set_xticks(places, ["training", "new"])
        ax.set_xlim(-0.6, 1.6)
        ax.set_ylim(0, 102 if self.measure == "accuracy" else None)
        ax.set_xlabel("sequences")
        unit = f"root mean square error, {self.unit}" if self.unit else "root mean square error"
        ax.set_ylabel("accuracy, %" if self.measure == "accuracy" else unit)
        ax.legend()


def generalization_gap(
    model: nn.Module,
    X_train: Any,  # noqa: N803
    y_train: Any,
    X_test: Any,  # noqa: N803
    y_test: Any,
    *,
    train_lengths: Any = None,
    test_lengths: Any = None,
    target_scale: float | Sequence[float] = 1.0,
    target_unit: str = "",
    target_bound: float | None = None,
    delta: float = 0.05,
    total_variation: float = 0.5,
    seed: int = 0,
    batch_size: int = 256,
) -> GeneralizationGap:
    """Measure how much worse a model does on new sequences than on those it was trained on, and how sure that is.

        gap = test loss − training loss,   standard error √(s²_test/n_test + s²_train/n_train)

    and beside it the bound that holds for every network of fermanian2021's form, before any test sequence is seen: on
    the probability of an error, or on the expected squared error. Reference: fermanian2021, theorems 2 and 3, as
    derived in ``docs/rnn_as_kernel.md``.

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``; it is left as it was.
        X_train: the sequences it was trained on, as it sees them: array ``(n, time, channel)``, or a list.
        y_train: their class indices or numbers, as for `noise_accuracy`.
        X_test: sequences it has not seen.
        y_test: their class indices or numbers.
        train_lengths: true length of each row of a padded array ``X_train``.
        test_lengths: true length of each row of a padded array ``X_test``.
        target_scale: what one unit of numbers ``y`` is worth in ``target_unit``, a number or one an output.
        target_unit: its name.
        target_bound: what ‖y‖ never exceeds, in the unit of ``y``, chosen in advance; for the bound on an error.
        delta: the bound holds with probability 1 − ``delta`` over the training part.
        total_variation: what no sequence's total variation exceeds, chosen in advance; for the bound.
        seed: for a model that draws random numbers.
        batch_size: sequences asked about at once.

    >>> class Last(nn.Module):
    ...     def forward(self, x):
    ...         return torch.cat([-x[:, -1], x[:, -1]], dim=-1)
    >>> X = torch.linspace(-1, 1, 40)[:, None, None].expand(-1, 5, 1)
    >>> y = (X[:, 0, 0] > 0).long()
    >>> found = generalization_gap(Last(), X, y, X[:20], 1 - y[:20])
    >>> found.gap, found.bound, found.bound_reason
    (1.0, None, 'not applicable: it needs a SequenceClassifier on a ResidualRNN, and this is a Last')
    """
    check_count("batch_size", batch_size)
    check_count("seed", seed, least=0)
    check_fraction("total_variation", total_variation)
    check_fraction("delta", delta)
    check_positive("delta", delta)
    same = is_real(y_train) == is_real(y_test)
    require(
        same, "expected y of the training part to be of the kind of y", "got classes in one and numbers in the other"
    )
    parts = (
        named_part("training", eval_batch, model, X_train, y_train, train_lengths, target_scale),
        named_part("test", eval_batch, model, X_test, y_test, test_lengths, target_scale),
    )
    with audited(model, seed):
        train, test = (_scored(model, part, batch_size) for part in parts)
        bound, reason, terms = guaranteed_risk(model, parts[0], delta, total_variation, target_bound=target_bound)
    real = parts[0].measure == "error"
    if real and bound is not None:
        # Theorem 3 sums over outputs, in the scale of y; the error is their mean, in the target's own unit.
        bound = math.sqrt(bound / len(parts[0].scale)) * float(parts[0].scale.max())
    device, dtype = place_of(model)
    return GeneralizationGap(
        model=type(model).__name__,
        method=METHOD.format(
            loss=parts[0].loss_name,
            measure=parts[0].measure,
            theorem=3 if real else 2,
            delta=delta,
            precision=str(dtype)[6:],
        ),
        seed=seed,
        settings={"batch_size": batch_size, "delta": delta, "total_variation": total_variation},
        checksum=hashlib.sha256("".join(part.checksum() for part in parts).encode()).hexdigest()[:16],
        environment=environment(str(device)),
        measure=parts[0].measure,
        train=train,
        test=test,
        gap=test.score - train.score if real else train.score - test.score,
        gap_error=math.hypot(test.score_error, train.score_error),
        loss_gap=test.loss - train.loss,
        loss_gap_error=math.hypot(test.loss_error, train.loss_error),
        bound=bound,
        bound_reason=reason,
        bound_terms=terms,
        unit=target_unit,
        shared=_shared(*parts),
    )


def _shared(train: EvalBatch, test: EvalBatch) -> int:
    """Count the sequences of the test part that stand in the training part too, or as good as."""
    steps = max(train.values.shape[1], test.values.shape[1])
    return copied(*(part.sketched(steps, train.deviations) for part in (test, train)))


def _scored(model: nn.Module, data: EvalBatch, batch_size: int) -> PartScore:
    losses, marks = [], []
    for rows in data.batches(batch_size):
        scores = data.scores(model, rows, data.values[rows]).detach()
        losses.append(data.losses(scores.double(), rows).cpu())
        marks.append(data.marks(scores, rows)[:, 0])
    loss, total = torch.cat(losses).numpy(), float(torch.cat(marks).sum())
    lost = int((~np.isfinite(loss)).sum())
    require(lost == 0, "expected finite answers from the model", f"got {lost} of {len(loss)} that are not")
    score, loss_error = data.score(total), standard_error(loss, data.owners)
    if data.measure == "error":
        score_error = loss_error / (2 * score) if score > 0 else 0.0
    else:
        # Around the share itself, so that answers of one sequence, right or wrong together, count once.
        off = torch.cat(marks).numpy() - score * data.answers_of
        count = len(off)
        score_error = math.sqrt(count / max(count - 1, 1) * float(np.sum(off**2))) / data.count
    return PartScore(
        count=data.count,
        sequences=len(data.values),
        score=score,
        score_error=score_error,
        loss=float(loss.mean()),
        loss_error=loss_error,
        guess=data.guess,
    )


def _run(context: AuditContext) -> GeneralizationGap:
    assert context.train is not None
    train, test = context.train, context.test
    return generalization_gap(
        context.model,
        train.values,
        train.targets,
        test.values,
        test.targets,
        train_lengths=train.lengths,
        test_lengths=test.lengths,
        seed=context.seed,
        **context.unit,
    )


def _judge(result: GeneralizationGap, limits: Mapping[str, float]) -> Judged:
    """Grade the gap by its interval: in points of accuracy, or as a share of the error of a guess."""
    whole = 1.0 if result.measure == "accuracy" else result.test.guess
    if whole == 0:
        whole = max(result.test.score, result.train.score) or 1.0
    # No wrong answer among few is no proof of none: each part counts as if it had one more of either kind.
    floor = (
        sum(1 / (part.sequences + 2) ** 2 for part in (result.train, result.test))
        if result.measure == "accuracy"
        else 0
    )
    gap, half = result.gap / whole, 1.96 * math.sqrt((result.gap_error / whole) ** 2 + floor)
    basis = (
        f"{result.summary()} Judged by the interval of the gap, {points(gap - half)} to {points(gap + half)} points; "
        f"it carries over up to {points(limits['small'])} and overfits beyond {points(limits['large'])}."
    )
    if result.shared > SHARED * result.test.sequences:
        told = f"{counted(result.shared, 'sequence')} of the test part were trained on."
        return Judged("caution", "Not new", f"{told} {basis}")
    labels = ("Carries over", "Overfits a little", "Overfits")
    return graded((gap - half, gap + half), limits["small"], limits["large"], labels, basis)


CHECK = Check(
    name="generalization",
    title="Does it carry over?",
    caption="The sequences it was trained on, beside new ones.",
    order=60,
    result=GeneralizationGap,
    needs=("y", "train"),
    run=_run,
    judge=_judge,
    thresholds={"small": 0.05, "large": 0.25},
    number=lambda result: result.gap,
)

"""The generalization gap: how much better a model does on its own sequences, and what is guaranteed of new ones."""

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.generalization.calibration import calibration_words
from sostenuto.audits.generalization.guarantee import guarantee_words, guaranteed_risk
from sostenuto.audits.generalization.measures import Measures, collect_answers, draw_reliability, measure
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.robustness.labeled import LabeledSequences, labeled_sequences
from sostenuto.checks import InputError, check_count, check_fraction, check_positive
from sostenuto.report.numbers import count, counted, number, percent
from sostenuto.training.processes import environment

METHOD = (
    "Mean cross-entropy and accuracy on both parts, standard errors from the spread over sequences; the gap's is the "
    "root of the sum of both squares; the bound by theorem 2 of paper 000 with probability 1 − {delta:g}; the model in "
    "evaluation mode, in {precision}."
)


@dataclass(frozen=True, kw_only=True)
class GeneralizationGap(AuditResult):
    """Both parts measured, their gap, and the bound of paper 000 on the probability of an error on new sequences.

    ``loss_gap`` is test less training loss, ``accuracy_gap`` training less test accuracy: above 0 where the model does
    worse on new sequences. ``bound`` is None where an assumption fails, and ``bound_reason`` says which.
    """

    train: Measures
    test: Measures
    loss_gap: float
    loss_gap_error: float
    accuracy_gap: float
    accuracy_gap_error: float
    bound: float | None
    bound_reason: str
    bound_terms: dict[str, float] = field(default_factory=dict)

    def summary(self) -> str:
        """Say both accuracies, the gap with its error, the calibration on new sequences, and the guarantee."""
        gap = f"{100 * self.accuracy_gap:.1f} ± {100 * self.accuracy_gap_error:.1f} points".replace("-", "−")
        loss = f"{number(self.loss_gap, digits=3)} ± {number(self.loss_gap_error, digits=2)}"
        said = f"Accuracy is {percent(self.train.accuracy)} on {counted(self.train.count, 'training answer')} and "
        said += f"{percent(self.test.accuracy)} on {count(self.test.count)} new: a gap of {gap}, {loss} in loss. "
        said += f"On new ones {calibration_words(self.test)}. "
        return said + self._guarantee()

    def _guarantee(self) -> str:
        bound = self.bound or 0.0
        shown = percent(bound) if bound < 1 else number(bound, digits=3)
        return guarantee_words(self.bound, self.bound_reason, 1.0, f"an error rate of at most {shown}")

    def plot(self, ax: Any) -> None:
        """Draw accuracy over confidence on both parts."""
        draw_reliability(ax, {"training": self.train, "new": self.test})


def generalization_gap(
    model: nn.Module,
    X_train: Any,  # noqa: N803
    y_train: Any,
    X_test: Any,  # noqa: N803
    y_test: Any,
    *,
    train_lengths: Any = None,
    test_lengths: Any = None,
    bins: int = 10,
    delta: float = 0.05,
    total_variation: float = 0.5,
    seed: int = 0,
    batch_size: int = 256,
) -> GeneralizationGap:
    """Measure how much worse a classifier does on new sequences than on those it was trained on, and how sure that is.

        gap = test loss − training loss,   standard error √(s²_test/n_test + s²_train/n_train)

    with calibration on both parts (see `calibration`), and beside it the bound on the probability of an error that
    holds for every network of paper 000's form, before any test sequence is seen. Reference: paper 000, theorem 2, as
    derived in ``docs/rnn_as_kernel.md``.

    Args:
        model: maps ``(batch, time, channel)`` to scores ``(batch, classes)`` or ``(batch, time, classes)``; it is left
            as it was.
        X_train: the sequences it was trained on, as it sees them: array ``(n, time, channel)``, or a list.
        y_train: their class indices ``(n,)``, or ``(n, time)``.
        X_test: sequences it has not seen.
        y_test: their class indices.
        train_lengths: true length of each row of a padded array ``X_train``.
        test_lengths: true length of each row of a padded array ``X_test``.
        bins: equal parts of [0, 1] that confidences are sorted into.
        delta: the bound holds with probability 1 − ``delta`` over the training part.
        total_variation: what no sequence's total variation exceeds, chosen in advance; for the bound.
        seed: of the simulated data sets behind ``calibrated_mean``.
        batch_size: sequences asked about at once.

    >>> import torch
    >>> class Last(nn.Module):
    ...     def forward(self, x):
    ...         return torch.cat([-x[:, -1], x[:, -1]], dim=-1)
    >>> X = torch.linspace(-1, 1, 40)[:, None, None].expand(-1, 5, 1)
    >>> y = (X[:, 0, 0] > 0).long()
    >>> found = generalization_gap(Last(), X, y, X[:20], 1 - y[:20])
    >>> found.accuracy_gap, found.bound, found.bound_reason
    (1.0, None, 'not applicable: a SequenceClassifier on a ResidualRNN fails (Last has another form)')
    """
    for name, value in (("bins", bins), ("batch_size", batch_size)):
        check_count(name, value)
    check_count("seed", seed, least=0)
    check_fraction("total_variation", total_variation)
    check_fraction("delta", delta)
    check_positive("delta", delta)
    parts = (
        _labeled("training", model, X_train, y_train, train_lengths),
        _labeled("test", model, X_test, y_test, test_lengths),
    )
    with audited(model, seed):
        train, test = (measure(collect_answers(model, part, batch_size), bins, seed) for part in parts)
        bound, reason, terms = guaranteed_risk(model, parts[0], delta, total_variation)
    device, dtype = place_of(model)
    return GeneralizationGap(
        model=type(model).__name__,
        method=METHOD.format(delta=delta, precision=str(dtype).removeprefix("torch.")),
        seed=seed,
        settings={"batch_size": batch_size, "bins": bins, "delta": delta, "total_variation": total_variation},
        checksum=hashlib.sha256("".join(part.checksum() for part in parts).encode()).hexdigest()[:16],
        environment=environment(str(device)),
        train=train,
        test=test,
        loss_gap=test.loss - train.loss,
        loss_gap_error=math.hypot(test.loss_error, train.loss_error),
        accuracy_gap=train.accuracy - test.accuracy,
        accuracy_gap_error=math.hypot(test.accuracy_error, train.accuracy_error),
        bound=bound,
        bound_reason=reason,
        bound_terms=terms,
    )


def _labeled(part: str, model: nn.Module, sequences: Any, targets: Any, lengths: Any) -> LabeledSequences:
    try:
        return labeled_sequences(model, sequences, targets, lengths)
    except InputError as error:
        raise InputError(f"{part} part: {error}") from error

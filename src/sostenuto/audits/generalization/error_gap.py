"""The generalization gap of a regressor: how much smaller its error is on the sequences it was trained on."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.generalization.guarantee import guarantee_words, guaranteed_risk
from sostenuto.audits.generalization.measures import standard_error
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.robustness.measured import MeasuredSequences, measured_sequences
from sostenuto.checks import InputError, check_count, check_fraction, check_positive, require
from sostenuto.report.numbers import count, counted, percent, with_unit
from sostenuto.results import Record
from sostenuto.training.processes import environment

METHOD = (
    "Root mean square errors on both parts, standard errors from the spread over sequences; the gap's is the root of "
    "the sum of both squares; the guarantee by theorem 3 of paper 000 with probability 1 − {delta:g}; the model in "
    "evaluation mode, in {precision}."
)


@dataclass(frozen=True, kw_only=True)
class ErrorMeasures(Record):
    """Root mean square error of one part of the data with its standard error, and that of always answering the mean."""

    count: int
    error: float
    standard_error: float
    deviation: float

    @property
    def explained(self) -> float:
        """Give R², the share of the targets' variance that is explained; 0 where they do not vary."""
        return 1 - (self.error / self.deviation) ** 2 if self.deviation > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class ErrorGap(AuditResult):
    """Both parts measured, their gap in the target's own ``unit``, and the bound of paper 000 on the error.

    ``gap`` is test less training error: above 0 where the model does worse on new sequences. ``bound`` is on the root
    mean square error of new sequences; None where an assumption fails, and ``bound_reason`` says which.
    """

    train: ErrorMeasures
    test: ErrorMeasures
    gap: float
    gap_error: float
    unit: str
    bound: float | None
    bound_reason: str
    bound_terms: dict[str, float] = field(default_factory=dict)

    def summary(self) -> str:
        """Say both errors, the gap with its error, what is explained on new sequences, and the guarantee."""
        said = (
            f"The error is {with_unit(self.train.error, self.unit)} on {counted(self.train.count, 'training answer')} "
        )
        said += f"and {with_unit(self.test.error, self.unit)} on {count(self.test.count)} new: a gap of "
        said += f"{with_unit(self.gap)} ± {with_unit(self.gap_error, self.unit, digits=2)}. "
        if self.test.explained >= 0:
            said += f"On new ones {percent(self.test.explained)} of the targets' variance is explained. "
        else:
            said += f"On new ones it does worse than always answering their mean ({with_unit(self.test.deviation)}). "
        bounded = f"an error of at most {with_unit(self.bound or 0.0, self.unit)}"
        return said + guarantee_words(self.bound, self.bound_reason, self.test.deviation, bounded)

    def plot(self, ax: Any) -> None:
        """Draw the error of both parts, and that of always answering the mean."""
        parts = {"training": self.train, "new": self.test}
        places = np.arange(len(parts))
        errors = [part.error for part in parts.values()]
        ax.bar(places, errors, 0.5, yerr=[part.standard_error for part in parts.values()], capsize=4, label="model")
        means = [part.deviation for part in parts.values()]
        ax.plot(places, means, linestyle="", marker="_", markersize=40, color="gray", label="mean of the targets")
        ax.set_xticks(places, list(parts))
        ax.set_xlim(-0.6, len(parts) - 0.4)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("sequences")
        ax.set_ylabel(f"root mean square error, {self.unit}" if self.unit else "root mean square error")
        ax.legend()


def error_gap(
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
) -> ErrorGap:
    """Measure how much worse a regressor does on new sequences than on those it was trained on, and how sure that is.

        gap = test error − training error,   error = √(mean squared error),   standard error of each s(e²)/(2·error)

    and beside it the bound on the expected squared error that holds for every network of paper 000's form, before any
    test sequence is seen. `generalization_gap` does the same for classifiers. Reference: paper 000, theorem 3, as
    derived in ``docs/rnn_as_kernel.md``.

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``; it is left as it was.
        X_train: the sequences it was trained on, as it sees them: array ``(n, time, channel)``, or a list.
        y_train: their numbers, as for `adversarial_error`.
        X_test: sequences it has not seen.
        y_test: their numbers.
        train_lengths: true length of each row of a padded array ``X_train``.
        test_lengths: true length of each row of a padded array ``X_test``.
        target_scale: what one unit of ``y`` is worth in ``target_unit``, a number or one an output.
        target_unit: its name.
        target_bound: what ‖y‖ never exceeds, in the unit of ``y``, chosen in advance; for the bound.
        delta: the bound holds with probability 1 − ``delta`` over the training part.
        total_variation: what no sequence's total variation exceeds, chosen in advance; for the bound.
        seed: for a model that draws random numbers.
        batch_size: sequences asked about at once.

    >>> class Last(nn.Module):
    ...     def forward(self, x):
    ...         return x[:, -1]
    >>> X = torch.linspace(-1, 1, 40)[:, None, None].expand(-1, 5, 1)
    >>> found = error_gap(Last(), X, X[:, 0], X[:20], X[:20, 0] + 0.25)
    >>> found.train.error, round(found.gap, 6), found.bound
    (0.0, 0.25, None)
    """
    check_count("batch_size", batch_size)
    check_count("seed", seed, least=0)
    check_fraction("total_variation", total_variation)
    check_fraction("delta", delta)
    check_positive("delta", delta)
    parts = (
        _measured("training", model, X_train, y_train, train_lengths, target_scale),
        _measured("test", model, X_test, y_test, test_lengths, target_scale),
    )
    with audited(model, seed):
        train, test = (_measures(model, part, batch_size) for part in parts)
        risk, reason, terms = guaranteed_risk(model, parts[0], delta, total_variation, target_bound=target_bound)
    bound = None
    if risk is not None:
        # Theorem 3 sums over outputs, in the scale of y; the error is their mean, in the target's own unit.
        bound = math.sqrt(risk / len(parts[0].scale)) * float(parts[0].scale.max())
    device, dtype = place_of(model)
    return ErrorGap(
        model=type(model).__name__,
        method=METHOD.format(delta=delta, precision=str(dtype).removeprefix("torch.")),
        seed=seed,
        settings={"batch_size": batch_size, "delta": delta, "total_variation": total_variation},
        checksum=hashlib.sha256("".join(part.checksum() for part in parts).encode()).hexdigest()[:16],
        environment=environment(str(device)),
        train=train,
        test=test,
        gap=test.error - train.error,
        gap_error=math.hypot(test.standard_error, train.standard_error),
        unit=target_unit,
        bound=bound,
        bound_reason=reason,
        bound_terms=terms,
    )


def _measured(part: str, model: nn.Module, sequences: Any, targets: Any, lengths: Any, scale: Any) -> MeasuredSequences:
    try:
        return measured_sequences(model, sequences, targets, lengths, scale)
    except InputError as error:
        raise InputError(f"{part} part: {error}") from error


def _measures(model: nn.Module, data: MeasuredSequences, batch_size: int) -> ErrorMeasures:
    found = [
        data.losses(data.scores(model, rows, data.values[rows]), rows).detach().cpu()
        for rows in data.batches(batch_size)
    ]
    squares = torch.cat(found)
    lost = int((~squares.isfinite()).sum())
    require(lost == 0, "expected finite answers from the model", f"got {lost} of {len(squares)} that are not")
    steps = data.mask.sum(1) if data.has_step_targets else torch.ones(len(data.values), dtype=torch.long)
    owners = torch.repeat_interleave(torch.arange(len(steps)), steps).numpy()
    error = math.sqrt(float(squares.mean()))
    spread = standard_error(squares.numpy(), owners)
    return ErrorMeasures(
        count=len(squares),
        error=error,
        standard_error=spread / (2 * error) if error > 0 else 0.0,
        deviation=data.deviation,
    )

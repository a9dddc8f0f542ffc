"""Can a regressor be fooled: its error under the smallest changes that gradients can find."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.robustness.adversarial import MEASURE
from sostenuto.audits.robustness.attacks import NORMS, Bounds, projected_ascent, random_start
from sostenuto.audits.robustness.measured import MeasuredSequences, measured_sequences
from sostenuto.checks import check_choice, check_count, check_positive, require
from sostenuto.report.numbers import counted, number, with_unit
from sostenuto.results import Numbers
from sostenuto.training.processes import environment


@dataclass(frozen=True, kw_only=True)
class AdversarialError(AuditResult):
    """Root mean square error when an attacker may change a sequence by at most ε, for growing ε.

    ``deviation`` is the standard deviation of the targets: the error of always answering their mean. Errors are in
    ``unit``, the target's own.
    """

    norm: str
    epsilons: Numbers
    error: Numbers
    clean_error: float
    deviation: float
    count: int
    unit: str = ""

    def summary(self) -> str:
        """Say how large the error grows under the strongest attack tried."""
        worst = int(np.argmax(self.epsilons))
        return (
            f"The error is {with_unit(self.clean_error, self.unit)} on the data as they are and "
            f"{with_unit(self.error[worst], self.unit)} when an attacker may make changes of at most "
            f"{number(self.epsilons[worst], digits=3)} {MEASURE[self.norm]}; always answering the mean gives "
            f"{with_unit(self.deviation, self.unit)}."
        )

    def plot(self, ax: Any) -> None:
        """Draw the error over ε, and that of the mean."""
        order = np.argsort(self.epsilons, kind="stable")
        levels = np.concatenate([[0.0], np.asarray(self.epsilons)[order]])
        ax.plot(levels, np.concatenate([[self.clean_error], np.asarray(self.error)[order]]), marker="o", label="model")
        ax.axhline(self.deviation, linestyle="--", color="gray", label="mean of the targets")
        ax.set_xlabel("largest change allowed")
        ax.set_ylabel(f"root mean square error, {self.unit}" if self.unit else "root mean square error")
        ax.legend()


def adversarial_error(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    norm: str = "linf",
    epsilons: Sequence[float] = (0.01, 0.03, 0.1, 0.3),
    steps: int = 40,
    step_size: float | None = None,
    restarts: int = 1,
    bounds: Bounds = None,
    seed: int = 0,
    lengths: Any = None,
    target_scale: float | Sequence[float] = 1.0,
    target_unit: str = "",
    batch_size: int = 128,
) -> AdversarialError:
    """Attack a regressor by projected gradient ascent on its squared error within a ball of radius ε.

    The ascent begins at the input itself and at ``restarts`` random points; the largest error counts. Padding is not
    touched, and values are free unless ``bounds`` are given. `adversarial_accuracy` does the same to classifiers.

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, out)``, or to ``(batch, time, out)``, whose last true step
            answers where a sequence has one target.
        X: sequences, as for `noise_accuracy`.
        y: numbers ``(n,)``, ``(n, out)``, or ``(n, time, out)`` for numbers at every step.
        norm: ``"linf"``, ``"l2"`` (Frobenius over the sequence) or ``"step-l2"`` (each step).
        epsilons: radii, in the unit of ``X``.
        steps: of the ascent.
        step_size: 2.5 ε / steps if left out.
        restarts: random starts.
        bounds: least and largest value allowed.
        seed: of the random starts.
        lengths: true length of each row of a padded array ``X``.
        target_scale: what one unit of ``y`` is worth in ``target_unit``, a number or one an output.
        target_unit: its name.
        batch_size: sequences attacked at once.

    >>> class Mean(nn.Module):
    ...     def forward(self, x):
    ...         return x.mean(1)
    >>> X = np.linspace(-1, 1, 5)[:, None, None].repeat(4, axis=1)
    >>> found = adversarial_error(Mean(), X, X[:, 0, 0], epsilons=(0.25,))
    >>> found.clean_error, round(found.error[0], 6)
    (0.0, 0.25)
    """
    check_choice("norm", norm, NORMS)
    for name, count, least in (("steps", steps, 1), ("restarts", restarts, 1), ("seed", seed, 0)):
        check_count(name, count, least=least)
    check_count("batch_size", batch_size)
    radii = tuple(float(epsilon) for epsilon in epsilons)
    require(len(radii) > 0, "expected at least one epsilon", "got none")
    for radius in radii:
        check_positive("epsilon", radius, zero=True)
    data = measured_sequences(model, X, y, lengths, target_scale)
    generator = torch.Generator().manual_seed(seed)
    with audited(model, seed), torch.backends.cudnn.flags(enabled=False):
        clean = torch.cat([_error(data, model, rows, data.values[rows]) for rows in data.batches(batch_size)])
        lost = int((~clean.isfinite()).sum())
        require(lost == 0, "expected finite answers from the model", f"got {lost} of {len(clean)} that are not")
        found = []
        for radius in radii:
            worst = clean.clone()
            if radius > 0:
                stride = step_size or 2.5 * radius / steps
                for rows in data.batches(batch_size):
                    shape = data.values[rows].shape
                    starts = [random_start(shape, norm, radius, generator, data.values) for _ in range(restarts)]
                    for start in (torch.zeros_like(data.values[rows]), *starts):
                        moved = projected_ascent(
                            lambda values, rows=rows: _error(data, model, rows, values),
                            data.values[rows],
                            data.mask[rows][:, :, None],
                            start,
                            norm=norm,
                            epsilon=radius,
                            steps=steps,
                            step_size=stride,
                            bounds=bounds,
                        )
                        worst[rows] = torch.maximum(worst[rows], _error(data, model, rows, moved))
            found.append(_root_mean(worst, data))
    device, dtype = place_of(model)
    return AdversarialError(
        model=type(model).__name__,
        method=f"Projected gradient ascent on the squared error, {steps} steps from the input and from "
        f"{counted(restarts, 'random start')}, in {str(dtype).removeprefix('torch.')}.",
        seed=seed,
        settings={"steps": steps, "step_size": step_size, "restarts": restarts, "bounds": bounds and list(bounds)},
        checksum=data.checksum(),
        environment=environment(str(device)),
        norm=norm,
        epsilons=radii,
        error=tuple(found),
        clean_error=_root_mean(clean, data),
        deviation=data.deviation,
        unit=target_unit,
        count=len(data.true_targets),
    )


def _root_mean(squares: Float[Tensor, " batch"], data: MeasuredSequences) -> float:
    return math.sqrt(float(squares.sum()) / len(data.true_targets))


def _error(
    data: MeasuredSequences, model: nn.Module, rows: slice, values: Float[Tensor, "batch time channel"]
) -> Float[Tensor, " batch"]:
    """Give each sequence's squared error, where gradients reach back to ``values``."""
    return data.sequence_losses(data.scores(model, rows, values), rows).to(values.device)

"""Can a regressor be fooled: its error under the smallest changes that gradients can find."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.model import audited, call_model, place_of
from sostenuto.audits.robustness.adversarial import MEASURE
from sostenuto.audits.robustness.attacks import NORMS, Bounds, projected_ascent, random_start
from sostenuto.audits.robustness.labeled import LabeledSequences, labeled_sequences
from sostenuto.checks import check_choice, check_count, check_positive, require
from sostenuto.report.numbers import number
from sostenuto.results import Numbers
from sostenuto.training.environment import environment


@dataclass(frozen=True, kw_only=True)
class AdversarialError(AuditResult):
    """Root mean square error when an attacker may change a sequence by at most ε, for growing ε.

    ``deviation`` is the standard deviation of the targets: the error of always answering their mean.
    """

    norm: str
    epsilons: Numbers
    error: Numbers
    clean_error: float
    deviation: float
    count: int

    def summary(self) -> str:
        """Say how large the error grows under the strongest attack tried."""
        worst = int(np.argmax(self.epsilons))
        return (
            f"The error is {number(self.clean_error, digits=3)} on the data as they are and "
            f"{number(self.error[worst], digits=3)} when an attacker may make changes of at most "
            f"{number(self.epsilons[worst])} {MEASURE[self.norm]}; always answering the mean gives "
            f"{number(self.deviation, digits=3)}."
        )

    def plot(self, ax: Any) -> None:
        """Draw the error over ε, and that of the mean."""
        order = np.argsort(self.epsilons, kind="stable")
        levels = np.concatenate([[0.0], np.asarray(self.epsilons)[order]])
        ax.plot(levels, np.concatenate([[self.clean_error], np.asarray(self.error)[order]]), marker="o", label="model")
        ax.axhline(self.deviation, linestyle="--", color="gray", label="mean of the targets")
        ax.set_xlabel("largest change allowed")
        ax.set_ylabel("root mean square error")
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
    batch_size: int = 128,
) -> AdversarialError:
    """Attack a regressor by projected gradient ascent on its squared error within a ball of radius ε.

    The ascent begins at the input itself and at ``restarts`` random points; the largest error counts. Padding is not
    touched, and values are free unless ``bounds`` are given. `adversarial_accuracy` does the same to classifiers.

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, out)``, or to ``(batch, time, out)`` whose last true step
            answers.
        X: sequences, as for `noise_accuracy`.
        y: numbers ``(n,)`` or ``(n, out)``.
        norm: ``"linf"``, ``"l2"`` (Frobenius over the sequence) or ``"step-l2"`` (each step).
        epsilons: radii, in the unit of ``X``.
        steps: of the ascent.
        step_size: 2.5 ε / steps if left out.
        restarts: random starts.
        bounds: least and largest value allowed.
        seed: of the random starts.
        lengths: true length of each row of a padded array ``X``.
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
    data = labeled_sequences(model, X, np.zeros(len(X), int), lengths)
    targets = _targets(y, len(data.values))
    generator = torch.Generator().manual_seed(seed)
    with audited(model, seed), torch.backends.cudnn.flags(enabled=False):
        clean = torch.cat([_error(data, model, targets, rows, data.values[rows]) for rows in data.batches(batch_size)])
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
                            lambda values, rows=rows: _error(data, model, targets, rows, values),
                            data.values[rows],
                            data.mask[rows][:, :, None],
                            start,
                            norm=norm,
                            epsilon=radius,
                            steps=steps,
                            step_size=stride,
                            bounds=bounds,
                        )
                        worst[rows] = torch.maximum(worst[rows], _error(data, model, targets, rows, moved))
            found.append(float(worst.mean().sqrt()))
    device, dtype = place_of(model)
    return AdversarialError(
        model=type(model).__name__,
        method=f"Projected gradient ascent on the squared error, {steps} steps from the input and from {restarts} "
        f"random start(s), in {str(dtype).removeprefix('torch.')}.",
        seed=seed,
        settings={"steps": steps, "step_size": step_size, "restarts": restarts, "bounds": bounds and list(bounds)},
        checksum=data.checksum(),
        environment=environment(str(device)),
        norm=norm,
        epsilons=radii,
        error=tuple(found),
        clean_error=float(clean.mean().sqrt()),
        deviation=float(targets.std(0, correction=0).square().mean().sqrt()),
        count=len(targets),
    )


def _targets(given: Any, count: int) -> Float[Tensor, "n out"]:
    found = torch.as_tensor(np.asarray(given.cpu() if isinstance(given, Tensor) else given)).double()
    require(
        found.ndim in (1, 2) and len(found) == count,
        f"expected y of shape ({count},) or ({count}, out)",
        f"got {tuple(found.shape)}",
    )
    require(bool(found.isfinite().all()), "expected finite numbers in y", "got NaN or infinity")
    return found[:, None] if found.ndim == 1 else found


def _error(
    data: LabeledSequences, model: nn.Module, targets: Tensor, rows: slice, values: Tensor
) -> Float[Tensor, " batch"]:
    """Give each sequence's squared error, averaged over outputs, where gradients reach back to ``values``."""
    device, dtype = place_of(model)
    lengths = None if data.lengths is None else data.lengths[rows].to(device)
    found = call_model(model, values.to(device, dtype), lengths)
    if found.ndim == 3:
        last = data.mask[rows].sum(1) - 1
        found = found[torch.arange(len(found), device=device), last.to(device)]
    wanted = targets[rows].to(device)
    require(
        found.shape == wanted.shape, f"expected answers of shape {tuple(wanted.shape)}", f"got {tuple(found.shape)}"
    )
    return (found.double() - wanted).square().mean(1).to(values.device)

"""The loss around the weights, along the two directions in which it curves most."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.batches import eval_batch
from sostenuto.audits.curvature.operator import Hessian, twice_differentiable
from sostenuto.audits.model import audited, place_of, widened
from sostenuto.checks import check_count, check_positive
from sostenuto.report.numbers import number
from sostenuto.results import Numbers
from sostenuto.training.processes import environment


@dataclass(frozen=True, kw_only=True)
class LossSurface(AuditResult):
    """Loss on a square grid of weights: ``loss[i][j]`` at steps[i] along one eigenvector, steps[j] along the other.

    ``eigenvalues`` are those of the two directions; ``center`` is the loss at the weights themselves.
    """

    steps: Numbers
    loss: tuple[Numbers, ...]
    eigenvalues: Numbers
    center: float

    def summary(self) -> str:
        """Say how much the loss rises at the edge of the square."""
        edge = np.asarray(self.loss)
        rim = np.concatenate([edge[0], edge[-1], edge[:, 0], edge[:, -1]])
        reach = number(max(self.steps), digits=3)
        return (
            f"Moving the weights by {reach} along the two steepest directions takes the loss from "
            f"{number(self.center, digits=3)} to between {number(float(rim.min()), digits=3)} and "
            f"{number(float(rim.max()), digits=3)}."
        )

    def plot(self, ax: Any) -> None:
        """Draw the surface as filled levels."""
        loss = np.asarray(self.loss)
        shown = ax.contourf(self.steps, self.steps, loss.T, levels=20)
        ax.figure.canvas.draw_idle()
        ax.plot([0], [0], marker="x", color="white")
        ax.set_xlabel(f"along the first eigenvector ({number(self.eigenvalues[0], digits=3)})")
        ax.set_ylabel(f"along the second ({number(self.eigenvalues[1], digits=3)})")
        ax.set_title(f"loss from {number(float(shown.levels[0]), digits=3)} to {number(float(loss.max()), digits=3)}")


def loss_surface(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    radius: float = 1.0,
    points: int = 15,
    seed: int = 0,
    lengths: Any = None,
    batch_size: int = 256,
) -> LossSurface:
    """Measure the mean loss at w + a·v₁ + b·v₂ for a, b on a grid in [−radius, radius].

    v₁ and v₂ are the unit eigenvectors of the Hessian with the largest eigenvalues. The weights are put back exactly.
    Reference: erichson2021, eq. (22) and figure 4.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(6, 2))
    >>> found = loss_surface(model, torch.randn(50, 3, 2), torch.arange(50) % 2, points=3)
    >>> len(found.loss), found.loss[1][1] == found.center
    (3, True)
    """
    check_positive("radius", radius)
    check_count("points", points, least=3)
    check_count("seed", seed, least=0)
    check_count("batch_size", batch_size)
    model = widened(model)
    data = eval_batch(model, X, y, lengths)
    with audited(model, seed):
        with twice_differentiable():
            hessian = Hessian(model, data, batch_size)
            eigenvalues, directions = _steepest(hessian, seed)
        steps = np.linspace(-radius, radius, points)
        kept = [parameter.detach().clone() for parameter in hessian.parameters]
        try:
            center = hessian.loss()
            loss = [[_moved(hessian, kept, directions @ [a, b], center) for b in steps] for a in steps]
        finally:
            for parameter, value in zip(hessian.parameters, kept, strict=True):
                parameter.data.copy_(value)
    device, _ = place_of(model)
    return LossSurface(
        model=type(model).__name__,
        method=f"Mean {data.loss_name} on a grid of weights along the two eigenvectors of largest eigenvalue.",
        seed=seed,
        settings={"radius": radius, "points": points, "batch_size": batch_size},
        checksum=data.checksum(),
        environment=environment(str(device)),
        steps=tuple(steps.tolist()),
        loss=tuple(tuple(row) for row in loss),
        eigenvalues=tuple(eigenvalues.tolist()),
        center=center,
    )


def _steepest(hessian: Hessian, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the two largest eigenvalues and their unit eigenvectors, the larger first."""
    if hessian.size <= 8:
        values, vectors = np.linalg.eigh(hessian.dense())
        return values[::-1][:2], vectors[:, ::-1][:, :2]
    return hessian.extremes(2, np.random.default_rng(seed).standard_normal(hessian.size))


def _moved(hessian: Hessian, kept: list[Tensor], step: np.ndarray, center: float) -> float:
    """Measure the loss with the weights moved by ``step``."""
    if not step.any():
        return center
    change, start = torch.from_numpy(step), 0
    for parameter, value in zip(hessian.parameters, kept, strict=True):
        part = change[start : start + value.numel()].view_as(value)
        parameter.data.copy_(value + part.to(value))
        start += value.numel()
    return hessian.loss()

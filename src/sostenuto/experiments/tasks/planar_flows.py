"""Differential equations of two unknowns: solutions followed in small steps, and phase portraits of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.integrators import rk4
from sostenuto.report.palette import MUTED, SERIES

Flow = Callable[[Float[Tensor, "*batch 2"]], Float[Tensor, "*batch 2"]]


def lipschitz_flow(A: Float[Tensor, "*system 2 2"], W: Float[Tensor, "*system 2 2"]) -> Flow:  # noqa: N803
    """Give h′ = Ah + tanh(Wh), erichson2021's eq. (1) without input; of several systems, each for states of its own.

    >>> lipschitz_flow(-torch.eye(2), torch.zeros(2, 2))(torch.ones(3, 2))[0].tolist()
    [-1.0, -1.0]
    """
    return lambda h: h @ A.mT + torch.tanh(h @ W.mT)


@torch.no_grad()
def followed(
    flow: Flow, starts: Float[Tensor, "*start 2"], *, duration: float, step: float
) -> Float[Tensor, "*start time 2"]:
    """Follow the solutions from ``starts`` by the classical Runge-Kutta method, the starts first.

    >>> path = followed(lambda h: -h, torch.ones(1, 2, dtype=torch.float64), duration=1.0, step=0.1)
    >>> path.shape, abs(path[0, -1, 0].item() - 0.367879) < 1e-6
    (torch.Size([1, 11, 2]), True)
    """
    states = [starts]
    for _ in range(round(duration / step)):
        states.append(rk4(lambda h, _: flow(h), states[-1], step))
    return torch.stack(states, dim=-2)


def circle(radius: float, count: int) -> Float[Tensor, "start 2"]:
    """Spread ``count`` points evenly over a circle.

    >>> circle(2.0, 4).round().tolist()
    [[2.0, 0.0], [0.0, 2.0], [-2.0, 0.0], [-0.0, -2.0]]
    """
    angle = 2 * torch.pi * torch.arange(count, dtype=torch.float64) / count
    return radius * torch.stack([angle.cos(), angle.sin()], dim=-1)


def draw_flow(axes: Any, flow: Flow, paths: Float[np.ndarray, "start time 2"], *, extent: float) -> None:
    """Draw arrows of the flow's direction over a square, and solutions from their starts."""
    side = torch.linspace(-extent, extent, 19, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    with torch.no_grad():
        arrows = flow(grid)
    arrows = (arrows / arrows.norm(dim=-1, keepdim=True).clamp_min(1e-12)).numpy()
    options: dict[str, Any] = {"color": MUTED, "scale": 32, "width": 0.003, "pivot": "mid"}
    axes.quiver(grid[:, 0].numpy(), grid[:, 1].numpy(), arrows[:, 0], arrows[:, 1], **options)
    for index, path in enumerate(paths):
        color = SERIES[index % len(SERIES)]
        axes.plot(path[:, 0], path[:, 1], color=color, linestyle="solid", linewidth=1.2)
        axes.plot(path[:1, 0], path[:1, 1], "o", color=color, markersize=4)
    axes.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal")

"""Flows in the plane: their portraits, and a unit with two states that learns to swing as a pendulum does."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from sostenuto.data.tasks.pendulum import trajectories
from sostenuto.nn import LipschitzRNN
from sostenuto.nn.integrators import rk4
from sostenuto.report.palette import MUTED, SERIES

Flow = Callable[[Float[Tensor, "*batch 2"]], Float[Tensor, "*batch 2"]]


def swings(count: int, *, reach: float, duration: float, step: float, seed: int) -> Float64[Tensor, "swing time 2"]:
    """Draw starts evenly from the disk of radius ``reach`` and follow the frictionless pendulum from each.

    >>> swings(3, reach=1.0, duration=1.0, step=0.1, seed=0).shape
    torch.Size([3, 11, 2])
    """
    generator = torch.Generator().manual_seed(seed)
    radius = reach * torch.rand(count, generator=generator, dtype=torch.float64).sqrt()
    angle = 2 * torch.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    starts = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1)
    return torch.from_numpy(trajectories(starts.numpy(), step, round(duration / step)))


def two_units(beta: float, gamma: float, step: float) -> LipschitzRNN:
    """Make the unit h′ = Ah + tanh(Wh + b) of two states, in float64; its input, of one channel, is not used."""
    return LipschitzRNN(
        1,
        2,
        batch_first=True,
        step_size=step,
        beta=beta,
        gamma=gamma,
        integrator="rk4",
        dtype=torch.float64,
    )


def learn_swings(layer: LipschitzRNN, paths: Float64[Tensor, "swing time 2"], settings: Mapping[str, Any]) -> float:
    """Fit the states from each start to the pendulum's by Adam; return the root mean square error at the end."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=settings["learning_rate"])
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings["iterations"])
    silence = paths.new_zeros(len(paths), paths.shape[1] - 1, 1)
    error = paths.new_zeros(())
    for _ in range(settings["iterations"]):
        states, _ = layer(silence, paths[None, :, 0].contiguous())
        error = (states - paths[:, 1:]).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        rate.step()
    return float(error.detach().sqrt())


def silent_flow(layer: LipschitzRNN) -> Flow:
    """Return the vector field of the unit without input."""
    return lambda h: layer.vector_field(h, h.new_zeros(*h.shape[:-1], 1)).detach()


def lipschitz_flow(A: Float[Tensor, "*system 2 2"], W: Float[Tensor, "*system 2 2"]) -> Flow:  # noqa: N803
    """Return h′ = Ah + tanh(Wh), erichson2021's eq. (1) without input; of several systems, each for states of its own.

    >>> lipschitz_flow(-torch.eye(2), torch.zeros(2, 2))(torch.ones(3, 2))[0].tolist()
    [-1.0, -1.0]
    """
    return lambda h: h @ A.mT + torch.tanh(h @ W.mT)


@torch.no_grad()
def flow_trajectories(
    flow: Flow, starts: Float[Tensor, "*start 2"], *, duration: float, step: float
) -> Float[Tensor, "*start time 2"]:
    """Follow the solutions from ``starts`` by the classical Runge-Kutta method, the starts first.

    >>> path = flow_trajectories(lambda h: -h, torch.ones(1, 2, dtype=torch.float64), duration=1.0, step=0.1)
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

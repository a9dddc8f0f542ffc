"""Two units of a Lipschitz RNN that learn a pendulum's motion: angle and speed are their state."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from sostenuto.data.tasks.pendulum import trajectories
from sostenuto.experiments.tasks.planar_flows import Flow
from sostenuto.nn import LipschitzRNN


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
    """Give the vector field of the unit without input."""
    return lambda h: layer.vector_field(h, h.new_zeros(*h.shape[:-1], 1)).detach()

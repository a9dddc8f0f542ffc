"""The oscillator scan and its inverse in plain torch, the definition the kernels must agree with."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.step import over_time


def oscillator_scan_reference(
    x: Float[Tensor, "T B H"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    z: Float[Tensor, "B H"],
    *,
    timespans: Float[Tensor, "T B"] | None = None,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """Step the symplectic Euler map of rusch2021, eq. (6), one time after the other.

    The state is kept in the dtype of ``y``; inputs of lower precision are raised to it.
    """

    def advance(inputs: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (drive, *spans), (y, z) = inputs, now
        g = step * spans[0].to(step.dtype)[:, None] if spans else step
        z = z - g * (torch.tanh(weight * y + drive) + stiffness * y)
        return y + g * z, z

    inputs = (x.to(y.dtype),) if timespans is None else (x.to(y.dtype), timespans)
    outputs, (y, z) = over_time(advance, inputs, (y, z))
    return outputs, y, z


class Inverted(NamedTuple):
    """States found again: y and z after every step, the first state, and each column's largest |y| and |z|."""

    outputs: Float[Tensor, "T B H"]
    velocities: Float[Tensor, "T B H"] | None
    y: Float[Tensor, "B H"]
    z: Float[Tensor, "B H"]
    y_peak: Float[Tensor, "B H"]
    z_peak: Float[Tensor, "B H"]


def inverse_reference(
    x: Float[Tensor, "T B H"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    z: Float[Tensor, "B H"],
    timespans: Float[Tensor, "T B"] | None = None,
    velocities: bool = False,
) -> Inverted:
    """Step y ← y − g z, z ← z + g(tanh(w y + x_n) + αy) from the last state to the first (rusch2021, eq. (7)).

    >>> one = torch.ones(1, 1)
    >>> found = inverse_reference(torch.zeros(3, 1, 1), torch.ones(1), torch.zeros(1), 1.0, one, 2 * one)
    >>> float(found.y), float(found.z), found.outputs.shape
    (1.0, 2.0, torch.Size([3, 1, 1]))
    """
    ys, zs = [], []
    y_peak, z_peak = y.abs(), z.abs()
    for t in reversed(range(x.shape[0])):
        ys.append(y)
        zs.append(z)
        g = step if timespans is None else step * timespans[t].to(step.dtype)[:, None]
        y = y - g * z
        z = z + g * (torch.tanh(weight * y + x[t].to(y.dtype)) + stiffness * y)
        y_peak, z_peak = torch.maximum(y_peak, y.abs()), torch.maximum(z_peak, z.abs())
    return Inverted(torch.stack(ys[::-1]), torch.stack(zs[::-1]) if velocities else None, y, z, y_peak, z_peak)

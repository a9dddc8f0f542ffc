"""What the oscillator scan means, in plain torch: a loop whose gradients are autograd's."""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.over_time import over_time


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
    """Step the symplectic Euler map of paper 002, eq. (6), one time after the other.

    The state is kept in the dtype of ``y``; inputs of lower precision are raised to it.
    """

    def advance(given: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (drive, *spans), (y, z) = given, now
        g = step * spans[0].to(step.dtype)[:, None] if spans else step
        z = z - g * (torch.tanh(weight * y + drive) + stiffness * y)
        return y + g * z, z

    given = (x.to(y.dtype),) if timespans is None else (x.to(y.dtype), timespans)
    outputs, (y, z) = over_time(advance, given, (y, z))
    return outputs, y, z

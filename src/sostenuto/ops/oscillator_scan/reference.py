"""What the oscillator scan means, in plain torch: a loop whose gradients are autograd's."""

import torch
from jaxtyping import Float
from torch import Tensor


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
    outputs = []
    for t, drive in enumerate(x.to(y.dtype).unbind(0)):
        g = step if timespans is None else step * timespans[t].to(step.dtype)[:, None]
        z = z - g * (torch.tanh(weight * y + drive) + stiffness * y)
        y = y + g * z
        outputs.append(y)
    return torch.stack(outputs), y, z

"""What the diagonal scans mean, in plain torch: loops whose gradients are autograd's."""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.activation import activate
from sostenuto.ops.step import over_time


def diagonal_scan_reference(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B H"],
    weight: Float[Tensor, " H"],
    linear: Float[Tensor, " H"],
    gain: Float[Tensor, " H"],
    *,
    activation: str = "tanh",
    threshold: Float[Tensor, " H"] | None = None,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"]]:
    """Step h ← p⊙h + q⊙σ(w⊙h + z_t), one time after the other.

    The state is kept in the dtype of ``start``; inputs of lower precision are raised to it.
    """

    def step(drives: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (drive,), (state,) = drives, now
        return (linear * state + gain * activate(weight * state + drive, activation, threshold),)

    states, (last,) = over_time(step, (inputs.to(start.dtype),), (start,))
    return states, last


def gated_scan_reference(
    inputs: Float[Tensor, "T B H"],
    candidates: Float[Tensor, "T B H"],
    start: Float[Tensor, "B H"],
    weight: Float[Tensor, " H"],
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"]]:
    """Step f = logistic(w⊙c + a_t), c ← f⊙c + (1 − f)⊙x̃_t, one time after the other."""

    def step(inputs: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (drive, candidate), (state,) = inputs, now
        gate = torch.sigmoid(weight * state + drive)
        return (candidate + gate * (state - candidate),)

    states, (last,) = over_time(step, (inputs.to(start.dtype), candidates.to(start.dtype)), (start,))
    return states, last

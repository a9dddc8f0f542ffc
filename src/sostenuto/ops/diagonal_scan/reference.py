"""What the diagonal scans mean, in plain torch: loops whose gradients are autograd's."""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.activation import activate


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
    state, states = start, []
    for drive in inputs.to(start.dtype).unbind(0):
        state = linear * state + gain * activate(weight * state + drive, activation, threshold)
        states.append(state)
    return torch.stack(states), state


def gated_scan_reference(
    inputs: Float[Tensor, "T B H"],
    candidates: Float[Tensor, "T B H"],
    start: Float[Tensor, "B H"],
    weight: Float[Tensor, " H"],
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"]]:
    """Step f = logistic(w⊙c + a_t), c ← f⊙c + (1 − f)⊙x̃_t, one time after the other."""
    state, states = start, []
    for drive, candidate in zip(inputs.to(start.dtype), candidates.to(start.dtype), strict=True):
        gate = torch.sigmoid(weight * state + drive)
        state = candidate + gate * (state - candidate)
        states.append(state)
    return torch.stack(states), state

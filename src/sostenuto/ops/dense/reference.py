"""What the dense scan means, in plain torch: a loop whose gradients are autograd's."""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.activation import activate
from sostenuto.ops.step import over_time


def dense_scan_reference(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    weight: Float[Tensor, "H S"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "S H"] | Float[Tensor, " k"],
    *,
    activation: str = "tanh",
    threshold: Float[Tensor, " H"] | None = None,
) -> tuple[Float[Tensor, "T B S"], Float[Tensor, "B S"]]:
    """Step h ← P h + Q σ(W h + z_t), one time after the other.

    The state is kept in the dtype of ``start``; inputs of lower precision are raised to it.
    """
    # Outside of the step, which may not see a matrix and its transpose where a graph for ONNX is made.
    is_full, has_gains = linear.shape[0] == start.shape[-1], gain.ndim == 2
    entering, passing, leaving = weight.mT, linear.mT if is_full else linear, gain.mT if has_gains else gain

    def step(drives: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (drive,), (state,) = drives, now
        activated = activate(state @ entering + drive, activation, threshold)
        kept = state @ passing if is_full else _mixed(state, passing)
        return (kept + (activated @ leaving if has_gains else _scaled(activated, leaving)),)

    states, (last,) = over_time(step, (inputs.to(start.dtype),), (start,))
    return states, last


def _mixed(state: Tensor, coefficients: Tensor) -> Tensor:
    """Return P h for coefficients between the components that stand side by side in h."""
    return (coefficients @ state.unflatten(-1, (coefficients.shape[0], -1))).flatten(-2)


def _scaled(activated: Tensor, gain: Tensor) -> Tensor:
    """Return Q u for one coefficient a component."""
    return torch.cat([each * activated for each in gain.split(1)], dim=-1) if len(gain) > 1 else gain * activated

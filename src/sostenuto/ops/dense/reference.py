"""What the dense scan means, in plain torch: a loop whose gradients are autograd's."""

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

    def step(drives: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (drive,), (state,) = drives, now
        activated = activate(state @ weight.mT + drive, activation, threshold)
        return (_linear_part(state, linear) + _gained(activated, gain),)

    states, (last,) = over_time(step, (inputs.to(start.dtype),), (start,))
    return states, last


def _linear_part(state: Tensor, linear: Tensor) -> Tensor:
    """Return P h: a full matrix on all of h, or coefficients between the components that stand side by side in it."""
    if linear.shape[0] == state.shape[-1]:
        return state @ linear.mT
    parts = state.unflatten(-1, (linear.shape[0], -1))
    return (linear @ parts).flatten(-2)


def _gained(activated: Tensor, gain: Tensor) -> Tensor:
    """Return Q u: a full matrix, or one coefficient a component."""
    if gain.ndim == 2:
        return activated @ gain.mT
    return (gain[:, None] * activated[..., None, :]).flatten(-2)

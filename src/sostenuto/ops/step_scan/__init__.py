"""The scan of any step function: for recurrences that have no fused kernel, by a recorded choice."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.over_time import over_time

States = tuple[Float[Tensor, "B H"], ...]
Step = Callable[[Float[Tensor, "B G"], States, Float[Tensor, "B 1"] | float], States]


def step_scan(
    x: Float[Tensor, "T B G"],
    state: States,
    step: Step,
    *,
    timespans: Float[Tensor, "T B"] | None = None,
    scale: float = 1.0,
) -> tuple[Float[Tensor, "T B H"], States]:
    """Apply ``state ← step(x_t, state, scale · timespan_t)`` over time; return the first component at every step.

    Inputs of lower precision are raised to the state's.

    >>> import torch
    >>> run = lambda x_t, state, span: (state[0] + span * x_t,)
    >>> outputs, last = step_scan(torch.ones(4, 1, 1), (torch.zeros(1, 1),), run, scale=0.5)
    >>> outputs.flatten().tolist()
    [0.5, 1.0, 1.5, 2.0]
    """
    dtype = state[0].dtype

    def advance(given: tuple[Tensor, ...], now: States) -> States:
        x_t, *spans = given
        return step(x_t, now, scale * spans[0].to(dtype)[:, None] if spans else scale)

    return over_time(advance, (x.to(dtype),) if timespans is None else (x.to(dtype), timespans), state)

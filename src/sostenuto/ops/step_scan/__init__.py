"""The scan of any step function: for recurrences that have no fused kernel, by a recorded choice."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

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

    >>> run = lambda x_t, state, span: (state[0] + span * x_t,)
    >>> outputs, last = step_scan(torch.ones(4, 1, 1), (torch.zeros(1, 1),), run, scale=0.5)
    >>> outputs.flatten().tolist()
    [0.5, 1.0, 1.5, 2.0]
    """
    outputs = []
    for t, x_t in enumerate(x.to(state[0].dtype).unbind(0)):
        span = scale if timespans is None else scale * timespans[t].to(state[0].dtype)[:, None]
        state = step(x_t, state, span)
        outputs.append(state[0])
    return torch.stack(outputs), state

"""The loop over time of every reference: a Python loop, or torch's scan operator where a graph for ONNX is made."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.dispatch import in_onnx_export

States = tuple[Float[Tensor, "B _"], ...]
Inputs = tuple[Float[Tensor, "..."], ...]


def over_time(
    step: Callable[[Inputs, States], States], inputs: tuple[Float[Tensor, "T ..."], ...], state: States
) -> tuple[Float[Tensor, "T B _"], States]:
    """Apply ``state ← step(inputs_t, state)`` over time; return the first component at every step, and the last state.

    In a graph for ONNX it is one operator, Scan, so that one file serves every length.

    >>> outputs, _ = over_time(lambda x, h: (h[0] + x[0],), (torch.ones(3, 1, 1),), (torch.zeros(1, 1),))
    >>> outputs.flatten().tolist()
    [1.0, 2.0, 3.0]
    """
    if in_onnx_export():
        return _as_operator(step, inputs, state)
    outputs = []
    for inputs_t in zip(*(values.unbind(0) for values in inputs), strict=True):
        state = step(inputs_t, state)
        outputs.append(state[0])
    return torch.stack(outputs), state


def _as_operator(
    step: Callable[[Inputs, States], States], inputs: tuple[Tensor, ...], state: States
) -> tuple[Tensor, States]:
    from torch._higher_order_ops.scan import scan

    def combine(now: States, inputs_t: Inputs) -> tuple[States, Tensor]:
        after = step(inputs_t, now)
        return after, after[0].clone()  # results may not share memory

    # Neither may what goes in: views of one tensor, as `unbind` gives, would. Widths that differ from one layer to the
    # next are sizes of their own, and no examples of one that is unknown.
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False, assume_static_by_default=True):
        last, outputs = scan(combine, *(tuple(part.clone() for part in parts) for parts in (state, inputs)))
    return outputs, last


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

    def advance(inputs: tuple[Tensor, ...], now: States) -> States:
        x_t, *spans = inputs
        return step(x_t, now, scale * spans[0].to(dtype)[:, None] if spans else scale)

    return over_time(advance, (x.to(dtype),) if timespans is None else (x.to(dtype), timespans), state)

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

    last, outputs = scan(combine, tuple(part.contiguous() for part in state), inputs)
    return outputs, last

"""The input map and the dense scan as one differentiable function, for eager code on the CPU.

A recorded backward pass (``create_graph=True``) differentiates the reference.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sostenuto.ops.dense_scan.reference import dense_scan_reference
from sostenuto.ops.dispatch import run_adjoint


class DrivenScan(torch.autograd.Function):
    """Call ``apply(x, matrix, bias, start, weight, linear, gain, activation)``; returns every state."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Project and scan; keep σ where a gradient may be asked for."""
        from sostenuto.ops.dense_scan import cpu

        x, matrix, bias, start, weight, linear, gain, activation = inputs
        ctx.activation = activation
        ctx.set_materialize_grads(False)
        keep = any(ctx.needs_input_grad)
        states, _, risen = cpu.forward(x, start, weight, linear, gain, None, activation, "exact", keep, matrix, bias)
        ctx.save_for_backward(x, matrix, bias, start, weight, linear, gain, states, risen)
        return states

    @staticmethod
    def backward(ctx: Any, *arriving: Any) -> Any:
        """Run the adjoint, through the input map too."""
        (d_states,) = arriving
        if d_states is None:
            return (None,) * 8
        if torch.is_grad_enabled():
            return *_recorded(ctx, d_states), None
        from sostenuto.ops.dense_scan import cpu

        x, matrix, bias, start, weight, linear, gain, states, risen = ctx.saved_tensors
        if d_states.stride(0) == 0:
            d_states = d_states[:1]  # the same at every step, as where outputs are summed
        needed = ctx.needs_input_grad
        found = run_adjoint(
            cpu.backward_to_input, x, matrix, start, weight, linear, gain, ctx.activation, states, risen,
            d_states.contiguous(), torch.zeros_like(start), (needed[0], needed[5] or needed[6]),
        )  # fmt: skip
        kept = (one if need and given is not None else None for one, need, given in zip(
            found, needed, (x, matrix, bias, start, weight, linear, gain), strict=False
        ))  # fmt: skip
        return *kept, None


def _recorded(ctx: Any, d_states: Tensor) -> tuple[Tensor | None, ...]:
    """Differentiate the reference, keeping the graph, so that the gradient can be differentiated again."""
    x, matrix, bias, *system = inputs = ctx.saved_tensors[:7]
    states, _ = dense_scan_reference(F.linear(x, matrix, bias), *system, activation=ctx.activation)
    wanted = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]
    found = iter(torch.autograd.grad(states, wanted, d_states, create_graph=True, allow_unused=True))
    return tuple(next(found) if tensor is not None and tensor.requires_grad else None for tensor in inputs)

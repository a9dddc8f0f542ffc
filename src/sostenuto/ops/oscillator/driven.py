"""The input map and the scan as one differentiable function, for eager code on the CPU.

One function knows more than two: a drive of few channels is never written to memory, large buffers are used again, a
gradient that is missing or the same for all steps is not spread out, and the bias's gradient is summed on the way. A
recorded backward pass (``create_graph=True``) differentiates the reference.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sostenuto.ops._cpu.workspace import product
from sostenuto.ops.dispatch import run_adjoint
from sostenuto.ops.oscillator.reference import oscillator_scan_reference

FUSED_CHANNELS = 8
"""Up to so many input channels the drive is computed inside the scan, in both passes; above, by one product."""


class DrivenScan(torch.autograd.Function):
    """Call ``apply(x, matrix, bias, weight, step, stiffness, y, z, timespans)``; returns every y, the last y and z."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Project and scan; keep the drive only where it was written."""
        from sostenuto.ops.oscillator.cpu import scan as cpu

        x, matrix, bias, weight, step, stiffness, y, z, timespans = inputs
        if _is_fused(x):
            drive = None
            outputs, last = cpu.forward(x, weight, step, stiffness, y, z, timespans, input_map=(matrix, bias))
        else:
            drive = product(x, matrix, bias, y.dtype)
            outputs, last = cpu.forward(drive, weight, step, stiffness, y, z, timespans)
        ctx.stiffness = stiffness
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, matrix, bias, weight, step, y, z, timespans, outputs, last, drive)
        return outputs, outputs[-1].clone(), last

    @staticmethod
    def backward(ctx: Any, *arriving: Any) -> Any:
        """Run the adjoint and hand its gradient through the input map."""
        if torch.is_grad_enabled():
            return _recorded(ctx, arriving)
        from sostenuto.ops.oscillator.cpu import scan as cpu

        x, matrix, bias, weight, step, y, _, timespans, outputs, last, drive = ctx.saved_tensors
        wants_x, wants_matrix = ctx.needs_input_grad[:2]
        fused = _is_fused(x)

        def adjoint(d_outputs: Tensor | None, d_end: Tensor | None, d_last: Tensor | None) -> tuple[Any, ...]:
            found = cpu.backward(
                *(x if fused else drive, weight, step, ctx.stiffness, y, outputs, last, timespans, d_outputs, d_last),
                d_end=d_end,
                input_map=(matrix, bias) if fused else None,
                wants_x=wants_x or (wants_matrix and not fused),
                wants_bias=bias is not None,
            )
            d_matrix = found.weight_ih
            if wants_matrix and not fused and found.x is not None:
                d_matrix = found.x.flatten(0, 1).T @ x.to(y.dtype).reshape(-1, x.shape[2])
            d_x = (found.x @ matrix.to(y.dtype)).to(x.dtype) if wants_x and found.x is not None else None
            return d_x, d_matrix, found.bias, *found[1:3], None, *found[3:5], None

        return run_adjoint(adjoint, *arriving)


def _is_fused(x: Tensor) -> bool:
    return x.shape[2] <= FUSED_CHANNELS


def _recorded(ctx: Any, arriving: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Differentiate the reference, keeping the graph, so that the gradient can be differentiated again."""
    x, matrix, bias, weight, step, y, z, timespans, *_ = ctx.saved_tensors
    drive = F.linear(x.to(matrix.dtype), matrix, bias)
    results = oscillator_scan_reference(drive, weight, step, ctx.stiffness, y, z, timespans=timespans)
    inputs = (x, matrix, bias, weight, step, None, y, z, None)
    wanted = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]
    used = [(result, gradient) for result, gradient in zip(results, arriving, strict=True) if gradient is not None]
    roots, gradients = zip(*used, strict=True)
    found = iter(torch.autograd.grad(roots, wanted, gradients, create_graph=True, allow_unused=True))
    return tuple(next(found) if tensor is not None and tensor.requires_grad else None for tensor in inputs)

"""All layers of oscillators as one differentiable function, for eager code on the CPU.

A recorded backward pass (``create_graph=True``) differentiates the layers one by one, as the reference defines them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sostenuto.ops.oscillator_stack.autograd import stored_stack
from sostenuto.ops.oscillator_stack.cell import Cell

_FIELDS = len(Cell._fields)


class TiledLayers(torch.autograd.Function):
    """Call ``apply(stiffness, keep, timespans, x, y, z, *tensors)`` with the cells' fields one after the other.

    Returns the top layer's outputs and the last y and z of all layers. Without ``keep`` there is no way back.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Run all tiles; keep what the way back needs."""
        from sostenuto.ops.oscillator_tiles import sweep

        stiffness, keep, timespans, x, y, z, *tensors = inputs
        drive = x.to(y.dtype)
        top, y_end, trace = sweep.forward(drive, _cells(tensors), stiffness, y, z, timespans, keep=keep)
        ctx.stiffness = stiffness
        ctx.set_materialize_grads(False)
        if keep:
            ctx.save_for_backward(timespans, x, y, z, *tensors, top, *trace)
        return top, y_end, trace.last

    @staticmethod
    def backward(ctx: Any, *arriving: Any) -> Any:
        """Run the adjoint of all tiles."""
        timespans, x, y, z, *tensors, top, kept, risen, last = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            found = _recorded(ctx.stiffness, timespans, (x, y, z, *tensors), arriving)
        else:
            from sostenuto.ops.oscillator_tiles import sweep

            trace = sweep.Trace(kept, risen, last)
            given = (x.to(y.dtype), _cells(tensors), ctx.stiffness, y, timespans, top, trace)
            gradients = sweep.backward(*given, *arriving, input_gradient=wanted[0])
            found = _listed(gradients, x)
        return None, None, None, *(g if want else None for g, want in zip(found, wanted, strict=True))


def _listed(found: Any, x: Tensor) -> list[Tensor | None]:
    """List the gradients in the order of the function's tensors; a mask and what is skipped have none."""
    d_x = None if found.x is None else found.x.to(x.dtype)
    listed: list[Tensor | None] = [d_x, found.y, found.z]
    for layer, matrix in enumerate(found.matrices):
        listed += [matrix, found.bias[layer], None, found.weight[layer], found.step[layer], None]
    return listed


def _recorded(
    stiffness: float, timespans: Tensor | None, inputs: tuple[Tensor | None, ...], arriving: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Differentiate the layers one by one, keeping the graph, so that the gradient can be differentiated again."""
    x, y, z, *tensors = inputs
    assert x is not None
    assert y is not None
    assert z is not None
    results = stored_stack(x.to(y.dtype), _cells(tensors), stiffness, y, z, timespans=timespans)
    used = [(result, d) for result, d in zip(results, arriving, strict=True) if d is not None]
    wanted = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]
    roots, weights = zip(*used, strict=True)
    found = iter(torch.autograd.grad(roots, wanted, weights, create_graph=True, allow_unused=True))
    return [next(found) if tensor is not None and tensor.requires_grad else None for tensor in inputs]


def _cells(tensors: Sequence[Any]) -> list[Cell]:
    return [Cell(*tensors[start : start + _FIELDS]) for start in range(0, len(tensors), _FIELDS)]

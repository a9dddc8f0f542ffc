"""All layers of oscillators as one differentiable function, for eager code on the CPU.

A recorded backward pass (``create_graph=True``) differentiates the layers one by one, as the reference defines them.
"""

from typing import Any

import torch
from torch import Tensor

from sostenuto.ops.oscillator_stack.autograd import recorded_gradients, stored_stack
from sostenuto.ops.oscillator_stack.cell import cells_of


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
        wanted = {"keep": keep, "input_gradient": ctx.needs_input_grad[3]}
        top, y_end, trace, layers = sweep.forward(drive, cells_of(tensors), stiffness, y, z, timespans, **wanted)
        ctx.stiffness = stiffness
        ctx.set_materialize_grads(False)
        if keep:
            ctx.layers = layers  # copies; that no weight has changed since is checked where the saved ones are unpacked
            ctx.save_for_backward(timespans, x, y, z, *tensors, top, *trace)
        return top, y_end, trace.last

    @staticmethod
    def backward(ctx: Any, *arriving: Any) -> Any:
        """Run the adjoint of all tiles."""
        timespans, x, y, z, *tensors, top, kept, risen, last = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            results = stored_stack(x.to(y.dtype), cells_of(tensors), ctx.stiffness, y, z, timespans=timespans)
            found = recorded_gradients(results, (x, y, z, *tensors), arriving)
        else:
            from sostenuto.ops.oscillator_tiles import sweep

            trace = sweep.Trace(kept, risen, last)
            given = (ctx.layers, x.to(y.dtype), y, top, trace)
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

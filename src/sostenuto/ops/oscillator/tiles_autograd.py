"""All layers of oscillators as one differentiable function, for eager code on the CPU.

A recorded backward pass (``create_graph=True``) differentiates the layers one by one, as the reference defines them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sostenuto.ops.dispatch import recorded_gradients, run_adjoint
from sostenuto.ops.oscillator.cell import Cell, cells_of, with_masks
from sostenuto.ops.oscillator.stack_autograd import stored_stack


@dataclass(frozen=True)
class TilePlan:
    """What is asked of all tiles: whether a backward pass, whether the largest outputs, and what a cell's step means.

    Without ``step_sizes`` it is g. With one Δt for each layer it is c, and g = Δt·σ̂(c) is made where the weights are
    laid out: as operations of their own, three layers' steps took as long as all of that. ``masks`` of all layers but
    the top one, in one tensor, take the place of the cells' own.
    """

    stiffness: float
    keep: bool
    peak: bool
    step_sizes: tuple[float, ...] | None
    masks: Tensor | None

    def stepped(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """Give the cells with the steps g, differentiably, and their masks."""
        cells = with_masks(cells, self.masks)
        if self.step_sizes is None:
            return cells
        return [
            cell._replace(step=size * torch.sigmoid(cell.step))
            for cell, size in zip(cells, self.step_sizes, strict=True)
        ]


class TiledLayers(torch.autograd.Function):
    """Call ``apply(plan, timespans, x, y, z, *tensors)`` with the cells' fields one after the other.

    Returns the top layer's outputs, or the largest of each unit over time, and the last y and z of all layers.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Run all tiles; keep what the backward pass needs."""
        from sostenuto.ops.oscillator import tiles_sweep as sweep

        plan, timespans, x, y, z, *tensors = inputs
        wanted = {"keep": plan.keep, "input_gradient": ctx.needs_input_grad[2], "peak": plan.peak}
        given = x.to(y.dtype), cells_of(tensors), plan.stiffness, y, z, timespans, plan.step_sizes, plan.masks
        y_end, trace, peaks, layers = sweep.forward(*given, **wanted)
        ctx.plan = plan
        ctx.set_materialize_grads(False)
        if plan.keep:
            ctx.layers = layers  # copies; that no weight has changed since is checked where the saved ones are unpacked
            ctx.save_for_backward(timespans, x, y, z, *tensors, *trace, *peaks)
        return peaks.largest if plan.peak else trace.top, y_end, trace.last

    @staticmethod
    def backward(ctx: Any, *arriving: Any) -> Any:
        """Run the adjoint of all tiles."""
        timespans, x, y, z, *tensors, kept, activated, last, top, largest, holders = ctx.saved_tensors
        wanted, plan = ctx.needs_input_grad[2:], ctx.plan
        if torch.is_grad_enabled():
            cells = plan.stepped(cells_of(tensors))
            outputs, *ends = stored_stack(x.to(y.dtype), cells, plan.stiffness, y, z, timespans=timespans)
            results = outputs.amax(0) if plan.peak else outputs, *ends
            found = recorded_gradients(results, (x, y, z, *tensors), arriving)
        else:
            from sostenuto.ops.oscillator import tiles_sweep as sweep

            peaks = sweep.Peaks(largest, holders) if plan.peak else None
            given = (ctx.layers, x.to(y.dtype), y, sweep.Trace(kept, activated, last, top), peaks)
            asked = {"input_gradient": wanted[0], "state_gradients": wanted[1] or wanted[2]}
            found = run_adjoint(lambda *arriving: _listed(sweep.backward(*given, *arriving, **asked), x), *arriving)
        return None, None, *(g if want else None for g, want in zip(found, wanted, strict=True))


def _listed(found: Any, x: Tensor) -> list[Tensor | None]:
    """List the gradients in the order of the function's tensors; a mask and what is skipped have none."""
    d_x = None if found.x is None else found.x.to(x.dtype)
    listed: list[Tensor | None] = [d_x, found.y, found.z]
    for layer, matrix in enumerate(found.matrices):
        listed += [matrix, found.bias[layer], None, found.weight[layer], found.step[layer], None]
    return listed

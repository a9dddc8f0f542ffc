"""The whole stack as one differentiable function that keeps the input, the weights and the states between chunks."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.dispatch import recorded_gradients, run_adjoint
from sostenuto.ops.oscillator.cell import Cell, Plan, cells_of
from sostenuto.ops.oscillator.scan import oscillator_scan
from sostenuto.ops.oscillator.stack_sweep import CellGradients, advance, chunk_adjoint, reconstruct


class OscillatorStack(torch.autograd.Function):
    """Call ``apply(plan, timespans, x, y, z, *tensors)`` with the cells' fields one after the other.

    Returns the top layer's outputs and the last y and z of all layers. A backward pass that is itself recorded
    (``create_graph=True``) differentiates the stored stack instead.
    """

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, timespans: Tensor | None, x: Tensor, y: Tensor, z: Tensor, *tensors: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run chunk by chunk through all layers."""
        cells = cells_of(tensors)
        borders = plan.borders(x.shape[0])
        kept = y.new_empty(
            (1 + len(borders), 2, *y.shape)
        )  # at once: between large buffers small ones hold much memory
        kept[0, 0], kept[0, 1] = y, z
        outputs = y.new_empty((x.shape[0] if plan.outputs else 0, x.shape[1], y.shape[-1]))
        if plan.tiles:
            from sostenuto.ops.oscillator.retrace import advance_chunks

            advance_chunks(x.to(y.dtype), cells, plan, timespans, kept, outputs if plan.outputs else None)
            borders = []
        for index, (start, stop) in enumerate(borders):
            states = kept[index, 0], kept[index, 1]
            for low, high in plan.pieces(start, stop, y[0].nbytes):
                target = outputs[low:high] if plan.outputs else None
                states = advance(plan, cells, x[low:high], _cut(timespans, low, high), states, target)
            kept[index + 1, 0], kept[index + 1, 1] = states
        ctx.plan = plan
        ctx.autocast = _autocast(x.device.type)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(timespans, x, y, z, *tensors, kept)
        if not plan.outputs:
            ctx.mark_non_differentiable(outputs)
        return outputs, kept[-1, 0].clone(), kept[-1, 1].clone()

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor | None) -> tuple[Any, ...]:
        """Walk the chunks in reverse time, finding each one's states again before its adjoint."""
        timespans, x, y, z, *tensors, kept = ctx.saved_tensors
        with torch.autocast(**ctx.autocast):
            if torch.is_grad_enabled():
                gradients = _recorded(ctx.plan, timespans, (x, y, z, *tensors), arriving)
            else:
                sweep = _backward_by_tiles if ctx.plan.tiles else _backward_by_chunks
                inputs = ctx.plan, timespans, x, cells_of(tensors), kept
                gradients = run_adjoint(lambda *d: sweep(*inputs, d, ctx.needs_input_grad[2]), *arriving)
        wanted = ctx.needs_input_grad[2:]
        return None, None, *(g if want else None for g, want in zip(gradients, wanted, strict=True))


def _backward_by_chunks(
    plan: Plan,
    timespans: Tensor | None,
    x: Tensor,
    cells: list[Cell],
    kept: Tensor,
    arriving: Sequence[Tensor | None],
    input_gradient: bool,
) -> list[Tensor | None]:
    d_outputs, d_y, d_z = arriving
    states = [(pair[0], pair[1]) for pair in kept]
    ends = [torch.zeros_like(part) if d is None else d for part, d in zip(states[-1], (d_y, d_z), strict=True)]
    cotangents = list(zip(ends[0].unbind(0), ends[1].unbind(0), strict=True))
    sums = [CellGradients(cell) for cell in cells]
    d_x = torch.empty_like(x) if input_gradient else None
    plan.drift.worst[:], plan.drift.restarted = [0.0] * len(cells), 0
    for index, (start, stop) in reversed(list(enumerate(plan.borders(x.shape[0])))):
        spans, first = _cut(timespans, start, stop), states[index]
        chunk = reconstruct(plan, cells, x[start:stop], spans, first, states[index + 1])
        above = _cut(d_outputs, start, stop)
        d_input = chunk_adjoint(plan, cells, chunk, spans, first, above, cotangents, sums, input_gradient)
        if d_x is not None and d_input is not None:
            d_x[start:stop] = d_input
        del chunk, d_input
    weights = [gradient for total, cell in zip(sums, cells, strict=True) for gradient in total.of(cell)]
    y_bar, z_bar = (torch.stack(parts) for parts in zip(*cotangents, strict=True))
    return [d_x, y_bar, z_bar, *weights]


def _backward_by_tiles(
    plan: Plan,
    timespans: Tensor | None,
    x: Tensor,
    cells: list[Cell],
    kept: Tensor,
    arriving: Sequence[Tensor | None],
    input_gradient: bool,
) -> list[Tensor | None]:
    from sostenuto.ops.oscillator.retrace import sweep_back

    gradients = sweep_back(x.to(kept.dtype), cells, plan, timespans, kept, arriving, input_gradient)
    listed: list[Tensor | None] = [None if gradients.x is None else gradients.x.to(x.dtype), gradients.y, gradients.z]
    for layer, matrix in enumerate(gradients.matrices):
        listed += [matrix, gradients.bias[layer], None, gradients.weight[layer], gradients.step[layer], None]
    return listed


def stored_stack(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    stiffness: float,
    y: Float[Tensor, "L B H"],
    z: Float[Tensor, "L B H"],
    *,
    skip: int = 0,
    timespans: Float[Tensor, "T B"] | None = None,
    backend: str = "auto",
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "L B H"], Float[Tensor, "L B H"]]:
    """Run the stack layer by layer through `oscillator_scan`, every state kept: what the recomputing one must equal."""
    below, ends = [x], []
    for cell, y_start, z_start in zip(cells, y, z, strict=True):
        drive = cell.drive(below, skip)
        weights = cell.weight_hh, cell.step
        ys, *end = oscillator_scan(drive, *weights, stiffness, y_start, z_start, timespans=timespans, backend=backend)
        ends.append(end)
        below.append(cell.upward(ys))
    y_end, z_end = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return below[-1], y_end, z_end


def _recorded(
    plan: Plan, timespans: Tensor | None, inputs: tuple[Tensor | None, ...], arriving: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Differentiate the stored stack, keeping the graph."""
    x, y, z, *tensors = inputs
    options: Any = {"skip": plan.skip, "timespans": timespans, "backend": plan.backend}
    given: Any = (x, cells_of(tensors), plan.stiffness, y, z)
    return recorded_gradients(stored_stack(*given, **options), inputs, arriving)


def _cut(values: Tensor | None, start: int, stop: int) -> Tensor | None:
    return None if values is None else values[start:stop]


def _autocast(device: str) -> dict[str, Any]:
    """Remember the mixed precision of the forward pass, so that the drives come out the same again."""
    if not torch.amp.is_autocast_available(device):
        return {"device_type": "cpu", "enabled": False}
    return {
        "device_type": device,
        "dtype": torch.get_autocast_dtype(device),
        "enabled": torch.is_autocast_enabled(device),
    }

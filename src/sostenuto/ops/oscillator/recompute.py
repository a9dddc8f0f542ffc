"""Layers of oscillators that recompute their states in the backward pass, by the inverse, instead of keeping them.

Time is cut into chunks; the input, the weights and the states between chunks are kept. The backward pass finds the
states of a chunk again from its last ones, compares the first ones with those kept, and runs the adjoint. One of two
sweeps does a chunk's work: by tiles through all layers at once, or layer by layer through the scan.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_count, check_positive
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.dispatch import in_forward_mode, recorded_gradients, run_adjoint, runs_eagerly
from sostenuto.ops.oscillator.cell import Cell, cells_of, with_steps
from sostenuto.ops.oscillator.chunks import Drift, Plan
from sostenuto.ops.oscillator.layer_sweep import LayerSweep, invert_layer
from sostenuto.ops.oscillator.scan import scan_layers
from sostenuto.ops.oscillator.tiles import takes_tiles

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
"""Relative error of a chunk's reconstructed first state above which the chunk is run forwards again."""
CHUNK = 2.0
"""Steps of a chunk over √T: the states kept between chunks and the chunk swept are then both small."""


class StackResult(NamedTuple):
    """The top layer's outputs, the last state of all layers, and the record of drift (None where nothing is redone).

    Where no outputs were asked for there are those of no step.
    """

    outputs: Float[Tensor, "T B H"]
    y: Float[Tensor, "L B H"]
    z: Float[Tensor, "L B H"]
    drift: Drift | None


def oscillator_stack(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    stiffness: float,
    y: Float[Tensor, "L B H"],
    z: Float[Tensor, "L B H"],
    *,
    skip: int = 0,
    timespans: Float[Tensor, "T B"] | None = None,
    backend: str = "auto",
    chunk: int | None = None,
    outputs: bool = True,
) -> StackResult:
    """Run layers of oscillators on each other; keep only ``x``, the weights and the states between chunks.

    The backward pass inverts each chunk from its last states (rusch2021, eq. (7)) and compares the first ones with
    those kept; past `TOLERANCE` it runs the chunk forwards from the kept ones, so the gradient is right either way.
    ``chunk`` is 2√T unless given. Gradients of ``timespans``, forward-mode derivatives, torch.func, a graph being
    compiled (what is done here depends on the drift found) and an empty batch take `scan_layers`, and ``drift`` is
    then None. Without ``outputs`` those of a chunk are forgotten after it.

    >>> cell = Cell(torch.ones(2, 1), None, None, torch.ones(2), torch.full((2,), 0.1), None)
    >>> x, zero = torch.ones(9, 1, 1, requires_grad=True), torch.zeros(1, 1, 2)
    >>> result = oscillator_stack(x, [cell], 1.0, zero, zero)
    >>> result.outputs.sum().backward()
    >>> result.outputs.shape, result.drift.chunks, result.drift.restarted
    (torch.Size([9, 1, 2]), 2, 0)
    """
    differentiable_spans = timespans is not None and timespans.requires_grad
    if differentiable_spans or y.numel() == 0 or not runs_eagerly() or in_forward_mode(x, y, z):
        every, y, z = scan_layers([x], cells, stiffness, y, z, skip=skip, timespans=timespans, backend=backend)
        return StackResult(every if outputs else every[:0], y, z, None)
    plan = _plan(x.shape[0], len(cells), stiffness, y, skip=skip, backend=backend, chunk=chunk)
    tiles = takes_tiles(x, cells, y, z, timespans=timespans, backend=backend)
    plan = replace(plan, tiles=tiles, outputs=outputs)
    tensors = [field for cell in cells for field in cell]
    result: Any = OscillatorStack.apply(plan, timespans, x, y, z, *tensors)
    every, y, z = result
    return StackResult(every, y, z, plan.drift)


class OscillatorStack(torch.autograd.Function):
    """Call ``apply(plan, timespans, x, y, z, *tensors)`` with the cells' fields one after the other.

    Returns the top layer's outputs and the last y and z of all layers. A backward pass that is itself recorded
    (``create_graph=True``) differentiates `scan_layers` instead.
    """

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, timespans: Tensor | None, x: Tensor, y: Tensor, z: Tensor, *tensors: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run chunk by chunk through all layers."""
        borders = plan.borders(x.shape[0])
        kept = y.new_empty(
            (1 + len(borders), 2, *y.shape)
        )  # at once: between large buffers small ones hold much memory
        kept[0, 0], kept[0, 1] = y, z
        outputs = y.new_empty((x.shape[0] if plan.outputs else 0, x.shape[1], y.shape[-1]))
        sweep = _sweep(plan, cells_of(tensors), x, timespans)
        for index, (start, stop) in enumerate(borders):
            out = outputs[start:stop] if plan.outputs else None
            sweep.advance(start, stop, *(kept[place].unbind() for place in (index, index + 1)), out)
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
        plan, wanted = ctx.plan, ctx.needs_input_grad[2:]
        with torch.autocast(**ctx.autocast):
            if torch.is_grad_enabled():
                options: Any = {"skip": plan.skip, "timespans": timespans, "backend": plan.backend}
                results = scan_layers([x], cells_of(tensors), plan.stiffness, y, z, **options)
                gradients = recorded_gradients(results, (x, y, z, *tensors), arriving)
            else:
                sweep = _sweep(plan, cells_of(tensors), x, timespans)
                gradients = run_adjoint(lambda *d: _sweep_back(plan, sweep, kept, d, wanted[0]), *arriving)
        return None, None, *(g if want else None for g, want in zip(gradients, wanted, strict=True))


def _sweep_back(
    plan: Plan, sweep: Any, kept: Tensor, arriving: Sequence[Tensor | None], input_gradient: bool
) -> list[Tensor | None]:
    d_outputs, *d_last = arriving
    sweep.start_adjoint(kept[-1].unbind(), d_last, input_gradient)
    plan.drift.clear()
    for index, (start, stop) in reversed(list(enumerate(plan.borders(len(sweep.x))))):
        first, last = kept[index].unbind(), kept[index + 1].unbind()
        chunk = sweep.retrace(start, stop, first, last)
        chunk = sweep.run_again(start, stop, first) if chunk is None else chunk
        sweep.adjoint(start, stop, first, chunk, None if d_outputs is None else d_outputs[start:stop])
        del chunk
    return sweep.gradients()


def _sweep(plan: Plan, cells: list[Cell], x: Tensor, timespans: Tensor | None) -> Any:
    """Choose by what a chunk is swept."""
    if not plan.tiles:
        return LayerSweep(plan, cells, x, timespans)
    from sostenuto.ops.oscillator.tile_sweep import TileSweep

    return TileSweep(plan, cells, x, timespans)


@torch.no_grad()
def oscillator_inverse(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    stiffness: float,
    y: Float[Tensor, "L B H"],
    z: Float[Tensor, "L B H"],
    *,
    skip: int = 0,
    timespans: Float[Tensor, "T B"] | None = None,
    step_sizes: Sequence[float] | None = None,
    backend: str = "auto",
    trajectory: bool = False,
) -> tuple[Tensor, Tensor, Float[Tensor, "L T B H"] | None, Float[Tensor, "L T B H"] | None]:
    """Find the first state of all layers from the last one ``(y, z)``; with ``trajectory`` every y and z as well.

    Arguments are those of `oscillator_layers`.

    >>> cell = Cell(torch.ones(2, 1), None, None, torch.ones(2), torch.full((2,), 0.1), None)
    >>> x, zero = torch.ones(9, 1, 1), torch.zeros(1, 1, 2)
    >>> _, y, z, _ = oscillator_stack(x, [cell], 1.0, zero, zero)
    >>> y, z, *_ = oscillator_inverse(x, [cell], 1.0, y, z)
    >>> float(y.abs().max()) < 1e-6
    True
    """
    plan = _plan(x.shape[0], len(cells), stiffness, y, skip=skip, backend=backend, chunk=None)
    cells = with_steps(cells, step_sizes)
    ys, zs = ((y.new_empty((len(cells), *x.shape[:2], y.shape[-1])) if trajectory else None) for _ in range(2))
    for start, stop in reversed(plan.borders(x.shape[0])):
        below, first = [x[start:stop]], []
        spans = None if timespans is None else timespans[start:stop]
        for layer, cell in enumerate(cells):
            drive = cell.drive(below, skip)
            inverted = invert_layer(plan, cell, drive, spans, (y[layer], z[layer]), trajectory)
            below.append(cell.upward(inverted.outputs))
            first.append((inverted.y, inverted.z))
            if ys is not None and zs is not None and inverted.velocities is not None:
                ys[layer, start:stop], zs[layer, start:stop] = inverted.outputs, inverted.velocities
        y, z = (torch.stack(parts) for parts in zip(*first, strict=True))
    return y, z, ys, zs


def _plan(
    T: int, layers: int, stiffness: float, example: Tensor, *, skip: int, backend: str, chunk: int | None
) -> Plan:
    check_positive("stiffness", stiffness, zero=True)
    length = max(round(CHUNK * math.sqrt(T)), 1) if chunk is None else chunk
    check_count("chunk", length)
    chosen = choose_backend(backend, example)
    drift = Drift(TOLERANCE.get(example.dtype, 0.0), -(-T // length), [0.0] * layers)
    return Plan(stiffness, skip, length, chosen, drift)


def _autocast(device: str) -> dict[str, Any]:
    """Remember the mixed precision of the forward pass, so that the drives come out the same again."""
    if not torch.amp.is_autocast_available(device):
        return {"device_type": "cpu", "enabled": False}
    return {
        "device_type": device,
        "dtype": torch.get_autocast_dtype(device),
        "enabled": torch.is_autocast_enabled(device),
    }

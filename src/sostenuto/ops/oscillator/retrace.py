"""A stack of oscillators that keeps its states between chunks only, run tile by tile on the CPU."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops._cpu.threads import run_blocks
from sostenuto.ops._cpu.workspace import new
from sostenuto.ops.oscillator import tiles_sweep as sweep
from sostenuto.ops.oscillator.cell import Cell, Plan

States = sweep.States


class Retraced(NamedTuple):
    """A chunk found again: what the backward pass reads, the first states, and the largest ones."""

    trace: sweep.Trace
    first: States
    peaks: States


def advance_chunks(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    plan: Plan,
    timespans: Float[Tensor, "T B"] | None,
    kept: Float[Tensor, "C 2 L B H"],
    outputs: Float[Tensor, "T B H"] | None,
) -> None:
    """Run all layers over all chunks; ``kept[0]`` has the first states, and the others are written between chunks.

    Without ``outputs`` every chunk's go into one room of a chunk's length.
    """
    room = new((min(plan.chunk, x.shape[0]), *kept.shape[-2:]), kept.dtype) if outputs is None else outputs
    layers = sweep.laid_out(cells, plan.stiffness, None, kept.dtype, back=False, input_gradient=False)
    for index, (start, stop) in enumerate(plan.borders(x.shape[0])):
        first, last = ((kept[place, 0], kept[place, 1]) for place in (index, index + 1))
        spans = sweep.with_spans(layers, _cut(timespans, start, stop), kept.dtype)
        target = room[: stop - start] if outputs is None else room[start:stop]
        sweep.run_forward(spans, x[start:stop], first, last, target, keep=False)


def retrace(layers: Any, x: Float[Tensor, "T B F"], last: States) -> Retraced:
    """Find all states of a chunk from its last ones (rusch2021, eq. (7))."""
    from sostenuto.ops.oscillator.cpu import retrace as cpu

    (T, B, _), (L, _, H), dtype = x.shape, last[0].shape, last[0].dtype
    top, (kept, activated) = new((T, B, H), dtype), sweep.empty_trace(T, B, H, L, dtype)
    y, z = (part.detach().clone(memory_format=torch.contiguous_format) for part in last)
    y_peak, z_peak = y.abs(), z.abs()
    written = [part.numpy() for part in (y, z, y_peak, z_peak, kept, activated, top.view(T, B * H))]
    kernel: Any = cpu.invert_tile
    u = sweep.flat_input(x)
    run_blocks(lambda low, high: kernel(layers, u, *written, low, high), B, sweep.tile_of(B))
    return Retraced(sweep.Trace(kept, activated, last[1].contiguous(), top), (y, z), (y_peak, z_peak))


def sweep_back(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    plan: Plan,
    timespans: Float[Tensor, "T B"] | None,
    kept: Float[Tensor, "C 2 L B H"],
    arriving: Sequence[Tensor | None],
    input_gradient: bool,
) -> sweep.TileGradients:
    """Walk the chunks in reverse time: find each one's states again, by the inverse if it is true, then its adjoint."""
    d_outputs, d_y, d_z = arriving
    dtype, channels = kept.dtype, x.shape[2]
    sums = sweep.Sums.empty(channels, kept[0, 0], (d_y, d_z))
    d_x = new(tuple(x.shape), dtype) if input_gradient else None
    layers = sweep.laid_out(cells, plan.stiffness, None, dtype, back=True, input_gradient=input_gradient)
    plan.drift.worst[:], plan.drift.restarted = [0.0] * len(cells), 0
    borders = plan.borders(x.shape[0])
    for index, (start, stop) in reversed(list(enumerate(borders))):
        part, first = x[start:stop], (kept[index, 0], kept[index, 1])
        spanned = sweep.with_spans(layers, _cut(timespans, start, stop), dtype)
        chunk = retrace(spanned, part, (kept[index + 1, 0], kept[index + 1, 1]))
        trace = chunk.trace
        if drifts(plan, chunk, first):
            del chunk, trace  # their memory serves the run
            trace = _run_again(spanned, part, first)
        above, target = _cut(d_outputs, start, stop), _cut(d_x, start, stop)
        sweep.run_backward(spanned, part, first[0], trace, above, target, sums, begins=index == len(borders) - 1)
    return sums.gradients(layers, d_x)


def drifts(plan: Plan, found: Retraced, first: States) -> bool:
    """Note how far each layer's first state was missed, by its own largest value, and say whether one is too far off.

    What is not finite counts as an infinite error; layers above one that is too far off were not looked for.
    """
    floor = torch.finfo(first[0].dtype).tiny / torch.finfo(first[0].dtype).eps
    errors = [
        (state - true).abs() / peak.clamp(min=floor)
        for state, true, peak in zip(found.first, first, found.peaks, strict=True)
    ]
    for layer, error in enumerate(torch.maximum(*errors).flatten(1).amax(1).tolist()):
        worst = error if error == error else float("inf")
        plan.drift.worst[layer] = max(plan.drift.worst[layer], worst)
        if worst > plan.drift.tolerance:
            plan.drift.restarted += 1
            return True
    return False


def _run_again(layers: Any, x: Tensor, first: States) -> sweep.Trace:
    ends = torch.empty_like(first[0]), torch.empty_like(first[1])
    top = new((*x.shape[:2], first[0].shape[2]), first[0].dtype)
    kept, activated = sweep.run_forward(layers, x, first, ends, top, keep=True)
    return sweep.Trace(kept, activated, ends[1], top)


def _cut(values: Any, start: int, stop: int) -> Any:
    return None if values is None else values[start:stop]

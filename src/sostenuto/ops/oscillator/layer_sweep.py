"""Layers of oscillators swept chunk by chunk, one layer after the other, through the scan of any backend."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sostenuto.ops.oscillator.autograd import kernels_of
from sostenuto.ops.oscillator.cell import Cell, linear
from sostenuto.ops.oscillator.chunks import Plan, States
from sostenuto.ops.oscillator.reference import Inverted, inverse_reference, oscillator_scan_reference


class Chunk(NamedTuple):
    """All layers over a stretch of time: what each reads (the input first), its drive, its outputs, its last state."""

    below: list[Tensor]
    drives: list[Tensor]
    outputs: list[Tensor]
    last: States


class LayerSweep:
    """What `OscillatorStack` does with a chunk of steps, from ``start`` to ``stop``.

    Args:
        plan: the constants of the scan.
        cells: the layers.
        x: the input, all of it.
        timespans: factors of g.
    """

    def __init__(self, plan: Plan, cells: Sequence[Cell], x: Tensor, timespans: Tensor | None) -> None:
        self.plan, self.cells, self.x, self.timespans = plan, cells, x, timespans

    def advance(self, start: int, stop: int, first: States, last: States, out: Tensor | None) -> None:
        """Run all layers forwards; write the top layer's outputs into ``out``, if any, and the last states."""
        states, reach = first, 1 + self.plan.skip
        for low, high in self.plan.pieces(start, stop, first[0][0].nbytes):
            below, ends, spans = [self.x[low:high]], [], self._spans(low, high)
            for layer, cell in enumerate(self.cells):
                is_top = layer == len(self.cells) - 1
                target = out[low - start : high - start] if out is not None and is_top else None
                state = states[0][layer], states[1][layer]
                ys, z = scan_layer(self.plan, cell, cell.drive(below, self.plan.skip), spans, state, target)
                ends.append((ys[-1].clone(), z))
                below = [*below, cell.upward(ys)][-reach:]
            y, z = (torch.stack(parts) for parts in zip(*ends, strict=True))
            states = y, z
        last[0].copy_(states[0])
        last[1].copy_(states[1])

    def start_adjoint(self, last: States, d_last: Sequence[Tensor | None], input_gradient: bool) -> None:
        """Begin at the last chunk with the gradients of the last states."""
        ends = [torch.zeros_like(part) if d is None else d for part, d in zip(last, d_last, strict=True)]
        self.cotangents = list(zip(ends[0].unbind(0), ends[1].unbind(0), strict=True))
        self.sums = [CellGradients(cell) for cell in self.cells]
        self.d_x = torch.empty_like(self.x) if input_gradient else None

    def retrace(self, start: int, stop: int, first: States, last: States) -> Chunk | None:
        """Find all states of a chunk from its last ones; None where that misses the kept first ones.

        Layer 1 is inverted from the input, layer ℓ from the outputs of layer ℓ − 1 just found. A backend that scans
        fast but has no inverse runs forwards at once.
        """
        if self.plan.backend not in ("reference", "cpu"):
            return self.run_again(start, stop, first)
        below, drives, outputs, spans = ([self.x[start:stop]], [], [], self._spans(start, stop))
        for layer, cell in enumerate(self.cells):
            drives.append(cell.drive(below, self.plan.skip))
            inverted = invert_layer(self.plan, cell, drives[-1], spans, (last[0][layer], last[1][layer]))
            kept, peaks = ((first[0][layer], first[1][layer]), (inverted.y_peak, inverted.z_peak))
            if self.plan.drift.is_lost(layer, (inverted.y, inverted.z), kept, peaks):
                return None
            outputs.append(inverted.outputs)
            below.append(cell.upward(inverted.outputs))
        return Chunk(below, drives, outputs, last)

    def run_again(self, start: int, stop: int, first: States) -> Chunk:
        """Run all layers forwards over a chunk and keep everything."""
        below, drives, outputs, ends = [self.x[start:stop]], [], [], []
        spans = self._spans(start, stop)
        for layer, cell in enumerate(self.cells):
            drives.append(cell.drive(below, self.plan.skip))
            ys, z = scan_layer(self.plan, cell, drives[-1], spans, (first[0][layer], first[1][layer]))
            outputs.append(ys)
            ends.append((ys[-1], z))
            below.append(cell.upward(ys))
        y, z = (torch.stack(parts) for parts in zip(*ends, strict=True))
        return Chunk(below, drives, outputs, (y, z))

    def adjoint(self, start: int, stop: int, first: States, chunk: Chunk, arriving: Tensor | None) -> None:
        """Differentiate a chunk from its top layer to its bottom one; ``arriving`` is its outputs' gradient.

        The cotangents are those of each layer's state after the chunk, and then of the state before it.
        """
        plan, spans, wants_input = (self.plan, self._spans(start, stop), self.d_x is not None)
        d_below: list[Tensor | None] = [None] * len(self.cells) + [arriving]
        for layer in reversed(range(len(self.cells))):
            cell, d_above = self.cells[layer], d_below[layer + 1]
            d_outputs = d_above if d_above is None or cell.mask is None else d_above * cell.mask
            d_below[layer + 1] = d_above = None
            begin, last = (first[0][layer], first[1][layer]), chunk.last[1][layer]
            cotangents = (d_outputs, *self.cotangents[layer])
            gradients = scan_adjoint(
                plan, cell, chunk.drives[layer], chunk.outputs[layer], spans, begin, last, cotangents
            )
            self.cotangents[layer] = (gradients.y, gradients.z)
            for done in (chunk.outputs, chunk.drives, chunk.below):
                done.pop()  # its memory serves the layers below
            self.sums[layer].add(gradients, chunk.below, plan.skip)
            if layer > 0 or wants_input:
                d_below[layer] = _sum(d_below[layer], linear(gradients.drive, cell.weight_ih.T))
            if cell.weight_skip is not None and (layer > plan.skip or wants_input):
                index = layer - plan.skip
                d_below[index] = _sum(d_below[index], linear(gradients.drive, cell.weight_skip.T))
        if self.d_x is not None and d_below[0] is not None:
            self.d_x[start:stop] = d_below[0]

    def gradients(self) -> list[Tensor | None]:
        """List the gradients of the input, the first y and z, and each cell's fields."""
        weights = [gradient for total, cell in zip(self.sums, self.cells, strict=True) for gradient in total.of(cell)]
        return [self.d_x, *(torch.stack(parts) for parts in zip(*self.cotangents, strict=True)), *weights]

    def _spans(self, start: int, stop: int) -> Tensor | None:
        return None if self.timespans is None else self.timespans[start:stop]


def scan_layer(
    plan: Plan, cell: Cell, drive: Tensor, spans: Tensor | None, first: tuple[Tensor, Tensor], out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run one layer over a stretch of time by the kernels, in plain eager mode. Give every y and the last z."""
    arguments = (drive, cell.weight_hh, cell.step, plan.stiffness, *first)
    if plan.backend == "cpu":
        return kernels_of(first[0]).forward(*arguments, spans, out=out)
    if plan.backend == "gpu":
        ys, z = kernels_of(first[0]).forward(*arguments, spans)
    else:
        ys, _, z = oscillator_scan_reference(*arguments, timespans=spans)
    return ys if out is None else out.copy_(ys), z


def invert_layer(
    plan: Plan, cell: Cell, drive: Tensor, spans: Tensor | None, last: tuple[Tensor, Tensor], velocities: bool = False
) -> Inverted:
    """Find one layer's states in a chunk from its last one."""
    arguments = (drive, cell.weight_hh, cell.step, plan.stiffness, *last, spans, velocities)
    if plan.backend != "cpu":
        return inverse_reference(*arguments)
    from sostenuto.ops.oscillator.cpu import scan as cpu

    return cpu.inverse(*arguments)


class ScanGradients(NamedTuple):
    """Gradients of one scan's drive, w, g and first state."""

    drive: Tensor
    weight: Tensor
    step: Tensor
    y: Tensor
    z: Tensor


def scan_adjoint(
    plan: Plan,
    cell: Cell,
    drive: Tensor,
    outputs: Tensor,
    spans: Tensor | None,
    first: tuple[Tensor, Tensor],
    last: Tensor,
    arriving: tuple[Tensor | None, Tensor, Tensor],
) -> ScanGradients:
    """Differentiate one layer's scan over a chunk; ``arriving`` are the gradients of its outputs and last y and z."""
    d_outputs, d_y, d_z = arriving
    arguments = (drive, cell.weight_hh, cell.step, plan.stiffness, first[0], outputs, last, spans)
    if plan.backend == "cpu":
        return ScanGradients(*kernels_of(outputs).backward(*arguments, d_outputs, d_z, d_end=d_y)[:5])
    dense = torch.zeros_like(outputs) if d_outputs is None else d_outputs.to(outputs.dtype, copy=True)
    dense[-1] += d_y
    if plan.backend == "gpu":
        return ScanGradients(*kernels_of(outputs).backward(*arguments, dense.contiguous(), d_z)[:5])
    leaves = [tensor.detach().requires_grad_() for tensor in (drive, cell.weight_hh, cell.step, *first)]
    with torch.enable_grad():
        x, weight, step, y, z = leaves
        ys, _, end = oscillator_scan_reference(x, weight, step, plan.stiffness, y, z, timespans=spans)
        return ScanGradients(*torch.autograd.grad((ys, end), leaves, (dense, d_z)))


class CellGradients:
    """Running sums of one layer's gradients: matrices in their own precision, vectors in float64."""

    def __init__(self, cell: Cell) -> None:
        self.weight_ih = torch.zeros_like(cell.weight_ih)
        self.weight_skip = None if cell.weight_skip is None else torch.zeros_like(cell.weight_skip)
        self.bias, self.weight_hh, self.step = (
            torch.zeros_like(cell.step, dtype=torch.float64 if cell.step.device.type != "mps" else torch.float32)
            for _ in range(3)
        )

    def add(self, gradients: ScanGradients, below: list[Tensor], skip: int) -> None:
        """Add what one chunk contributes."""
        flat = gradients.drive.flatten(0, 1)
        self.weight_ih += flat.T @ below[-1].flatten(0, 1)
        self.bias += flat.sum(0)
        self.weight_hh += gradients.weight
        self.step += gradients.step
        if self.weight_skip is not None:
            self.weight_skip += flat.T @ below[-1 - skip].flatten(0, 1)

    def of(self, cell: Cell) -> list[Tensor | None]:
        """List the gradients in the order of a cell's fields; a mask has none."""
        vectors = [total.to(cell.step.dtype) for total in (self.bias, self.weight_hh, self.step)]
        bias = None if cell.bias is None else vectors[0]
        return [self.weight_ih, bias, self.weight_skip, vectors[1], vectors[2], None]


def _sum(total: Tensor | None, more: Tensor) -> Tensor:
    return more if total is None else total + more

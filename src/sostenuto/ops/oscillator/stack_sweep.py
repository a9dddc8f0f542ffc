"""The stack swept in chunks of time: forward through all layers, inverted from a chunk's end, and the adjoint."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.oscillator.autograd import kernels_of
from sostenuto.ops.oscillator.cell import Cell, Plan, linear
from sostenuto.ops.oscillator.reference import Inverted, inverse_reference, oscillator_scan_reference

States = tuple[Float[Tensor, "L B H"], Float[Tensor, "L B H"]]


class Chunk(NamedTuple):
    """All layers over a stretch of time: what each reads (the input first), its drive, its outputs, its last state."""

    below: list[Tensor]
    drives: list[Tensor]
    outputs: list[Tensor]
    last: States


def run_chunk(plan: Plan, cells: Sequence[Cell], x: Tensor, spans: Tensor | None, first: States) -> Chunk:
    """Run all layers forwards over one chunk and keep everything."""
    below, drives, outputs, ends = [x], [], [], []
    for layer, cell in enumerate(cells):
        drives.append(cell.drive(below, plan.skip))
        ys, z = scan_layer(plan, cell, drives[-1], spans, (first[0][layer], first[1][layer]))
        outputs.append(ys)
        ends.append((ys[-1], z))
        below.append(cell.upward(ys))
    y, z = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return Chunk(below, drives, outputs, (y, z))


def advance(
    plan: Plan, cells: Sequence[Cell], x: Tensor, spans: Tensor | None, first: States, out: Tensor | None
) -> States:
    """Run all layers forwards, write the top layer's outputs into ``out``, if any, and keep only the last state."""
    below, ends, reach = [x], [], 1 + plan.skip
    for layer, cell in enumerate(cells):
        target = out if layer == len(cells) - 1 else None
        start = first[0][layer], first[1][layer]
        ys, z = scan_layer(plan, cell, cell.drive(below, plan.skip), spans, start, target)
        ends.append((ys[-1].clone(), z))
        below = [*below, cell.upward(ys)][-reach:]
    y, z = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return y, z


def scan_layer(
    plan: Plan,
    cell: Cell,
    drive: Tensor,
    spans: Tensor | None,
    first: tuple[Tensor, Tensor],
    out: Tensor | None = None,
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
    from sostenuto.ops.oscillator.cpu import inverse as cpu

    return cpu.inverse(*arguments)


def reconstruct(
    plan: Plan, cells: Sequence[Cell], x: Tensor, spans: Tensor | None, first: States, last: States
) -> Chunk:
    """Find all states of a chunk from its last ones; where that misses the kept first ones, from those instead.

    Layer 1 is inverted from the input, layer ℓ from the outputs of layer ℓ − 1 just found. A backend that scans fast
    but has no inverse runs forwards at once.
    """
    if plan.backend not in ("reference", "cpu"):
        return run_chunk(plan, cells, x, spans, first)
    below, drives, outputs = [x], [], []
    for layer, cell in enumerate(cells):
        drives.append(cell.drive(below, plan.skip))
        inverted = invert_layer(plan, cell, drives[-1], spans, (last[0][layer], last[1][layer]))
        error = relative_error(inverted, first[0][layer], first[1][layer])
        plan.drift.worst[layer] = max(plan.drift.worst[layer], error)
        if error > plan.drift.tolerance:
            plan.drift.restarted += 1
            del inverted, below, drives, outputs  # their memory serves the run
            return run_chunk(plan, cells, x, spans, first)
        outputs.append(inverted.outputs)
        below.append(cell.upward(inverted.outputs))
    return Chunk(below, drives, outputs, last)


def relative_error(found: Inverted, y: Float[Tensor, "B H"], z: Float[Tensor, "B H"]) -> float:
    """Give the worst error of the first state over all columns, each by its own largest value in the chunk.

    What is not finite counts as an infinite error.
    """
    floor = torch.finfo(y.dtype).tiny / torch.finfo(y.dtype).eps
    errors = (
        (found.y - y).abs() / found.y_peak.clamp(min=floor),
        (found.z - z).abs() / found.z_peak.clamp(min=floor),
    )
    worst = float(torch.maximum(*errors).max())
    return worst if worst == worst else float("inf")


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

    def add(self, found: ScanGradients, below: list[Tensor], skip: int) -> None:
        """Add what one chunk contributes."""
        flat = found.drive.flatten(0, 1)
        self.weight_ih += flat.T @ below[-1].flatten(0, 1)
        self.bias += flat.sum(0)
        self.weight_hh += found.weight
        self.step += found.step
        if self.weight_skip is not None:
            self.weight_skip += flat.T @ below[-1 - skip].flatten(0, 1)

    def of(self, cell: Cell) -> list[Tensor | None]:
        """List the gradients in the order of a cell's fields; a mask has none."""
        vectors = [total.to(cell.step.dtype) for total in (self.bias, self.weight_hh, self.step)]
        bias = None if cell.bias is None else vectors[0]
        return [self.weight_ih, bias, self.weight_skip, vectors[1], vectors[2], None]


def chunk_adjoint(
    plan: Plan,
    cells: Sequence[Cell],
    chunk: Chunk,
    spans: Tensor | None,
    first: States,
    arriving: Tensor | None,
    cotangents: list[tuple[Tensor, Tensor]],
    sums: list[CellGradients],
    input_gradient: bool,
) -> Tensor | None:
    """Differentiate a chunk from its top layer to its bottom one; return the gradient of its input, if wanted.

    ``arriving`` is the gradient of the top layer's outputs. ``cotangents`` holds the gradients of each layer's state
    after the chunk, and then of the state before it; ``sums`` takes what the chunk adds to the weights' gradients.
    """
    d_below: list[Tensor | None] = [None] * len(cells) + [arriving]
    for layer in reversed(range(len(cells))):
        cell, d_above = cells[layer], d_below[layer + 1]
        d_outputs = d_above if d_above is None or cell.mask is None else d_above * cell.mask
        d_below[layer + 1] = d_above = None
        start, last = (first[0][layer], first[1][layer]), chunk.last[1][layer]
        gradients = scan_adjoint(
            plan, cell, chunk.drives[layer], chunk.outputs[layer], spans, start, last, (d_outputs, *cotangents[layer])
        )
        cotangents[layer] = (gradients.y, gradients.z)
        for done in (chunk.outputs, chunk.drives, chunk.below):
            done.pop()  # its memory serves the layers below
        sums[layer].add(gradients, chunk.below, plan.skip)
        if layer > 0 or input_gradient:
            d_below[layer] = _sum(d_below[layer], linear(gradients.drive, cell.weight_ih.T))
        if cell.weight_skip is not None and (layer > plan.skip or input_gradient):
            index = layer - plan.skip
            d_below[index] = _sum(d_below[index], linear(gradients.drive, cell.weight_skip.T))
    return d_below[0]


def _sum(total: Tensor | None, more: Tensor) -> Tensor:
    return more if total is None else total + more

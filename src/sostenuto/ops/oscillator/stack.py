"""A stack of oscillator scans that recomputes its states in the backward pass instead of keeping them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_count, check_positive
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.dispatch import in_forward_mode, runs_eagerly
from sostenuto.ops.oscillator.cell import Cell, Drift, Plan
from sostenuto.ops.oscillator.scan import BACKENDS
from sostenuto.ops.oscillator.stack_autograd import OscillatorStack, stored_stack
from sostenuto.ops.oscillator.stack_sweep import invert_layer

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
"""Relative error of a chunk's reconstructed first state above which the chunk is run forwards again."""
CHUNK = 2.0
"""Steps of a chunk over √T: the states kept between chunks and the chunk swept are then both small."""

__all__ = ["TOLERANCE", "Cell", "Drift", "StackResult", "oscillator_stack", "oscillator_stack_inverse"]


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
    compiled (what is done here depends on the drift found) and an empty batch take the stored stack, and ``drift`` is
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
        every, y, z = stored_stack(x, cells, stiffness, y, z, skip=skip, timespans=timespans, backend=backend)
        return StackResult(every if outputs else every[:0], y, z, None)
    plan = _plan(x.shape[0], len(cells), stiffness, y, skip=skip, backend=backend, chunk=chunk)
    from sostenuto.ops.oscillator.tiles import takes_tiles  # which knows this package's cells

    tiles = takes_tiles(x, cells, y, z, timespans=timespans, backend=backend)
    plan = replace(plan, tiles=tiles, outputs=outputs)
    tensors = [field for cell in cells for field in cell]
    result: Any = OscillatorStack.apply(plan, timespans, x, y, z, *tensors)
    every, y, z = result
    return StackResult(every, y, z, plan.drift)


@torch.no_grad()
def oscillator_stack_inverse(
    x: Float[Tensor, "T B F"],
    cells: Sequence[Cell],
    stiffness: float,
    y: Float[Tensor, "L B H"],
    z: Float[Tensor, "L B H"],
    *,
    skip: int = 0,
    timespans: Float[Tensor, "T B"] | None = None,
    backend: str = "auto",
    trajectory: bool = False,
) -> tuple[Tensor, Tensor, Float[Tensor, "L T B H"] | None, Float[Tensor, "L T B H"] | None]:
    """Find the first state of all layers from the last one ``(y, z)``; with ``trajectory`` every y and z as well.

    >>> cell = Cell(torch.ones(2, 1), None, None, torch.ones(2), torch.full((2,), 0.1), None)
    >>> x, zero = torch.ones(9, 1, 1), torch.zeros(1, 1, 2)
    >>> _, y, z, _ = oscillator_stack(x, [cell], 1.0, zero, zero)
    >>> y, z, *_ = oscillator_stack_inverse(x, [cell], 1.0, y, z)
    >>> float(y.abs().max()) < 1e-6
    True
    """
    plan = _plan(x.shape[0], len(cells), stiffness, y, skip=skip, backend=backend, chunk=None)
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
    chosen = choose_backend(backend, example, built=tuple(name for name in BACKENDS if name in ("cpu", "gpu")))
    drift = Drift(TOLERANCE.get(example.dtype, 0.0), -(-T // length), [0.0] * layers)
    return Plan(stiffness, skip, length, chosen, drift)

"""Layers of oscillators swept chunk by chunk, tile by tile through all layers at once on the CPU."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sostenuto.ops._cpu.input_map import flat_input
from sostenuto.ops._cpu.threads import run_blocks
from sostenuto.ops._cpu.workspace import new
from sostenuto.ops.oscillator import tile_launch as tiles
from sostenuto.ops.oscillator.cell import Cell
from sostenuto.ops.oscillator.chunks import Plan, States


class TileSweep:
    """As `layer_sweep.LayerSweep`, for cells that `takes_tiles` takes."""

    def __init__(self, plan: Plan, cells: Sequence[Cell], x: Tensor, timespans: Tensor | None) -> None:
        self.plan, self.cells, self.timespans = plan, cells, timespans
        self.input_dtype, self.dtype = x.dtype, cells[0].weight_hh.dtype
        self.x = x.to(self.dtype)
        self.layers = tiles.laid_out(cells, plan.stiffness, None, self.dtype, back=False, input_gradient=False)

    def advance(self, start: int, stop: int, first: States, last: States, out: Tensor | None) -> None:
        """Run all layers forwards; write the top layer's outputs into ``out``, if any, and the last states."""
        shape = stop - start, *first[0].shape[1:]
        target = new(shape, self.dtype) if out is None else out
        tiles.run_forward(self._laid_out(start, stop), self.x[start:stop], first, last, target, keep=False)

    def start_adjoint(self, last: States, d_last: Sequence[Tensor | None], input_gradient: bool) -> None:
        """Begin at the last chunk with the gradients of the last states."""
        setup = self.cells, self.plan.stiffness, None, self.dtype
        self.layers = tiles.laid_out(*setup, back=True, input_gradient=input_gradient)
        self.sums = tiles.Sums.empty(self.x.shape[2], last[0], (d_last[0], d_last[1]))
        self.d_x = new(tuple(self.x.shape), self.dtype) if input_gradient else None

    def retrace(self, start: int, stop: int, first: States, last: States) -> tiles.Trace | None:
        """Find all states of a chunk from its last ones (rusch2021, eq. (7)); None where that misses the first ones.

        Layers above one that is too far off are not looked at.
        """
        from sostenuto.ops.oscillator.cpu import tiles as cpu

        (T, B, _), (L, _, H) = self.x[start:stop].shape, last[0].shape
        top, (kept, activated) = (new((T, B, H), self.dtype), tiles.empty_trace(T, B, H, L, self.dtype))
        y, z = (part.detach().clone(memory_format=torch.contiguous_format) for part in last)
        y_peak, z_peak = y.abs(), z.abs()
        written = [part.numpy() for part in (y, z, y_peak, z_peak, kept, activated, top.view(T, B * H))]
        kernel: Any = cpu.invert_tile
        layers, u = self._laid_out(start, stop), flat_input(self.x[start:stop])
        run_blocks(lambda low, high: kernel(layers, u, *written, low, high), B, tiles.tile_of(B))
        for layer in range(L):
            reached, true, peaks = ((a[layer], b[layer]) for a, b in ((y, z), first, (y_peak, z_peak)))
            if self.plan.drift.is_lost(layer, reached, true, peaks):
                return None
        return tiles.Trace(kept, activated, last[1].contiguous(), top)

    def run_again(self, start: int, stop: int, first: States) -> tiles.Trace:
        """Run all layers forwards over a chunk and keep everything."""
        ends = torch.empty_like(first[0]), torch.empty_like(first[1])
        top = new((stop - start, *first[0].shape[1:]), self.dtype)
        x = self.x[start:stop]
        kept, activated = tiles.run_forward(self._laid_out(start, stop), x, first, ends, top, keep=True)
        return tiles.Trace(kept, activated, ends[1], top)

    def adjoint(self, start: int, stop: int, first: States, chunk: tiles.Trace, arriving: Tensor | None) -> None:
        """Differentiate a chunk; ``arriving`` is its outputs' gradient."""
        x, d_x = self.x[start:stop], None if self.d_x is None else self.d_x[start:stop]
        begins = stop == len(self.x)
        tiles.run_backward(self._laid_out(start, stop), x, first[0], chunk, arriving, d_x, self.sums, begins=begins)

    def gradients(self) -> list[Tensor | None]:
        """List the gradients of the input, the first y and z, and each cell's fields."""
        return self.sums.gradients(self.layers, self.d_x).listed(self.input_dtype)

    def _laid_out(self, start: int, stop: int) -> Any:
        spans = None if self.timespans is None else self.timespans[start:stop]
        return tiles.with_spans(self.layers, spans, self.dtype)

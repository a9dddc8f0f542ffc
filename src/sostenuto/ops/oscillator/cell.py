"""One layer of a stack of oscillators, as the tensors it runs on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops._cpu.workspace import product
from sostenuto.ops.dispatch import runs_eagerly

PIECE_BYTES = 1 << 19
"""Bytes of one layer's outputs in a piece of a chunk."""


class Cell(NamedTuple):
    """A layer's input map V, b and Λ (what it skips to), its oscillators w and g, and a mask on what it hands up."""

    weight_ih: Float[Tensor, "H F"]
    bias: Float[Tensor, " H"] | None
    weight_skip: Float[Tensor, "H G"] | None
    weight_hh: Float[Tensor, " H"]
    step: Float[Tensor, " H"]
    mask: Float[Tensor, "1 B H"] | None

    def drive(self, below: list[Tensor], skip: int) -> Tensor:
        """Project what lies below, the stack's input first: x = V·below[−1] + b, plus Λ·below[−1−skip]."""
        drive = linear(below[-1], self.weight_ih, self.bias)
        return drive if self.weight_skip is None else drive + linear(below[-1 - skip], self.weight_skip)

    def upward(self, outputs: Tensor) -> Tensor:
        """Mask the outputs for the layers above."""
        return outputs if self.mask is None else outputs * self.mask


def cells_of(tensors: Sequence[Any]) -> list[Cell]:
    """Put cells together again from their fields, which differentiable functions take one after the other."""
    count = len(Cell._fields)
    return [Cell(*tensors[start : start + count]) for start in range(0, len(tensors), count)]


def with_masks(cells: Sequence[Cell], masks: Float[Tensor, "M B H"] | None) -> Sequence[Cell]:
    """Give all cells but the top one their masks; without any, the cells as they are."""
    if masks is None:
        return cells
    masked = [cell._replace(mask=masks[layer : layer + 1]) for layer, cell in enumerate(cells[:-1])]
    return [*masked, cells[-1]]


def linear(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute V x + b; on the CPU, where no gradient is recorded, into a buffer that is used again."""
    plain = x.device.type == "cpu" and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    if plain and runs_eagerly(x):
        return product(x, matrix, bias, matrix.dtype)
    return F.linear(x, matrix, bias)


@dataclass
class Drift:
    """How far the reconstructed states were from the kept ones; the backward pass fills it in.

    ``worst`` has, for each layer, the largest relative error at any chunk's first state, among the chunks that were
    inverted; ``restarted`` counts the chunks where it passed ``tolerance`` and that were run forwards again instead.
    """

    tolerance: float
    chunks: int
    worst: list[float]
    restarted: int = 0


@dataclass(frozen=True)
class Plan:
    """How a stack is swept: the scan's constants, chunk length, backend, drift found, by what, for outputs or not."""

    stiffness: float
    skip: int
    chunk: int
    backend: str
    drift: Drift = field(compare=False)
    tiles: bool = False
    outputs: bool = True

    def borders(self, T: int) -> list[tuple[int, int]]:
        """List the chunks (start, stop) of T steps, of nearly one length.

        >>> Plan(1.0, 0, 4, "cpu", Drift(0.0, 3, [])).borders(9)
        [(0, 3), (3, 6), (6, 9)]
        """
        return _cuts(0, T, self.chunk)

    def pieces(self, start: int, stop: int, step_bytes: int) -> list[tuple[int, int]]:
        """Cut a chunk into what is run forwards at once where nothing of it is kept: on a CPU, what fits the cache.

        >>> Plan(1.0, 0, 4, "cpu", Drift(0.0, 3, [])).pieces(4, 8, 1 << 18)
        [(4, 6), (6, 8)]
        """
        length = max(PIECE_BYTES // max(step_bytes, 1), 1) if self.backend == "cpu" else self.chunk
        return _cuts(start, stop, length)


def _cuts(start: int, stop: int, most: int) -> list[tuple[int, int]]:
    """Cut a stretch into as few parts as ``most`` allows, all of one length but the last."""
    parts = max(-(-(stop - start) // most), 1)
    length = max(-(-(stop - start) // parts), 1)
    return [(low, min(low + length, stop)) for low in range(start, stop, length)]

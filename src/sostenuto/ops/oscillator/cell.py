"""One layer of a stack of oscillators, as the tensors it runs on."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops._cpu.workspace import product
from sostenuto.ops.dispatch import runs_eagerly


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


def with_steps(cells: Sequence[Cell], step_sizes: Sequence[float] | None) -> Sequence[Cell]:
    """Return the cells with g = Δt·σ̂(c) where ``step_sizes`` has Δt for each, and their steps are c."""
    if step_sizes is None:
        return cells
    return [cell._replace(step=dt * torch.sigmoid(cell.step)) for cell, dt in zip(cells, step_sizes, strict=True)]


def linear(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute V x + b; on the CPU, where no gradient is recorded, into a buffer that is used again."""
    plain = x.device.type == "cpu" and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    if plain and runs_eagerly(x):
        return product(x, matrix, bias, matrix.dtype)
    return F.linear(x, matrix, bias)

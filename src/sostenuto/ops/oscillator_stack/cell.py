"""One layer of a stack of oscillators, as the tensors it runs on."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


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
        drive = F.linear(below[-1], self.weight_ih, self.bias)
        return drive if self.weight_skip is None else drive + F.linear(below[-1 - skip], self.weight_skip)

    def upward(self, outputs: Tensor) -> Tensor:
        """Mask the outputs for the layers above."""
        return outputs if self.mask is None else outputs * self.mask


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
    """How a stack is swept: constants of the scan, the chunk length, the backend, and the record of drift."""

    stiffness: float
    skip: int
    chunk: int
    backend: str
    drift: Drift = field(compare=False)

    def borders(self, T: int) -> list[tuple[int, int]]:
        """List the chunks (start, stop) of T steps.

        >>> Plan(1.0, 0, 4, "cpu", Drift(0.0, 3, [])).borders(10)
        [(0, 4), (4, 8), (8, 10)]
        """
        return [(start, min(start + self.chunk, T)) for start in range(0, T, self.chunk)]

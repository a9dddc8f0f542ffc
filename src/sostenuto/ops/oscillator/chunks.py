"""Chunks of time whose states are found again from their last ones, and how far that missed."""

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

States = tuple[Float[Tensor, "*L B H"], Float[Tensor, "*L B H"]]
"""y and z, of one layer or of all."""
PIECE_BYTES = 1 << 19
"""Bytes of one layer's outputs in a piece of a chunk."""


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

    def clear(self) -> None:
        """Begin a backward pass."""
        self.worst[:], self.restarted = [0.0] * len(self.worst), 0

    def is_lost(self, layer: int, reached: States, kept: States, peaks: States) -> bool:
        """Note how far a layer's first state was missed, by each column's largest value; say whether it is too far.

        What is not finite counts as an infinite error.
        """
        floor = torch.finfo(kept[0].dtype).tiny / torch.finfo(kept[0].dtype).eps
        parts = zip(reached, kept, peaks, strict=True)
        errors = [(state - true).abs() / peak.clamp(min=floor) for state, true, peak in parts]
        error = float(torch.maximum(*errors).max())
        error = error if math.isfinite(error) else float("inf")
        self.worst[layer] = max(self.worst[layer], error)
        self.restarted += error > self.tolerance
        return error > self.tolerance


@dataclass(frozen=True)
class Plan:
    """How layers are swept: the scan's constants, steps of a chunk, backend, drift found, by tiles, for outputs."""

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

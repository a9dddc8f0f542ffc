"""Sequences of any lengths in two arrays: quick to send, to hash and to cut."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64


@dataclass(frozen=True, eq=False)
class PackedSequences:
    """All steps of all sequences, one below the other, and where each sequence starts; the last border is the end.

    >>> packed = PackedSequences.pack([np.zeros((2, 1)), np.ones((3, 1))])
    >>> len(packed), packed.borders.tolist(), packed.cut(1, 2)[0].shape
    (2, [0, 2, 5], (3, 1))
    """

    values: Float64[np.ndarray, "step channel"]
    borders: Int64[np.ndarray, " border"]

    @classmethod
    def pack(cls, sequences: list[np.ndarray]) -> "PackedSequences":
        """Lay sequences out one below the other."""
        borders = np.cumsum([0, *(len(sequence) for sequence in sequences)], dtype=np.int64)
        return cls(np.concatenate(sequences).astype(np.float64, copy=False), borders)

    def __len__(self) -> int:
        """Count the sequences."""
        return len(self.borders) - 1

    @property
    def num_channels(self) -> int:
        """Channels of every step."""
        return self.values.shape[1]

    def cut(self, start: int, stop: int) -> list[np.ndarray]:
        """Return the sequences from ``start`` to ``stop``, as views."""
        borders = self.borders.tolist()
        return [self.values[borders[i] : borders[i + 1]] for i in range(start, stop)]

"""`SequenceSet`, what a reader returns, and `Dataset`, what a source returns: raw values and raw targets."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sostenuto.checks import require
from sostenuto.choices import Task
from sostenuto.data.batch import SequenceBatch

BatchTransform = Callable[[SequenceBatch], SequenceBatch]
"""What is done to every batch after encoding."""
_PER_SEQUENCE = ("targets", "timespans", "groups", "ids", "times", "weights")


@dataclass(frozen=True, eq=False)
class SequenceSet:
    """Sequences as they were read, before any scaling or label coding.

    ``sequences`` holds one ``(time, channel)`` float array each (NaN where a value is missing), or one ``(time,)``
    integer array each for token data. ``targets`` is an array with one row per sequence (class names as strings,
    numbers for regression) or, where there is a target for every step, a list of ``(time, …)`` arrays.
    ``ids`` names each sequence, ``times`` each step, as the file does. ``timespans`` are in units of ``time_unit``, the
    median sampling step of the set (seconds for dates, the column's own unit for numbers; 0 where no times are known),
    and None where all are 1. ``categorical`` names the columns that were read as one channel ``column=value`` for each
    of their values. ``weights`` say how much each sequence counts in the loss.
    """

    sequences: Sequence[np.ndarray]
    targets: np.ndarray | list[np.ndarray] | None = None
    task: Task | None = None
    timespans: Sequence[np.ndarray] | None = None
    groups: np.ndarray | None = None
    channel_names: tuple[str, ...] = ()
    target_name: str = ""
    ids: np.ndarray | None = None
    times: Sequence[np.ndarray] | None = None
    time_unit: float = 0.0
    categorical: tuple[str, ...] = ()
    weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        count = len(self.sequences)
        for name in _PER_SEQUENCE:
            rows = getattr(self, name)
            if rows is not None:
                require(len(rows) == count, f"expected {count} {name}", f"got {len(rows)}")

    def __len__(self) -> int:
        """Count the sequences."""
        return len(self.sequences)

    @property
    def is_tokens(self) -> bool:
        """Whether the sequences are token ids rather than channels of numbers."""
        return len(self.sequences) > 0 and self.sequences[0].ndim == 1

    @property
    def num_channels(self) -> int:
        """Channels of each step (1 for tokens)."""
        return 1 if self.is_tokens else self.sequences[0].shape[1]

    def numbered(self) -> "SequenceSet":
        """Name the sequences by their positions, counted from 0, where they have no names."""
        return self if self.ids is not None else replace(self, ids=np.arange(len(self)).astype(str))

    def take(self, indices: np.ndarray) -> "SequenceSet":
        """Take the sequences at ``indices``, with everything that belongs to them."""

        def pick(rows: Any) -> Any:
            return (
                rows if rows is None else rows[indices] if isinstance(rows, np.ndarray) else [rows[i] for i in indices]
            )

        return replace(
            self, sequences=pick(self.sequences), **{name: pick(getattr(self, name)) for name in _PER_SEQUENCE}
        )

    def checksum(self) -> str:
        """Return 16 hexadecimal digits that change when any value, length or target does."""
        digest = hashlib.sha256()
        for sequence in self.sequences:
            digest.update(str(sequence.shape).encode())
            digest.update(np.ascontiguousarray(sequence).data)
        rows = [] if self.targets is None else self.targets
        for row in rows:
            digest.update(str(np.asarray(row).tolist()).encode() + b"\0")
        return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set: its parts, what it is, and where it comes from.

    ``batch_transform`` is applied to every batch after encoding (noise padding, for one): what would not fit in memory
    for the whole set at once. ``extras`` carries what a source adds, such as a vocabulary, word vectors or the order in
    which pixels are read.
    """

    name: str
    train: SequenceSet
    test: SequenceSet | None = None
    validation: SequenceSet | None = None
    description: str = ""
    origin: str = ""
    batch_transform: BatchTransform | None = None
    extras: dict[str, Any] = field(default_factory=dict)

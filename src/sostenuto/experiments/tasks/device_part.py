"""A part of a data set on the device as one tensor, and batches of it by index, without asking the device anything."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from sostenuto.checks import require
from sostenuto.data.batch import SequenceBatch


@dataclass(frozen=True, eq=False)
class Drawn:
    """Some sequences of a part; ``lengths`` is None where none is padded."""

    values: Shaped[Tensor, "batch time ..."]
    targets: Shaped[Tensor, "batch ..."]
    lengths: Int[Tensor, " batch"] | None

    @property
    def mask(self) -> Bool[Tensor, "batch time"]:
        """True where a step belongs to its sequence."""
        steps = torch.arange(self.values.shape[1], device=self.values.device)
        if self.lengths is None:
            return (steps >= 0).expand(len(self.values), -1)
        return steps < self.lengths[:, None]


@dataclass(frozen=True)
class Bucket:
    """Sequences of similar length: which they are, to how many steps they are padded, and how many make a batch."""

    members: Int[Tensor, " n"]
    steps: int
    batch_size: int


@dataclass(frozen=True, eq=False)
class DevicePart:
    """All sequences of a part, padded to the longest, on one device; step t is pixel ``order[t]`` of permuted images.

    >>> part = DevicePart.of(SequenceBatch.from_sequences(torch.zeros(5, 3, 2), targets=[0, 1, 0, 1, 0]))
    >>> part.drawn(torch.tensor([4, 0])).values.shape, part.lengths is None
    (torch.Size([2, 3, 2]), True)
    """

    values: Shaped[Tensor, "n time ..."]
    targets: Shaped[Tensor, "n ..."]
    lengths: Int[Tensor, " n"] | None
    order: Int[Tensor, " time"] | None = None

    @classmethod
    def of(
        cls,
        batch: SequenceBatch,
        device: str | torch.device = "cpu",
        *,
        order: Int[np.ndarray, " time"] | None = None,
    ) -> "DevicePart":
        """Move an encoded part to the device; token ids take 32 bits there."""
        require(batch.targets is not None, "expected a part with targets", "got one without")
        assert batch.targets is not None
        require(batch.timespans is None, "expected sequences sampled at even times", "got timespans")
        values = batch.values if batch.values.is_floating_point() else batch.values.int()
        lengths = batch.lengths.to(device) if batch.is_ragged else None
        places = None if order is None else torch.as_tensor(order, device=device)
        return cls(values.to(device), batch.targets.to(device), lengths, places)

    def __len__(self) -> int:
        """Count the sequences."""
        return len(self.values)

    def drawn(self, index: Int[Tensor, " batch"], steps: int | None = None) -> Drawn:
        """Take the sequences at ``index``, cut after ``steps``, which no length among them may exceed."""
        values = self.values[:, :steps].index_select(0, index)
        lengths = None if self.lengths is None else self.lengths.index_select(0, index)
        targets = self.targets.index_select(0, index)
        return Drawn(values, targets, lengths)

    def buckets(self, batch_size: int, borders: tuple[int, ...] = ()) -> list[Bucket]:
        """Sort the sequences by length between ``borders``, so that short ones are not padded to the longest.

        >>> batch = SequenceBatch.from_sequences([torch.zeros(n, 1) for n in (2, 9, 3, 10)], targets=[0, 1, 0, 1])
        >>> [(one.members.tolist(), one.steps) for one in DevicePart.of(batch).buckets(2, (5,))]
        [([0, 2], 5), ([1, 3], 10)]
        """
        longest = self.values.shape[1]
        lengths = torch.full((len(self),), longest) if self.lengths is None else self.lengths.cpu()
        ends = [*(border for border in sorted(borders) if border < longest), longest]
        found, start = [], 0
        for end in ends:
            members = torch.nonzero((lengths > start) & (lengths <= end)).flatten()
            if len(members):
                found.append(Bucket(members, end, min(batch_size, len(members))))
            start = end
        return found


def epoch_batches(buckets: list[Bucket], seed: int, epoch: int) -> list[tuple[int, Int[Tensor, " batch"]]]:
    """List the batches of an epoch, (bucket, indices), in an order seeded by (seed, epoch): nothing to store.

    What is left of a bucket after its last whole batch waits for another epoch, in which chance leaves others.

    >>> buckets = [Bucket(torch.arange(5), 7, 2)]
    >>> [(one, len(index)) for one, index in epoch_batches(buckets, 0, 0)]
    [(0, 2), (0, 2)]
    """
    generator = torch.Generator().manual_seed((1_000_003 * seed + epoch) % 2**63)
    batches = []
    for number, bucket in enumerate(buckets):
        order = bucket.members[torch.randperm(len(bucket.members), generator=generator)]
        whole = len(order) // bucket.batch_size * bucket.batch_size
        batches += [(number, index) for index in order[:whole].split(bucket.batch_size)]
    if len(buckets) == 1:
        return batches
    return [batches[index] for index in torch.randperm(len(batches), generator=generator).tolist()]

"""Which sequences make a batch, and what happens to them on the way to the model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import BatchTransform

DEVICE_SHARE = 0.25
GATHERED_BYTES = 1 << 22
"""Values of the batches that are gathered at once, at most; a larger batch is gathered alone."""


@dataclass(frozen=True)
class Bucket:
    """Sequences of similar length: which they are, and to how many steps they are padded at most."""

    members: Int[Tensor, " n"]
    steps: int


def make_buckets(lengths: Int[Tensor, " n"], borders: Sequence[int] = ()) -> list[Bucket]:
    """Sort sequences by length between ``borders``, so that short ones are not padded to the longest.

    >>> [(bucket.members.tolist(), bucket.steps) for bucket in make_buckets(torch.tensor([2, 9, 3, 10]), [5])]
    [([0, 2], 5), ([1, 3], 10)]
    """
    longest = int(lengths.max())
    ends = [*(border for border in sorted(borders) if border < longest), longest]
    inside = [torch.nonzero((lengths > start) & (lengths <= end)).flatten() for start, end in pairwise([0, *ends])]
    return [Bucket(members, end) for members, end in zip(inside, ends, strict=True) if len(members)]


class BatchSource:
    """Batches of one part of the data, the same for every number of processes.

    The order of epoch e is a permutation seeded by (seed, e): nothing to store but the epoch. Every process takes its
    share of each global batch. Data that fits well into the device's memory is kept there, with ``on_device`` all.
    Sequences of one batch lie between two of the ``borders`` of length. With ``drop_last`` the rest of an epoch that
    fills no batch waits for another, in which chance leaves others. With ``pads_to_bucket`` every batch of a bucket has
    the same number of steps, so that truncated gradients are cut at the same places whatever chance, or the number of
    processes, puts beside a sequence; else a batch ends with the longest of its own.
    """

    def __init__(
        self,
        data: SequenceBatch,
        batch_size: int,
        device: torch.device,
        *,
        seed: int = 0,
        process: int = 0,
        num_processes: int = 1,
        transform: BatchTransform | None = None,
        borders: Sequence[int] = (),
        drop_last: bool = False,
        pads_to_bucket: bool = False,
        on_device: bool = False,
    ) -> None:
        self.data, self.batch_size, self.device, self.seed = data, batch_size, device, seed
        self.process, self.num_processes, self.transform = process, num_processes, transform
        self.drop_last, self.pads_to_bucket = drop_last, pads_to_bucket
        self.is_ragged, self.lengths = data.is_ragged, data.lengths.cpu()
        self.buckets = make_buckets(self.lengths, borders)
        if on_device or (device.type == "cuda" and _size(data) < DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]):
            self.data = data.to(device)

    def __len__(self) -> int:
        """Count the global batches of an epoch."""
        return sum(len(self._split(bucket.members)) for bucket in self.buckets)

    def pieces(self, epoch: int | None) -> list[tuple[int, Int[Tensor, " batch"]]]:
        """List the global batches, (bucket, indices): shuffled for an epoch, in order and all of them for None.

        >>> source = BatchSource(SequenceBatch(torch.zeros(5, 3, 1), torch.full((5,), 3)), 2, torch.device("cpu"))
        >>> [index.tolist() for _, index in source.pieces(None)], len(source.pieces(1))
        ([[0, 1], [2, 3], [4]], 3)
        """
        numbered = enumerate(bucket.members for bucket in self.buckets)
        if epoch is None:
            return [(number, piece) for number, members in numbered for piece in members.split(self.batch_size)]
        generator = torch.Generator().manual_seed((1_000_003 * self.seed + epoch) % 2**63)
        pieces = [
            (number, piece)
            for number, members in numbered
            for piece in self._split(members[torch.randperm(len(members), generator=generator)])
        ]
        if len(self.buckets) == 1:
            return pieces
        return [pieces[place] for place in torch.randperm(len(pieces), generator=generator).tolist()]

    def batches(self, epoch: int | None = None, start: int = 0) -> Iterator[tuple[SequenceBatch, Tensor, Tensor]]:
        """Yield this process's share, whether each of its sequences counts, and all indices of the global batch.

        A process whose share is empty gets one sequence that does not count, so that all take the same steps.
        """
        pieces = self.pieces(epoch)[start:]
        shares = [whole[self.process :: self.num_processes] for _, whole in pieces]
        picked = [mine if len(mine) else whole[:1] for mine, (_, whole) in zip(shares, pieces, strict=True)]
        batches = self._padded(pieces, picked) if self.pads_to_bucket else self._gathered(picked)
        for (_, whole), mine, batch in zip(pieces, shares, batches, strict=True):
            counts = torch.ones(len(batch)) if len(mine) else torch.zeros(1)
            yield self._transformed(batch.to(self.device, non_blocking=True)), counts.to(self.device), whole

    def gathered(self, bucket: int, index: Int[Tensor, " batch"]) -> SequenceBatch:
        """Take sequences of a bucket by their indices on the device, padded to its length: no value is read back."""
        return self._transformed(self.data.gathered(index, self.buckets[bucket].steps))

    def _transformed(self, batch: SequenceBatch) -> SequenceBatch:
        return batch if self.transform is None else self.transform(batch)

    def _split(self, members: Tensor) -> tuple[Tensor, ...]:
        size = min(self.batch_size, len(members))
        return members[: len(members) // size * size if self.drop_last else None].split(size)

    def _padded(self, pieces: list[tuple[int, Tensor]], picked: list[Tensor]) -> Iterator[SequenceBatch]:
        for (bucket, _), index in zip(pieces, picked, strict=True):
            yield self.data.gathered(index.to(self.data.values.device), self.buckets[bucket].steps)

    def _gathered(self, picked: list[Tensor]) -> Iterator[SequenceBatch]:
        """Gather some batches at once, each of which is then a view: small ones cost more calls than bytes."""
        together = max(GATHERED_BYTES // (self.batch_size * max(_size(self.data) // len(self.data), 1)), 1)
        for first in range(0, len(picked), together):
            group = picked[first : first + together]
            rows = self.data.select(torch.cat(group).to(self.data.values.device))
            yield from rows.split([len(members) for members in group])


def subsample_steps(batch: SequenceBatch, count: int) -> SequenceBatch:
    """Keep ``count`` time points of every longer sequence, drawn at random and kept in order; time spans add up.

    Reference: rusch2021, section 4 (random sub-sampling of EigenWorms).

    >>> batch = SequenceBatch(torch.arange(6.0).reshape(1, 6, 1), torch.tensor([6]))
    >>> kept = subsample_steps(batch, 3)
    >>> kept.lengths.item(), bool((kept.values[0, 1:, 0] > kept.values[0, :-1, 0]).all())
    (3, True)
    """
    steps = batch.values.shape[1]
    if count >= steps:
        return batch
    draw = torch.rand(len(batch), steps, device=batch.values.device)
    draw = draw.masked_fill(~batch.mask, torch.inf)
    kept = draw.argsort(1)[:, :count].sort(1).values
    lengths = batch.lengths.clamp(max=count)

    def pick(rows: Tensor | None) -> Tensor | None:
        if rows is None:
            return None
        index = kept.reshape(*kept.shape, *[1] * (rows.ndim - 2)).expand(-1, -1, *rows.shape[2:])
        return rows.gather(1, index)

    values = pick(batch.values)
    assert values is not None
    targets = pick(batch.targets) if batch.has_step_targets else batch.targets
    times = None if batch.timespans is None else pick(batch.timespans.cumsum(1))
    spans = None if times is None else times.diff(dim=1, prepend=torch.zeros_like(times[:, :1]))
    return batch.replaced(values=values, lengths=lengths, targets=targets, timespans=spans)


def _size(data: SequenceBatch) -> int:
    return data.values.numel() * data.values.element_size()

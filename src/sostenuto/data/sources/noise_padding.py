"""Noise after the signal: what turns 32 rows of an image into a test of memory over 1000 steps."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from sostenuto.checks import require
from sostenuto.data.batch import SequenceBatch


@dataclass(frozen=True)
class NoisePadding:
    """Pad each sequence of a batch to ``steps`` with standard normal noise of its own.

    Every sequence gets its own draw (the released code of rusch2021 shared one draw among all images, see
    ``docs/errata.md``, rusch2021.8). The noise is a function of ``seed`` and of the sequence's own values, which seed a
    generator on the batch's device: there is no state to save, and an image has the same noise in whatever batch, epoch
    or process it comes up, so that runs resume and split exactly. Another kind of device draws other noise.

    >>> batch = SequenceBatch.from_sequences(torch.rand(3, 32, 96))
    >>> padded = NoisePadding(steps=1000)(batch)
    >>> padded.values.shape, padded.lengths.tolist(), torch.equal(padded.values[:, :32], batch.values)
    (torch.Size([3, 1000, 96]), [1000, 1000, 1000], True)
    """

    steps: int = 1000
    seed: int = 0

    def __call__(self, batch: SequenceBatch) -> SequenceBatch:
        """Append the noise to ``(batch, time, channel)`` values; sequences have to be of one length."""
        values = batch.values
        require(values.ndim == 3, "expected (batch, time, channel) values to pad", f"got shape {tuple(values.shape)}")
        require(not batch.is_ragged, "expected sequences of one length to pad with noise", "got several lengths")
        count, have, channels = values.shape
        require(have <= self.steps, f"expected at most {self.steps} steps to pad", f"got {have}")
        padded = values.new_empty(count, self.steps, channels)
        padded[:, :have] = values
        generator = torch.Generator(values.device)
        for row, key in zip(padded, sequence_keys(values, self.seed).tolist(), strict=True):
            row[have:].normal_(generator=generator.manual_seed(key))
        more = self.steps - have
        spans = None if batch.timespans is None else pad(batch.timespans, (0, more), value=1.0)
        return replace(batch, values=padded, lengths=torch.full_like(batch.lengths, self.steps), timespans=spans)


def sequence_keys(values: Float[Tensor, "batch time channel"], seed: int) -> Int[Tensor, " batch"]:
    """Hash each sequence to 64 bits: float32 bit patterns times fixed odd weights, summed modulo 2⁶⁴.

    Whole numbers that wrap add up to the same in any order, so the key is exact on every device.
    """
    bits = values.detach().float().flatten(1).contiguous().view(torch.int32).long()
    places = torch.arange(bits.shape[1] + 1, device=values.device)
    weights = _mixed(places + (seed % 2**32) * 2**30) | 1
    return _mixed((bits * weights[1:]).sum(dim=1) + weights[0])


def _mixed(words: Int[Tensor, " word"]) -> Int[Tensor, " word"]:
    """Spread every bit of a word over all others: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    for places, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ _shifted(words, places)) * (factor - 2**64)
    return words ^ _shifted(words, 31)


def _shifted(words: Int[Tensor, " word"], places: int) -> Int[Tensor, " word"]:
    """Shift right filling with zeros; torch's own shift repeats the sign."""
    return (words >> places) & ((1 << (64 - places)) - 1)

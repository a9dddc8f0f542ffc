"""Random damped oscillators read sequences, and what they do is pooled: check, choose a backend, apply."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.checks import require
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.oscillator_bank.bank import KINDS, LANES, THRESHOLDS, OscillatorBank, pack_bank
from sostenuto.ops.oscillator_bank.reference import bank_outputs_reference, bank_shares_reference

__all__ = ["KINDS", "LANES", "THRESHOLDS", "BankStream", "OscillatorBank", "bank_outputs", "bank_shares"]

_DISTINCT = 2048
"""Spans whose coefficients are kept at a time: some 50 MB for 700 units."""


def bank_shares(
    values: Float[Tensor, "S C"],
    borders: Int[Tensor, " N1"],
    bank: OscillatorBank,
    *,
    spans: Float[Tensor, " S"] | None = None,
    backend: str = "auto",
) -> Float[Tensor, "N K U"]:
    """Return, for each sequence, the share of the time that each unit's output is above each of its thresholds.

    Sequence n is ``values[borders[n] : borders[n + 1]]``, a step a row; ``spans`` are the times before each step (1
    where there are none). A unit is a damped oscillator s ← λ^δ s + φ(δ) u, exact for an input that is held over the
    span, alone or followed by a second one (`OscillatorBank`); no output is written to memory.

    >>> from sostenuto.ops.oscillator_bank.bank import small_bank
    >>> values, borders = torch.randn(30, 1), torch.tensor([0, 10, 30])
    >>> bank_shares(values, borders, small_bank()).shape
    torch.Size([2, 16, 20])
    """
    _check(values, borders, bank, spans)
    chosen = choose_backend(backend, values.float(), built=("cpu", "gpu"))
    if chosen == "reference":
        steps = torch.ones(len(values), dtype=torch.float64) if spans is None else spans
        pairs = zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)
        shares = [bank_shares_reference(values[low:high], steps[low:high], bank) for low, high in pairs]
        return torch.stack(shares).to(values.dtype)
    if chosen == "gpu":
        from sostenuto.ops.oscillator_bank.gpu import pool as gpu_pool

        return gpu_pool(values.float(), borders, spans, bank)
    from sostenuto.ops.oscillator_bank.cpu import pool

    out = torch.empty(len(borders) - 1, THRESHOLDS, bank.n_units)
    for low, high in _few_distinct(borders, spans):
        part = slice(int(borders[low]), int(borders[high]))
        if spans is not None and high - low == 1 and len(torch.unique(spans[part])) > _DISTINCT:
            stream = BankStream(bank)
            stream.push(values[part], spans[part])
            out[low] = stream.shares()
            continue
        distinct, index = _distinct(None if spans is None else spans[part])
        own = (borders[low : high + 1] - borders[low]).long().numpy()
        pool(_rows(values[part]), own, index, pack_bank(bank, distinct), out[low:high].numpy())
    return out


def bank_outputs(
    values: Float[Tensor, "S C"],
    borders: Int[Tensor, " N1"],
    bank: OscillatorBank,
    *,
    spans: Float[Tensor, " S"] | None = None,
    picked: Int[Tensor, " P"] | None = None,
    backend: str = "auto",
) -> Float[Tensor, "P U"]:
    """Return every unit's output at every step, or at those ``picked`` in rising order: to look at, and for thresholds.

    The other arguments are those of `bank_shares`.

    >>> from sostenuto.ops.oscillator_bank.bank import small_bank
    >>> bank_outputs(torch.randn(30, 1), torch.tensor([0, 10, 30]), small_bank()).shape
    torch.Size([30, 20])
    """
    _check(values, borders, bank, spans)
    picked = torch.arange(len(values)) if picked is None else picked.long()
    if choose_backend(backend, values.float().cpu(), built=("cpu",)) == "reference":
        steps = torch.ones(len(values), dtype=torch.float64) if spans is None else spans
        pairs = zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)
        outputs = [bank_outputs_reference(values[low:high], steps[low:high], bank) for low, high in pairs]
        return torch.cat(outputs).to(values.dtype)[picked]
    from sostenuto.ops.oscillator_bank.cpu import write_outputs

    distinct, index = _distinct(spans)
    packed = pack_bank(bank, distinct)
    out = torch.empty(len(picked), len(packed.plan), LANES)
    rows = _rows(values), borders.long().numpy(), index
    write_outputs(*rows, packed.spans, packed.plan, picked.numpy(), out.numpy())
    return out.flatten(1)[:, : bank.n_units]


class BankStream:
    """A bank that reads one sequence step by step: memory of the order of the units, an answer after each step.

    >>> from sostenuto.ops.oscillator_bank.bank import small_bank
    >>> stream = BankStream(small_bank())
    >>> for value in torch.randn(10, 1, 1):
    ...     stream.push(value)
    >>> stream.shares().shape
    torch.Size([16, 20])
    """

    def __init__(self, bank: OscillatorBank) -> None:
        from sostenuto.ops.oscillator_bank.cpu import push

        self._push, self.bank = push, bank
        self._packed = pack_bank(bank, torch.ones(1))
        self._regular = np.zeros(1, np.int32)
        self._before: np.ndarray | None = None
        self._states = np.zeros((len(self._packed.plan), 4 + THRESHOLDS, LANES), np.float32)
        self._slopes = np.zeros((2, 1, 1), np.float32)
        self.elapsed = 0.0

    def push(self, values: Float[Tensor, "m C"] | np.ndarray, spans: Float[Tensor, " m"] | None = None) -> None:
        """Read ``m`` more steps, with the times before each of them (1 where there are none)."""
        rows = values if isinstance(values, np.ndarray) else _rows(values)
        steps = len(rows)
        if self._before is None:
            self._before = np.zeros((3, rows.shape[1]), np.float32)
        if steps > self._slopes.shape[1] or self._slopes.shape[2] != rows.shape[1]:
            self._slopes = np.empty((2, steps, rows.shape[1]), np.float32)
        if spans is None:
            self._push(
                rows, self._regular, self._packed.spans, self._packed.plan, self._before, self._states, self._slopes
            )
            self.elapsed += steps
            return
        for low in range(0, steps, _DISTINCT):
            part = slice(low, low + _DISTINCT)
            distinct, index = _distinct(spans[part])
            packed = pack_bank(self.bank, distinct)
            self._push(rows[part], index, packed.spans, packed.plan, self._before, self._states, self._slopes)
            self.elapsed += float(spans[part].double().sum())

    def outputs(self) -> Float[Tensor, " U"]:
        """Return every unit's output after the last step."""
        lanes = torch.arange(self.bank.n_units)
        kind = self.bank.kind[lanes // LANES]
        states = torch.from_numpy(self._states[:, :4]).transpose(0, 1).flatten(1)[:, : self.bank.n_units]
        first = 2 * (kind > 0).long()
        readout = self.bank.readout().float()
        return readout[:, 0] * states[first, lanes] + readout[:, 1] * states[first + 1, lanes]

    def shares(self) -> Float[Tensor, "K U"]:
        """Return the share of the time so far that each unit was above each of its thresholds."""
        require(self.elapsed > 0, "expected at least one step before its shares", "got none", "push a step first")
        counts = torch.from_numpy(self._states[:, 4:]).transpose(0, 1).flatten(1)[:, : self.bank.n_units]
        return counts / self.elapsed


def _rows(values: Float[Tensor, "S C"]) -> np.ndarray:
    return values.detach().float().contiguous().numpy()


def _distinct(spans: Float[Tensor, " S"] | None) -> tuple[Float[Tensor, " D"], np.ndarray]:
    """Return the spans that occur, and which of them each step has; one of 1 for all where there are none."""
    if spans is None:
        return torch.ones(1), np.zeros(1, np.int32)
    distinct, index = torch.unique(spans.float(), return_inverse=True)
    if len(distinct) == 1:
        return distinct, np.zeros(1, np.int32)
    return distinct, index.int().numpy()


def _few_distinct(borders: Int[Tensor, " N1"], spans: Float[Tensor, " S"] | None) -> Iterator[tuple[int, int]]:
    """Cut sequences into runs with few distinct spans, or a single sequence each."""
    count = len(borders) - 1
    if spans is None or len(torch.unique(spans.float())) <= _DISTINCT:
        yield 0, count
        return
    low = 0
    for high in range(1, count + 1):
        if high == count or int(borders[high + 1] - borders[low]) > _DISTINCT:
            yield low, high
            low = high


def _check(values: Tensor, borders: Tensor, bank: OscillatorBank, spans: Tensor | None) -> None:
    lengths = borders[1:] - borders[:-1]
    require(
        bool((lengths > 0).all()) and int(borders[0]) == 0 and int(borders[-1]) == len(values),
        f"expected borders from 0 to {len(values)} of sequences with at least one step",
        f"got {borders.tolist()[:8]}",
    )
    widest = int(bank.channels.max()) + 1
    require(values.shape[1] >= widest, f"expected at least {widest} channels for this bank", f"got {values.shape[1]}")
    if spans is not None:
        require(bool((spans > 0).all()), "expected spans above 0", "got others", "leave out steps at the same time")

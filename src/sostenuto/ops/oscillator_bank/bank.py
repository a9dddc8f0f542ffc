"""A bank of damped oscillators: what each unit is, and how the compiled scans read it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.checks import require

LANES = 16
"""Units of a block: they share kind, difference order and channels, and one vector register holds them."""
THRESHOLDS = 16
"""Thresholds of each unit; their counts are what a block keeps in registers."""
KINDS = ("single", "cascade", "envelope")
PARTS = 3
"""Constants of a block before its thresholds: two of the read-out, one of the envelope."""


@dataclass(frozen=True, eq=False)
class OscillatorBank:
    """U units in blocks of `LANES`; the last block may be partly empty.

    ``rate`` and ``second_rate`` are the complex rates −a + iω of the two oscillators of a unit, per unit of time, as
    pairs of real numbers; ``phase`` is the phase of its read-out. A block has a ``kind`` (an index of `KINDS`), reads
    differences of an ``order`` (0, 1 or 2) of some ``channels``, and its units mix them by ``mix``.
    """

    rate: Float[Tensor, "U 2"]
    second_rate: Float[Tensor, "U 2"]
    phase: Float[Tensor, " U"]
    mix: Float[Tensor, "U k"]
    kind: Int[Tensor, " blocks"]
    order: Int[Tensor, " blocks"]
    channels: Int[Tensor, "blocks k"]
    thresholds: Float[Tensor, "U K"]

    def __post_init__(self) -> None:
        units, blocks = len(self.rate), -(-len(self.rate) // LANES)
        require(len(self.kind) == blocks, f"expected {blocks} blocks for {units} units", f"got {len(self.kind)}")
        require(bool((self.rate[:, 0] < 0).all()), "expected damped oscillators (real part of rate < 0)", "got others")

    @property
    def n_units(self) -> int:
        """The number of units."""
        return len(self.rate)

    def coefficients(self, spans: Float[Tensor, " D"]) -> Float[Tensor, "D U 8"]:
        """Return λ^δ and φ(δ) = (λ^δ − 1)/(λ − 1) of both oscillators for each span δ, in float64.

        φ is what a value that is held over the span adds to the state, in units of what it adds over a span of 1.
        """
        parts = []
        for rate in (self.rate, self.second_rate):
            exponent = torch.view_as_complex(rate.double().contiguous())
            power = torch.exp(spans.double()[:, None] * exponent)
            held = torch.expm1(spans.double()[:, None] * exponent) / torch.expm1(exponent)
            parts += [power.real, power.imag, held.real, held.imag]
        return torch.stack(parts, -1)

    def readout(self) -> Float[Tensor, "U 3"]:
        """Return the two factors of a unit's output, Re(p s) = p₁ Re s + p₂ Im s, and that of its envelope, in float64.

        They scale a unit so that a constant input of 1 gives outputs of the order of 1.
        """
        first, second = (-torch.expm1(rate[:, 0].double()) for rate in (self.rate, self.second_rate))
        kind = self.kind.repeat_interleave(LANES)[: self.n_units]
        gain = torch.where(kind == 0, first, torch.where(kind == 1, first * second, second))
        return torch.stack([gain * self.phase.double().cos(), -gain * self.phase.double().sin(), first], 1)


class PackedBank(NamedTuple):
    """A bank as compiled code reads it: float32, units of a block side by side, filled up to whole blocks.

    ``plan`` has a row for each block: kind, order, the address of the channels' offsets in bytes, their number, the
    addresses of the mix (k, LANES) and of the coefficients (8, LANES), the bytes from one span's coefficients to the
    next, and the address of the constants (PARTS + K, LANES). ``arrays`` keeps alive what the addresses point to.
    """

    spans: np.ndarray
    plan: np.ndarray
    arrays: tuple[np.ndarray, ...]


def pack_bank(bank: OscillatorBank, spans: Float[Tensor, " D"]) -> PackedBank:
    """Lay a bank out for compiled code, with the coefficients of the spans that occur."""
    table = in_blocks(bank.coefficients(spans))
    constants = in_blocks(torch.cat([bank.readout(), bank.thresholds.double()], 1)[None])[0]
    mix = in_blocks(bank.mix.double()[None])[0]
    offsets = (4 * bank.channels.long()).contiguous().numpy()
    plan = [
        (
            int(bank.kind[b]),
            int(bank.order[b]),
            offsets[b].ctypes.data,
            offsets.shape[1],
            mix[b].ctypes.data,
            table[0, b].ctypes.data,
            table.strides[0],
            constants[b].ctypes.data,
        )
        for b in range(len(offsets))
    ]
    return PackedBank(spans.float().numpy(), np.array(plan, np.int64), (table, constants, mix, offsets))


def in_blocks(values: Float[Tensor, "D U p"]) -> np.ndarray:
    """Put units side by side in blocks: (D, blocks, p, LANES), zeros in empty lanes."""
    depth, units, parts = values.shape
    blocks = -(-units // LANES)
    filled = torch.zeros(depth, blocks * LANES, parts, dtype=torch.float32)
    filled[:, :units] = values
    return filled.view(depth, blocks, LANES, parts).transpose(2, 3).contiguous().numpy()


def small_bank(units: int = 20, channels: int = 1, *, seed: int = 0) -> OscillatorBank:
    """Draw a bank that has every kind and order of differences, as far as its blocks go.

    >>> small_bank(40).kind.tolist()
    [0, 1, 2]
    """
    generator = torch.Generator().manual_seed(seed)
    blocks, used = -(-units // LANES), min(channels, 3)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def rates() -> torch.Tensor:
        frequency = 0.05 * 60 ** uniform(units)
        return torch.stack([-frequency / (0.6 * 20 ** uniform(units)), frequency], 1)

    return OscillatorBank(
        rates(),
        rates(),
        6.28 * uniform(units),
        2 * uniform(units, used) - 1,
        torch.arange(blocks) % 3,
        (torch.arange(blocks) // 3 + torch.arange(blocks)) % 3,
        torch.stack([torch.randperm(channels, generator=generator)[:used] for _ in range(blocks)]),
        (uniform(units, THRESHOLDS) - 0.5).sort(1).values,
    )

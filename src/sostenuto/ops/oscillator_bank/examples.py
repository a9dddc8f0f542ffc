"""A small bank for examples and tests."""

import torch

from sostenuto.ops.oscillator_bank.bank import LANES, THRESHOLDS, OscillatorBank


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

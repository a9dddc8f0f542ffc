"""Draw a bank of random damped oscillators for sequences of a given length, and set its thresholds on data."""

import numpy as np
import torch

from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.ops.oscillator_bank import KINDS, LANES, THRESHOLDS, OscillatorBank, bank_outputs

MOST_CHANNELS = 6
"""Channels that a unit mixes at the most."""
_SECOND = 1.2
"""A second oscillator's frequency lies within e^±1.2 of the first one's in a cascade."""
_SAMPLE_SEQUENCES, _SAMPLE_STEPS = 32, 32
_GOLDEN = (5**0.5 - 1) / 2


def draw_bank(
    n_units: int, length: float, channels: int, quality: tuple[float, float], generator: np.random.Generator
) -> OscillatorBank:
    """Draw oscillators, with thresholds of 0 as yet.

    Frequencies are log-uniform from one period in ``length`` steps to one in 2, quality factors Q = ω/2a log-uniform
    in ``quality``, phases of the read-out uniform. Blocks of units take turns in kind (single, cascade, envelope) and
    in the order of differences they read (0, 1, 2). A block reads up to `MOST_CHANNELS` channels at random; its units
    mix them with normal weights of unit norm.

    >>> bank = draw_bank(100, 50, 1, (0.3, 8.0), np.random.default_rng(0))
    >>> bank.n_units, bank.kind.tolist(), bank.order.tolist()
    (100, [0, 1, 2, 0, 1, 2, 0], [0, 0, 0, 1, 1, 1, 2])
    """
    blocks = -(-n_units // LANES)
    slowest, fastest = 2 * np.pi / max(length, 4.0), np.pi
    frequency = slowest * (fastest / slowest) ** generator.uniform(size=n_units)
    first, second = quality[0] * (quality[1] / quality[0]) ** generator.uniform(size=(2, n_units))
    kind = np.arange(blocks) % len(KINDS)
    beside = np.clip(frequency * np.exp(generator.uniform(-_SECOND, _SECOND, n_units)), slowest, fastest)
    below = slowest * (frequency / slowest) ** generator.uniform(size=n_units)
    follows = np.repeat(kind, LANES)[:n_units] == KINDS.index("envelope")
    second_frequency = np.where(follows, below, beside)
    used = min(channels, MOST_CHANNELS)
    picked = np.stack([generator.permutation(channels)[:used] for _ in range(blocks)])
    mix = generator.normal(size=(n_units, used))
    counts = np.floor(np.exp(generator.uniform(0, np.log(used + 1), blocks))).astype(int)
    mix *= np.arange(used) < np.repeat(counts, LANES)[:n_units, None]
    mix = mix / np.linalg.norm(mix, axis=1, keepdims=True)
    return OscillatorBank(
        rate=_rates(frequency, first),
        second_rate=_rates(second_frequency, second),
        phase=torch.from_numpy(generator.uniform(0, 2 * np.pi, n_units)),
        mix=torch.from_numpy(mix),
        kind=torch.from_numpy(kind),
        order=torch.from_numpy(np.arange(blocks) // len(KINDS) % 3),
        channels=torch.from_numpy(picked),
        thresholds=torch.zeros(n_units, THRESHOLDS, dtype=torch.float64),
    )


def sample_thresholds(
    bank: OscillatorBank, sequences: PackedSequences, spans: np.ndarray | None, generator: np.random.Generator
) -> torch.Tensor:
    """Set each unit's thresholds to quantiles of its outputs on some of the sequences.

    The quantiles of all units together fill (0, 1) evenly (multiples of the golden section), so that units differ.
    """
    chosen = np.sort(generator.permutation(len(sequences))[:_SAMPLE_SEQUENCES])
    lengths = np.diff(sequences.borders)[chosen]
    rows = np.concatenate([np.arange(*sequences.borders[i : i + 2]) for i in chosen])
    borders = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
    own = None if spans is None else torch.from_numpy(spans[rows])
    outputs = bank_outputs(torch.from_numpy(sequences.values[rows]).float(), borders, bank, spans=own)
    steps = _SAMPLE_SEQUENCES * _SAMPLE_STEPS
    sampled = outputs[generator.permutation(len(outputs))[:steps]] if len(outputs) > steps else outputs
    ordered = sampled.double().sort(0).values
    shares = (np.arange(1, bank.n_units * THRESHOLDS + 1) * _GOLDEN) % 1
    places = np.sort(shares.reshape(bank.n_units, THRESHOLDS), 1) * (len(ordered) - 1)
    return ordered.gather(0, torch.from_numpy(np.round(places).astype(np.int64).T)).T.contiguous()


def _rates(frequency: np.ndarray, quality: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack([-frequency / (2 * quality), frequency], 1))

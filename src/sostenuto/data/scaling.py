"""Center and scale of every channel, over sequences of any length, blind to what is missing."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from sostenuto.checks import InputError
from sostenuto.choices import Scaling

_ROWS = 1 << 20
_CONSTANT = 1e-13
"""A spread below this fraction of the center is rounding, not signal."""


def channel_scale(
    sequences: Sequence[np.ndarray], scaling: Scaling = "standard"
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Find ``center`` and ``scale`` such that ``(x − center) / scale`` has the wanted range in every channel.

    ``"standard"``: mean and standard deviation (population); ``"minmax"``: least value and range; ``"none"``: 0 and 1.
    NaN does not count; a channel that is constant or never observed gets scale 1.

    >>> channel_scale([np.array([[0.0, 5.0], [2.0, np.nan]]), np.array([[4.0, 5.0]])], "minmax")
    ((0.0, 5.0), (4.0, 1.0))
    """
    channels = sequences[0].shape[1]
    if scaling == "none":
        return (0.0,) * channels, (1.0,) * channels
    low, high = np.full(channels, np.inf), np.full(channels, -np.inf)
    for rows in _chunks(sequences):
        low, high = np.fmin(low, np.fmin.reduce(rows)), np.fmax(high, np.fmax.reduce(rows))
    seen = low <= high
    low, high = np.where(seen, low, 0.0), np.where(seen, high, 0.0)
    # Halves, so that a range from −1e308 to 1e308 does not overflow on the way.
    middle, spread = low / 2 + high / 2, high / 2 - low / 2
    unit = np.where(spread > 0, spread, 1.0)
    if scaling == "minmax":
        center, scale = low, 2 * spread
    else:
        mean = middle + unit * _mean(sequences, middle, unit)
        center, scale = mean, unit * np.sqrt(_mean(sequences, mean, unit, power=2))
    scale = np.where(scale > _CONSTANT * np.abs(center), scale, 1.0)
    return tuple(center.tolist()), tuple(scale.tolist())


def scaled(
    sequences: Sequence[np.ndarray], center: tuple[float, ...], scale: tuple[float, ...], limits: torch.finfo
) -> list[np.ndarray]:
    """Apply ``(x − center) / scale`` in float64, keep NaN, and refuse what the target type cannot hold."""
    shift, unit = np.asarray(center), np.asarray(scale)
    kept = np.float64 if limits.bits == 64 else np.float32
    done = []
    for index, sequence in enumerate(sequences):
        with np.errstate(over="ignore"):
            values = (sequence.astype(np.float64, copy=False) - shift) / unit
            if (np.abs(values) > limits.max).any():
                raise InputError(
                    f"sequence {index}: expected values that {limits.dtype} can hold, got one beyond {limits.max:.3g}; "
                    "clip the data or scale it."
                )
        done.append(values.astype(kept, copy=False))
    return done


def _mean(sequences: Sequence[np.ndarray], center: np.ndarray, unit: np.ndarray, power: int = 1) -> np.ndarray:
    total, count = np.zeros(len(center)), np.zeros(len(center))
    for rows in _chunks(sequences):
        moved = ((rows - center) / unit) ** power
        total += np.nansum(moved, axis=0)
        count += np.isfinite(moved).sum(axis=0)
    return total / np.maximum(count, 1)


def _chunks(sequences: Sequence[np.ndarray]) -> Iterable[np.ndarray]:
    """Join sequences into float64 blocks of bounded size: fast for many short ones, lean for a few long ones."""
    block: list[np.ndarray] = []
    size = 0
    for sequence in sequences:
        block.append(sequence)
        size += sequence.size
        if size >= _ROWS:
            yield np.concatenate(block).astype(np.float64, copy=False)
            block, size = [], 0
    if block:
        yield np.concatenate(block).astype(np.float64, copy=False)

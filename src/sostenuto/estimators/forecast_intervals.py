"""Intervals by conformal prediction: how large errors were from rolling origins, relative to recent changes."""

import numpy as np
from jaxtyping import Float

_FLOOR = 0.1


def recent_change(values: Float[np.ndarray, "time channel"], window: int) -> Float[np.ndarray, "time channel"]:
    """Give the mean absolute change per step over the last ``window`` steps, and at least a tenth of that of all past.

    >>> recent_change(np.array([[0.0], [1.0], [2.0], [6.0]]), 2).ravel()
    array([1. , 1. , 1. , 2.5])
    """
    changes = np.abs(np.diff(values, axis=0))
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(changes, 0)])
    steps = np.arange(len(values))
    begin = np.maximum(steps - window, 0)
    recent = (sums - sums[begin]) / np.maximum(steps - begin, 1)[:, None]
    overall = sums / np.maximum(steps, 1)[:, None]
    recent = np.maximum(recent, _FLOOR * overall)
    if len(recent) > 1:
        recent[0] = recent[1]
    # A series that never changed: any positive unit will do.
    return np.where(recent > 0, recent, 1.0)


def conformal_quantile(
    scores: Float[np.ndarray, "n ahead channel"], coverage: float
) -> Float[np.ndarray, "ahead channel"]:
    """Give the ⌈(n + 1)·coverage⌉-th least score, the largest where n is too small for that.

    >>> conformal_quantile(np.arange(1.0, 11.0)[:, None, None], 0.8)
    array([[9.]])
    """
    rank = min(int(np.ceil((len(scores) + 1) * coverage - 1e-9)), len(scores))
    return np.sort(scores, 0)[max(rank, 1) - 1]

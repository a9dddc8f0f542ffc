"""The interval that holds in 19 of 20 repetitions of what a score loses."""

import math

import numpy as np
from jaxtyping import Float

from sostenuto.audits.batches import EvalBatch

Interval = tuple[float, float]
Z = 1.96
RESAMPLES = 400


def lost_interval(
    data: EvalBatch,
    clean: Float[np.ndarray, " batch"],
    damaged: Float[np.ndarray, " batch"],
    seed: int,
) -> Interval:
    """Give the interval of `EvalBatch.lost` between two sets of marks of the same sequences.

    Accuracies differ by a mean over sequences, whose interval is that of paired shares (Bonett and Price, 2012): two
    sequences are added that changed in opposite directions, so that no change at all in few sequences proves little.
    Errors are resampled by sequence.
    """
    count = len(clean)
    if data.measure == "accuracy":
        change = (clean - damaged) * count / data.count
        mean = float(change.sum()) / (count + 2)
        half = Z * math.sqrt(float(np.sum((change - mean) ** 2)) + 2) / (count + 2)
        return mean - half, mean + half
    if not np.isfinite(damaged).all():
        return math.inf, math.inf
    generator = np.random.default_rng(seed)
    rows = generator.integers(0, count, (RESAMPLES, count))
    answers = data.answers_of[rows].sum(1)
    scores = [np.sqrt(marks[rows].sum(1) / answers) for marks in (clean, damaged)]
    changes = [data.lost(float(before), float(after)) for before, after in zip(*scores, strict=True)]
    return float(np.quantile(changes, 0.025)), float(np.quantile(changes, 0.975))

"""The interval that holds in 19 of 20 repetitions of what a score loses."""

import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from sostenuto.audits.batches import EvalBatch

Interval = tuple[float, float]
RESAMPLES = 400
TAIL = 0.025
"""What either end of an interval leaves out, if nothing else is said."""


def lost_interval(
    data: EvalBatch,
    clean: Float[np.ndarray, " batch"],
    damaged: Float[np.ndarray, " batch"],
    seed: int,
    tail: float = TAIL,
) -> Interval:
    """Give the interval of `EvalBatch.lost` between two sets of marks of the same sequences.

    Accuracies differ by a mean over sequences, whose interval is that of paired shares (Bonett and Price, 2012): two
    sequences are added that changed in opposite directions, so that no change at all in few sequences proves little.
    Errors are resampled by sequence. Sequences that are the same count as one draw, however often they occur. Either
    end leaves out a share ``tail`` of repetitions.
    """
    groups, count = data.groups, len(clean)
    if data.measure == "accuracy":
        change = (clean - damaged) * count / data.count
        mean = float(change.sum()) / (count + 2)
        together = np.bincount(groups, weights=change - mean)
        usual = count / len(together)
        half = normal_quantile(tail) * math.sqrt(float(np.sum(together**2)) + 2 * usual**2) / (count + 2)
        return mean - half, mean + half
    if not np.isfinite(damaged).all():
        return math.inf, math.inf
    generator = np.random.default_rng(seed)
    answers, before, after = (np.bincount(groups, weights=one) for one in (data.answers_of, clean, damaged))
    resamples = max(RESAMPLES, math.ceil(10 / tail))
    rows = generator.integers(0, len(answers), (resamples, len(answers)))
    scores = [np.sqrt(marks[rows].sum(1) / answers[rows].sum(1)) for marks in (before, after)]
    changes = [data.lost(float(one), float(other)) for one, other in zip(*scores, strict=True)]
    return float(np.quantile(changes, tail)), float(np.quantile(changes, 1 - tail))


def normal_quantile(tail: float) -> float:
    """Give how many standard deviations leave out so much at one end.

    >>> round(normal_quantile(0.025), 2)
    1.96
    """
    return NormalDist().inv_cdf(1 - tail)

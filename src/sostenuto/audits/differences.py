"""Differences between two models on the same sequences, and how sure they are."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sostenuto.audits.audit import AuditReport
from sostenuto.results import Record

PAIRED = ("skill", "noise", "attack")
"""Checks that mark every sequence."""
FLIPS = 9999
RESAMPLES = 2000
LEVEL = 0.05
BY_SIGNS, MCNEMAR = "sign flips", "McNemar"


@dataclass(frozen=True)
class Difference(Record):
    """A check's score of two models over the same sequences, and their difference with its 95 % interval.

    ``p`` is the probability of so large a difference, of either sign, were the two models alike: McNemar's exact test
    where each sequence is right or wrong, else a test by random signs of the differences (``test``). ``adjusted`` is p
    after Holm's correction for all differences tested here; ``significant`` says that it is below 0.05.
    """

    check: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float
    adjusted: float
    test: str
    sequences: int

    @property
    def significant(self) -> bool:
        """Say whether the difference is more than chance."""
        return self.adjusted < LEVEL


def paired_differences(report: AuditReport, other: AuditReport, *, seed: int = 0) -> tuple[Difference, ...]:
    """Test every score that both reports have on the same sequences.

    Accuracies are shares of right answers, as they are, under the strongest noise and under the strongest attack tried;
    errors are mean squares. Reference: McNemar 1947; Holm 1979.
    """
    found = []
    for check in PAIRED:
        one, two = (part.results.get(check) for part in (report, other))
        if one is None or two is None or one.checksum != two.checksum:
            continue
        first, second = (np.asarray(part.marks, float) for part in (one, two))  # pyright: ignore[reportAttributeAccessIssue]
        if len(first) and len(first) == len(second) and np.isfinite([first, second]).all():
            found.append((check, first, second))
    tests = [paired_test(first, second, seed) for _, first, second in found]
    adjusted = holm([p for p, _ in tests])
    return tuple(
        Difference(
            check=check,
            first=float(first.mean()),
            second=float(second.mean()),
            difference=float((first - second).mean()),
            low=low,
            high=high,
            p=p,
            adjusted=sure,
            test=test,
            sequences=len(first),
        )
        for (check, first, second), (p, test), sure in zip(found, tests, adjusted, strict=True)
        for low, high in [_interval(first - second, seed)]
    )


def paired_test(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " n"], seed: int) -> tuple[float, str]:
    """Give the two-sided p of the difference between two marks of the same sequences, and the name of the test.

    >>> paired_test(np.array([1.0] * 9 + [0.0]), np.array([0.0] * 9 + [1.0]), 0)
    (0.021484375, 'McNemar')
    """
    change = first - second
    if np.isin(first, (0.0, 1.0)).all() and np.isin(second, (0.0, 1.0)).all():
        better, worse = int((change > 0).sum()), int((change < 0).sum())
        apart = better + worse
        tail = sum(math.comb(apart, k) for k in range(min(better, worse) + 1)) / 2**apart
        return min(1.0, 2 * tail), MCNEMAR
    signs = np.random.default_rng((seed, 12)).integers(0, 2, (FLIPS, len(change)), dtype=np.int8) * 2 - 1
    reached = np.abs(signs @ change) >= abs(change.sum()) * (1 - 1e-12)
    return float((1 + reached.sum()) / (1 + FLIPS)), BY_SIGNS


def holm(ps: list[float]) -> list[float]:
    """Correct p values for their number, step by step.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order, running = np.argsort(ps, kind="stable"), 0.0
    adjusted = [0.0] * len(ps)
    for place, index in enumerate(order):
        running = max(running, (len(ps) - place) * ps[index])
        adjusted[index] = min(1.0, running)
    return adjusted


def _interval(change: Float[np.ndarray, " n"], seed: int) -> tuple[float, float]:
    """Resample sequences; where none differs, the interval is that of a share never seen."""
    if not change.any():
        return -3 / len(change), 3 / len(change)
    rows = np.random.default_rng((seed, 13)).integers(0, len(change), (RESAMPLES, len(change)))
    low, high = np.quantile(change[rows].mean(1), [0.025, 0.975])
    return float(low), float(high)

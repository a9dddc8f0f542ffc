"""Every bound of fermanian2021 on 2000 random models and paths: how many break it, and how close they come.

Models have 1 to 64 units, biases to some 100, weights over three decades and paths that are rough, smooth or jump. A
bound that does not apply to a model says so; models are drawn until it applied to 2000. A bound counts as broken where
the measured number exceeds it by more than the rounding of both, 1e-9 of it and 1e-12.
"""

import math
import time
from typing import Any

import numpy as np
from tqdm import tqdm

from sostenuto.benchmarks._bound_cases import CASES, Case

TITLE = "every bound of fermanian2021 on 2000 random models: violations, and the share of the bound that is reached"
COUNT = 2000
RELATIVE, ABSOLUTE = 1e-9, 1e-12
QUANTILES = {"median": 0.5, "upper_decile": 0.9, "largest": 1.0}
_GROUPS = 1000
"""Groups after which a bound that never applies is given up."""


def run(progress: bool = True, count: int = COUNT, cases: tuple[str, ...] = tuple(CASES)) -> dict[str, Any]:
    """Return, for every bound, models drawn and covered, violations, and quantiles of measured/bound."""
    record: dict[str, Any] = {}
    seconds = {}
    for name in tqdm(cases, desc="bounds", unit="case", disable=not progress):
        begun = time.perf_counter()
        by_bound = collect(CASES[name], count)
        record |= {bound: summarize(pairs) for bound, pairs in by_bound.items()}
        seconds[name] = time.perf_counter() - begun
    return {
        "asked": count,
        "least_applicable": min(each["applicable"] for each in record.values()),
        "violations": sum(each["violations"] for each in record.values()),
        "bounds": record,
        "seconds": seconds,
    }


def collect(case: Case, count: int) -> dict[str, list[tuple[float, float]]]:
    """Draw groups until each bound of ``case`` applied to ``count`` models; give pairs (measured, bound)."""
    by_bound: dict[str, list[tuple[float, float]]] = {}
    for seed in range(_GROUPS):
        for bound, measured, value in case(seed):
            by_bound.setdefault(bound, []).append((measured, value))
        if min(sum(not math.isnan(value) for _, value in pairs) for pairs in by_bound.values()) >= count:
            break
    return by_bound


def summarize(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """Count what applies and what is broken, and say how much of the bound is reached.

    >>> summarize([(1.0, 2.0), (3.0, 2.0), (1.0, math.nan)])["violations"]
    1
    """
    measured, bound = np.array(pairs).T
    covered = ~np.isnan(bound)
    measured, bound = measured[covered], bound[covered]
    broken = ~(measured <= bound * (1 + RELATIVE) + ABSOLUTE)
    # Where both are 0 but for rounding there is no share to speak of.
    share = measured[bound > ABSOLUTE] / bound[bound > ABSOLUTE]
    return {
        "drawn": len(pairs),
        "applicable": int(covered.sum()),
        "violations": int(broken.sum()),
        "reached": {name: float(np.quantile(share, q)) if len(share) else 0.0 for name, q in QUANTILES.items()},
    }

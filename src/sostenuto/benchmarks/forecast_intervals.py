"""How many values the intervals of `Forecaster` hold, at every horizon, on drawn and on classic series.

Every law is drawn anew ``draws`` times: one fit, one forecast of 12 steps, default settings. The classic series have
three fits each, on the past of a fold, and up to 20 origins inside it; neighboring ones share most of their values.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from tqdm import tqdm

from sostenuto.benchmarks._classic_series import CLASSICS
from sostenuto.benchmarks.forecasting import autoregression
from sostenuto.benchmarks.forecasting import load as load_series
from sostenuto.estimators import Forecaster

TITLE = "Share of values inside the 80 and 95 % intervals of Forecaster, by horizon"
COVERAGES = (0.8, 0.95)
DRAWS, AHEAD, LENGTHS = 40, 12, (30, 60, 150, 400)
FOLDS, ORIGINS = 3, 20

Generator = np.random.Generator
Values = np.ndarray


def _season(steps: int, size: float = 2.0) -> Values:
    return size * np.sin(2 * np.pi * np.arange(steps) / 12)


def _shifts(generator: Generator, steps: int) -> Values:
    jumps = 5 * generator.normal(size=steps) * (generator.uniform(size=steps) < 0.02)
    return jumps.cumsum() + generator.normal(size=steps)


def _swelling(generator: Generator, steps: int) -> Values:
    """Draw noise that swells and dies down over 50 steps, on a season."""
    size = np.exp(0.6 * np.sin(2 * np.pi * np.arange(steps) / 50 + generator.uniform(0, 2 * np.pi)))
    return _season(steps, 1.0) + size * generator.normal(size=steps)


def _bursts(generator: Generator, steps: int) -> Values:
    """Sum up changes whose variance depends on the last change and on itself (GARCH)."""
    noise, change, variance = generator.normal(size=steps), np.zeros(steps), 1.0
    for step in range(1, steps):
        variance = 0.1 + 0.1 * change[step - 1] ** 2 + 0.85 * variance
        change[step] = variance**0.5 * noise[step]
    return change.cumsum()


LAWS: dict[str, Callable[[Generator, int], Values]] = {
    "random walk": lambda draw, steps: draw.normal(size=steps).cumsum(),
    "autoregression, 0.8": lambda draw, steps: autoregression((0.8,), draw.normal(size=steps)),
    "noisy oscillation": lambda draw, steps: autoregression((1.6, -0.8), draw.normal(size=steps)),
    "season and trend": lambda draw, steps: 0.05 * np.arange(steps) + _season(steps) + 0.5 * draw.normal(size=steps),
    "season on a walk": lambda draw, steps: (
        _season(steps) + 0.3 * draw.normal(size=steps).cumsum() + 0.3 * draw.normal(size=steps)
    ),
    "trend that drifts": lambda draw, steps: 0.02 * draw.normal(size=steps).cumsum().cumsum() + draw.normal(size=steps),
    "noise that swells": _swelling,
    "walk in bursts": _bursts,
    "counts": lambda draw, steps: draw.poisson(np.exp(1 + _season(steps, 0.3))).astype(float),
    "level shifts": _shifts,
    "heavy tails": lambda draw, steps: draw.standard_t(3, size=steps),
    "growth": lambda draw, steps: np.exp(
        0.01 * np.arange(steps) + _season(steps, 0.1) + 0.03 * draw.normal(size=steps).cumsum()
    ),
}
"""What series are drawn from."""


def run(
    progress: bool = True,
    draws: int = DRAWS,
    lengths: tuple[int, ...] = LENGTHS,
    names: tuple[str, ...] = tuple(CLASSICS),
) -> dict[str, Any]:
    """Return shares of values inside intervals for every law and length, and for every classic series."""
    trials = [(law, steps) for law in LAWS for steps in lengths]
    laws: dict[str, Any] = {law: {} for law in LAWS}
    for law, steps in tqdm(trials, desc="laws", unit="law", disable=not progress):
        laws[law][str(steps)] = shares(np.stack([drawn(law, steps, seed) for seed in range(draws)]))
    classics = {name: shares(backtested(name)) for name in tqdm(names, desc="classics", disable=not progress)}
    means = {
        str(steps): {str(level): _mean([laws[law][str(steps)] for law in LAWS], str(level)) for level in COVERAGES}
        for steps in lengths
    }
    every = {str(level): _mean(list(classics.values()), str(level)) for level in COVERAGES}
    return {"draws": draws, "horizon": AHEAD, "laws": laws, "classics": classics, "mean": means, "mean_classics": every}


def drawn(law: str, steps: int, seed: int) -> np.ndarray:
    """Say which of the next values lie inside the intervals, (coverage, ahead), after ``steps`` of a law."""
    values = LAWS[law](np.random.default_rng([seed, steps]), steps + AHEAD)
    return _inside(Forecaster(AHEAD, random_state=0).fit(values[:steps]), values, steps)


def backtested(name: str) -> np.ndarray:
    """Say it for every origin of a classic series: (origin, coverage, ahead)."""
    values, horizon, _ = load_series(name)
    borders = np.linspace(len(values) // 2, len(values) - horizon + 1, FOLDS + 1).astype(int)
    inside = []
    for begin, end in pairwise(borders.tolist()):
        fitted = Forecaster(horizon, random_state=0).fit(values[:begin])
        origins = np.unique(np.linspace(begin, end - 1, min(ORIGINS, end - begin)).astype(int))
        inside += [_inside(fitted, values, int(origin)) for origin in origins]
    return np.stack(inside)


def _inside(fitted: Forecaster, values: np.ndarray, origin: int) -> np.ndarray:
    future = values[origin : origin + fitted.horizon]
    ends = [fitted.predict_interval(values[:origin], coverage=level)[..., 0] for level in COVERAGES]
    return np.stack([(low <= future) & (future <= high) for low, high in ends])


def shares(inside: np.ndarray) -> dict[str, Any]:
    """Average over series or origins, for each coverage: over all horizons, and by horizon.

    >>> shares(np.array([[[True, False]], [[True, True]]]))["0.8"]
    {'mean': 0.75, 'standard_error': 0.25, 'by_horizon': [1.0, 0.5]}
    """
    return {
        str(level): {
            "mean": float(part.mean()),
            "standard_error": float(part.mean(1).std(ddof=1) / len(part) ** 0.5) if len(part) > 1 else 0.0,
            "by_horizon": [float(each) for each in part.mean(0)],
        }
        for level, part in zip(COVERAGES, inside.swapaxes(0, 1), strict=False)
    }


def _mean(rows: list[dict[str, Any]], level: str) -> float | None:
    return float(np.mean([row[level]["mean"] for row in rows])) if rows else None

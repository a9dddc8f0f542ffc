"""`Forecaster` at its default settings beside the previous value, the seasonal-naive forecast and a ridge on lags.

Every series is backtested: three fits, each on the past of its fold, forecasts from up to 20 origins inside it. The
seasonal-naive forecast is told the true season; the forecaster looks for it itself. Settings were chosen on
`CHOSEN_ON`; the others had no part in it. `sostenuto bench forecast_intervals` judges the intervals.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm import tqdm

from sostenuto import datasets
from sostenuto.benchmarks._classic_series import CLASSICS
from sostenuto.checks import InputError
from sostenuto.estimators import Forecaster
from sostenuto.estimators.forecast.backtest import backtest

TITLE = "Forecaster against previous value, seasonal naive and ridge on lags: rmse over backtests of 23 series"
CHOSEN_ON = (
    "air passengers", "nottingham", "uk gas", "driver deaths", "google", "sine and trend", "two seasons", "growth",
    "level shifts", "random walk", "damped oscillation", "second order", "pressure", "sunspots",
)  # fmt: skip
FOLDS = 3
Series = tuple[np.ndarray, int, int]
"""Values, the steps to forecast, the season in steps (0: none)."""


def sine_and_trend(generator: np.random.Generator) -> Series:
    """Draw a sine of 30 steps on a line, with noise."""
    steps = np.arange(600)
    return 3 * np.sin(2 * np.pi * steps / 30) + 0.02 * steps + 0.3 * generator.normal(size=600), 14, 30


def two_seasons(generator: np.random.Generator) -> Series:
    """Draw ten weeks of hourly counts: two rush hours a day, quiet weekends, autoregressive noise."""
    hours = np.arange(24 * 7 * 10)
    week = 1 + 0.35 * (hours // 24 % 7 < 5)
    day = np.exp(-(((hours % 24 - 9) / 2.5) ** 2) / 2) + 1.2 * np.exp(-(((hours % 24 - 18) / 3) ** 2) / 2)
    return 100 * week * day + 40 + autoregression((0.8,), 5 * generator.normal(size=len(hours))), 24, 168


def growth(generator: np.random.Generator) -> Series:
    """Draw twenty years of months that grow by 10 % a year, with a season that grows along."""
    months = np.arange(240)
    level = np.cumsum(0.008 + 0.01 * generator.normal(size=240))
    season = 0.15 * np.sin(2 * np.pi * months / 12) + 0.07 * np.cos(4 * np.pi * months / 12)
    return 100 * np.exp(level + season + 0.02 * generator.normal(size=240)), 12, 12


def second_order(generator: np.random.Generator) -> Series:
    """Draw an autoregression of order 2, a noisy oscillation of some 14 steps."""
    return autoregression((1.6, -0.8), generator.normal(size=800)), 12, 0


def damped_oscillation(generator: np.random.Generator) -> Series:
    """Draw an oscillator of 37 steps that is struck now and then and dies out, on a drifting level."""
    struck = 2 * generator.normal(size=900) * (generator.uniform(size=900) < 0.03) + 0.02 * generator.normal(size=900)
    turn = 2 * np.cos(2 * np.pi / 37) * np.exp(-0.01)
    drift = np.cumsum(0.01 + 0.03 * generator.normal(size=900))
    return autoregression((turn, -np.exp(-0.02)), 0.2 * struck) + drift, 14, 37


def level_shifts(generator: np.random.Generator) -> Series:
    """Draw a season of 12 steps on a level that jumps now and then."""
    steps = np.arange(700)
    level = np.cumsum((generator.uniform(size=700) < 0.015) * generator.normal(size=700) * 4)
    return level + 1.5 * np.sin(2 * np.pi * steps / 12) + 0.4 * generator.normal(size=700), 12, 12


def mackey_glass(generator: np.random.Generator) -> Series:
    """Integrate the Mackey–Glass equation (τ = 17, chaos) and add a little noise."""
    values, delay = np.full(20_000, 1.2), 170
    for step in range(delay, len(values) - 1):
        past = values[step - delay]
        values[step + 1] = values[step] + 0.1 * (0.2 * past / (1 + past**10) - 0.1 * values[step])
    return values[2000::10][:1500] + 0.01 * generator.normal(size=1500), 14, 0


def random_walk(generator: np.random.Generator) -> Series:
    """Draw sums of noise: nothing beats the previous value."""
    return np.cumsum(generator.normal(size=1000)), 14, 0


GENERATED: dict[str, Callable[[np.random.Generator], Series]] = {
    "sine and trend": sine_and_trend,
    "two seasons": two_seasons,
    "growth": growth,
    "second order": second_order,
    "damped oscillation": damped_oscillation,
    "level shifts": level_shifts,
    "Mackey-Glass": mackey_glass,
    "random walk": random_walk,
}
ARCHIVED = {"google": ("google-stock", 14, 5), "pressure": ("ucr/PigCVP", 20, 0)}
"""Series of data sets that must be at hand: the closing price, and the first pig's central venous pressure."""
NAMES = (*CLASSICS, *ARCHIVED, *GENERATED)


def run(progress: bool = True, names: tuple[str, ...] = NAMES, data_dir: str | None = None) -> dict[str, Any]:
    """Return rmse of each method on each series, ratios of the forecaster's to the others', seconds, and coverage."""
    record: dict[str, Any] = {"folds": FOLDS, "chosen_on": list(CHOSEN_ON), "series": {}, "left_out": {}}
    for name in tqdm(names, desc="forecasting", unit="series", disable=not progress):
        try:
            values, horizon, season = load(name, data_dir)
        except (InputError, OSError) as error:
            record["left_out"][name] = str(error)
            continue
        record["series"][name] = measure(values, horizon, season)
    rows = record["series"].values()
    record["ahead_of_all"] = sum(max(row["ratios"].values()) < 1 for row in rows)
    record["not_worse_than_any"] = sum(max(row["ratios"].values()) <= 1.005 for row in rows)
    return record


def load(name: str, data_dir: str | None = None) -> Series:
    """Return a series by name."""
    if name in CLASSICS:
        _, horizon, season, text = CLASSICS[name]
        return np.array(text.split(), float), horizon, season
    if name in GENERATED:
        return GENERATED[name](np.random.default_rng(list(GENERATED).index(name)))
    source, horizon, season = ARCHIVED[name]
    data = datasets.load(source, data_dir=data_dir)
    if source == "google-stock":
        closing = list(data.extras["columns"]).index("Close")
        return np.asarray(data.extras["series"], float)[:, closing], horizon, season
    return np.asarray(data.train.sequences[0], float)[:, 0], horizon, season


def measure(values: np.ndarray, horizon: int, season: int) -> dict[str, Any]:
    """Backtest one series; without a season the seasonal-naive forecast is the previous value."""
    begun = time.perf_counter()
    scores = backtest(Forecaster(horizon, random_state=0), values, folds=FOLDS, season=season)
    own = scores.methods[0]
    errors = {each.name: each.rmse for each in scores.methods}
    return {
        "steps": len(values),
        "horizon": horizon,
        "season": season,
        "origins": scores.origins,
        "rmse": errors,
        "ratios": {name: own.rmse / error for name, error in errors.items() if name != own.name},
        "mase": own.mase,
        "covered": scores.covered,
        "seconds": time.perf_counter() - begun,
    }


def autoregression(weights: tuple[float, ...], noise: np.ndarray) -> np.ndarray:
    """Draw an autoregression, the nearest weight first."""
    out = np.zeros(len(noise))
    for step in range(len(noise)):
        out[step] = noise[step] + sum(w * out[step - k] for k, w in enumerate(weights, 1) if step >= k)
    return out

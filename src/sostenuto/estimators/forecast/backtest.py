"""Backtesting: fit on the past of each fold, forecast inside it, beside forecasts that anybody can make."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import clone
from sklearn.linear_model import RidgeCV

from sostenuto.checks import check_count, require
from sostenuto.data.batch import interpolate
from sostenuto.estimators.forecast.mixture import base_forecasts, future_values
from sostenuto.estimators.forecast.series import read_series
from sostenuto.results import BacktestResult, ForecastErrors

MOST_ORIGINS = 20
"""Origins of a fold, evenly spaced."""
_FIRST = 0.5
SEASONAL = "seasonal naive"


def backtest(
    forecaster: Any,
    y: Any,
    covariates: Any = None,
    times: Any = None,
    *,
    future_covariates: Any = None,
    folds: int = 5,
    season: int | None = None,
) -> BacktestResult:
    """Measure a forecaster and simple forecasts on the later half of one series.

    The half is cut into ``folds``. For each, a clone is fitted on everything before it, and forecasts from up to
    20 origins inside it, each from the values up to that origin alone. Beside it: the previous value, the
    seasonal-naive forecast (``season``, or the one that the fits chose) and a ridge regression on as many past values
    (leave-one-out penalty), refitted at the same moments.

    Args:
        forecaster: a `Forecaster`; it is not changed.
        y: one series (time,) or (time, channel).
        covariates: past covariates, as in `fit`.
        times: moments, as in `fit`.
        future_covariates: covariates known ahead, for every step.
        folds: how often to fit.
        season: steps of the seasonal-naive forecast; 0 leaves it out.

    Returns:
        Errors of each method by horizon, and how many values the intervals held.
    """
    check_count("folds", folds)
    _, several = read_series(y, covariates, times, future_covariates, forecaster.layout)
    require(not several, "expected one series to backtest", "got several", "backtest one at a time")
    series = _by_step(y, covariates, times, future_covariates, forecaster.layout)
    horizon, length = forecaster.horizon, len(series["y"])
    borders = np.linspace(length * _FIRST, length - horizon + 1, folds + 1).astype(int)
    enough = borders[0] > horizon + 1 and borders[-1] - borders[0] >= folds
    require(bool(enough), f"expected at least {2 * (horizon + folds + 2)} steps", f"got {length}", "take fewer folds")
    trials = [_Fold(forecaster, series, int(begin), season) for begin in borders[:-1]]
    for trial, end in zip(trials, borders[1:], strict=True):
        count = min(MOST_ORIGINS, int(end) - trial.begin)
        for origin in np.unique(np.linspace(trial.begin, end - 1, count).astype(int)):
            trial.forecast(series, int(origin))
    unit = np.concatenate([np.stack(trial.unit) for trial in trials])
    inside = np.concatenate([np.stack(trial.inside) for trial in trials])
    names = [name for name in trials[0].errors if name != SEASONAL or any(trial.season for trial in trials)]
    errors = {name: np.concatenate([np.stack(trial.errors[name]) for trial in trials]) for name in names}
    seasons = [trial.season for trial in trials]
    return BacktestResult(
        horizon=horizon,
        season=max(set(seasons), key=seasons.count),
        folds=folds,
        origins=len(inside),
        coverage=float(forecaster.coverage),
        covered=float(np.nanmean(inside)),
        covered_by_horizon=_numbers(np.nanmean(inside, (0, 2))),
        methods=tuple(_errors(name, each, unit) for name, each in errors.items()),
        settings={name: str(value) for name, value in forecaster.get_params().items()},
    )


class _Fold:
    """A forecaster and a ridge on lags, fitted on the first ``begin`` steps, and their errors after that."""

    def __init__(self, forecaster: Any, given: dict[str, Any], begin: int, season: int | None) -> None:
        self.begin, self.horizon = begin, forecaster.horizon
        fresh: Any = clone(forecaster)
        self.fitted = fresh.set_params(layout="btc").fit(**_until(given, begin, self.horizon))
        self.season = max(self.fitted.seasons_, default=0) if season is None else season
        past = _filled(given["y"][:begin])
        self.ridge = LagRidge(max(self.fitted.lags_), self.horizon).fit(past)
        step = max(self.season, 1)
        self.scale = np.abs(past[step:] - past[:-step]).mean(0)
        self.errors: dict[str, list[np.ndarray]] = {}
        self.inside: list[np.ndarray] = []
        self.unit: list[np.ndarray] = []

    def forecast(self, given: dict[str, Any], origin: int) -> None:
        """Forecast from the first ``origin`` steps, and keep the errors; those of missing values are NaN."""
        known = _until(given, origin, self.horizon)
        low, high = self.fitted.predict_interval(**known)
        seen = _filled(given["y"][:origin])
        actual = given["y"][origin : origin + self.horizon]
        forecasts = {
            "forecaster": self.fitted.predict(**known),
            "previous value": base_forecasts(seen, self.horizon)[-1],
            SEASONAL: base_forecasts(seen, self.horizon, self.season)[-1],
            "ridge on lags": self.ridge.predict(seen),
        }
        for name, forecast in forecasts.items():
            self.errors.setdefault(name, []).append(forecast - actual)
        self.inside.append(np.where(np.isnan(actual), np.nan, (low <= actual) & (actual <= high)))
        self.unit.append(np.broadcast_to(np.where(self.scale > 0, self.scale, np.nan), actual.shape))


class LagRidge:
    """Ridge regression on the last ``lags`` values of every channel, penalty by leave-one-out: a fair simple forecast.

    >>> line = np.arange(60.0)[:, None]
    >>> LagRidge(4, 2).fit(line).predict(line).round(1).ravel()
    array([60., 61.])
    """

    def __init__(self, lags: int, horizon: int) -> None:
        self.lags, self.horizon = lags, horizon

    def fit(self, values: Float[np.ndarray, "time channel"]) -> "LagRidge":
        """Learn from one series."""
        self.lags = max(1, min(self.lags, len(values) - self.horizon - 2))
        self.center, self.scale = values.mean(0), np.maximum(values.std(0), 1e-12)
        scaled = (values - self.center) / self.scale
        origins = np.arange(self.lags - 1, len(values) - self.horizon)
        targets = future_values(scaled, self.horizon)[origins].reshape(len(origins), -1)
        self.model = RidgeCV(np.logspace(-5, 5, 21)).fit(self._rows(scaled, origins), targets)
        return self

    def predict(self, values: Float[np.ndarray, "time channel"]) -> Float[np.ndarray, "horizon channel"]:
        """Forecast what comes after a series."""
        scaled = (values - self.center) / self.scale
        made = self.model.predict(self._rows(scaled, np.array([len(values) - 1])))
        return made.reshape(self.horizon, -1) * self.scale + self.center

    def _rows(self, values: np.ndarray, origins: np.ndarray) -> np.ndarray:
        return values[origins[:, None] - np.arange(self.lags)].reshape(len(origins), -1)


def _by_step(y: Any, covariates: Any, times: Any, future_covariates: Any, layout: str) -> dict[str, Any]:
    """Lay everything out as (time, channel), gaps and all: what is cut from it is filled from its own past."""
    out: dict[str, Any] = {"times": None if times is None else np.asarray(times)}
    for name, part in (("y", y), ("covariates", covariates), ("future_covariates", future_covariates)):
        array = None if part is None else np.asarray(part, dtype=np.float64)
        if array is not None:
            array = array[:, None] if array.ndim == 1 else array.T if layout == "bct" else array
        out[name] = array
    return out


def _until(given: dict[str, Any], steps: int, horizon: int) -> dict[str, Any]:
    """Cut off what is not known after ``steps`` steps."""
    ends = {"future_covariates": steps + horizon}
    return {name: None if part is None else part[: ends.get(name, steps)] for name, part in given.items()}


def _filled(values: np.ndarray) -> np.ndarray:
    return interpolate(values) if np.isnan(values).any() else values


def _errors(name: str, errors: np.ndarray, unit: np.ndarray) -> ForecastErrors:
    """Average errors (origin, ahead, channel) over all, and over origins and channels."""
    squares, sizes = np.square(errors), np.abs(errors)
    return ForecastErrors(
        name,
        rmse=float(np.sqrt(np.nanmean(squares))),
        mae=float(np.nanmean(sizes)),
        mase=float(np.nanmean(sizes / unit)),
        rmse_by_horizon=_numbers(np.sqrt(np.nanmean(squares, (0, 2)))),
        mae_by_horizon=_numbers(np.nanmean(sizes, (0, 2))),
        mase_by_horizon=_numbers(np.nanmean(sizes / unit, (0, 2))),
    )


def _numbers(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)

"""`Forecaster`: the next values of a series by exponential smoothing, and ridges on oscillators' states."""

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.utils.validation import check_is_fitted

from sostenuto.checks import check_count, check_fraction, require
from sostenuto.estimators.forecast.features import draw_features
from sostenuto.estimators.forecast.mixture import (
    Origins,
    base_forecasts,
    conformal_quantile,
    fit_mixture,
    recent_change,
    rising,
    view_base,
)
from sostenuto.estimators.forecast.series import ForecastSeries, fill_by_season, next_times, read_series, read_times
from sostenuto.estimators.forecast.smoothing import smoothed_forecasts
from sostenuto.estimators.forecast.state import ForecastState
from sostenuto.estimators.settings import draw_seed
from sostenuto.estimators.stored import load_kernel_estimator, save_kernel_estimator
from sostenuto.results import BacktestResult
from sostenuto.types import PathLike

_NEAR, _FARTHEST_NEAR = 12, 30


class Forecaster(ForecastState):
    """Forecast the next ``horizon`` steps of a series, all at once, with intervals.

    Exponential smoothing of level, trend and season, with several gains, makes simple forecasts beside the previous
    value and the last season's; of the values or, where all are positive, of their logarithms. Ridge regressions read,
    at each step, recent values, means over seasons, the states of random damped oscillators and random tanh units of
    these; they forecast the change from a base: the previous value, the last season's value or the mean. Penalties, and
    the weights of the mixtures of simple forecasts and of all, are those of the least squared error from rolling
    origins: fits on the past of each of ``folds`` folds, forecasts inside it. The mixture of all is followed as far as
    its gain is beyond chance, and goes no farther from the simple one than it did at these origins, in recent changes
    of the series.

    Args:
        horizon: steps to forecast.
        n_units: oscillators, and as many random units.
        season: steps of a season, several of them, ``"auto"`` to look for one (and to take the calendar's where none is
            found: 12 months, 7 days, 24 hours, …), or None.
        coverage: share of future values that intervals should hold.
        folds: folds of rolling origins.
        layout: ``"btc"`` for arrays (time, channel), ``"bct"`` for (channel, time).
        random_state: seed of the oscillators.

    Fitted attributes: ``seasons_``, ``lags_``, ``members_`` (what is mixed: transform, features, base, penalty,
    weight, and change of the weight), ``trust_`` (0: the simple forecasts alone, 1: the mixture of all alone).

    >>> steps = np.arange(200)
    >>> series = np.sin(2 * np.pi * steps / 20) + 0.02 * steps
    >>> forecaster = Forecaster(horizon=5, random_state=0).fit(series)
    >>> forecaster.seasons_, bool(abs(forecaster.predict()[-1, 0] - np.sin(2 * np.pi * 204 / 20) - 4.08) < 0.05)
    ((20,), True)
    """

    def __init__(
        self,
        horizon: int = 14,
        *,
        n_units: int = 96,
        season: Any = "auto",
        coverage: float = 0.9,
        folds: int = 5,
        layout: str = "btc",
        random_state: Any = None,
    ) -> None:
        self.horizon, self.n_units, self.season = horizon, n_units, season
        self.coverage, self.folds, self.layout = coverage, folds, layout
        self.random_state = random_state

    def fit(self, y: Any, covariates: Any = None, times: Any = None, *, future_covariates: Any = None) -> "Forecaster":
        """Learn from a series (time,) or (time, channel), or several: a list, or an array (series, time, channel).

        Several series share one model; each is scaled by its own mean and deviation.

        Args:
            y: the values; NaN is filled by a straight line in time, the last value at the end, and the season on top.
            covariates: (time, covariate), known up to the present; they are read and not forecast.
            times: the moment of each step: numbers, numpy dates or ISO texts. Irregular ones drive the oscillators
                exactly; lags, seasons and horizons still count steps.
            future_covariates: (time, covariate) or (time + horizon, covariate), known ahead, such as holidays.

        Returns:
            The forecaster.
        """
        for name, least in (("horizon", 1), ("n_units", 1), ("folds", 2)):
            check_count(name, getattr(self, name), least=least)
        check_fraction("coverage", self.coverage)
        series, self.several_ = read_series(y, covariates, times, future_covariates, self.layout)
        longest = max(len(each.values) for each in series)
        least = self.horizon + 2
        require(longest >= least, f"expected at least {least} steps, horizon + 2", f"got {longest}", "forecast fewer")
        self.seed_ = draw_seed(self.random_state)
        self.seasons_ = self._choose_seasons(series)
        series = [fill_by_season(each, max(self.seasons_, default=0)) for each in series]
        self._keep_series(series)
        length = int(np.median([len(each.values) for each in series]))
        near = max([_NEAR, min(self.horizon, _FARTHEST_NEAR), *(m + 1 for m in self.seasons_ if m <= _FARTHEST_NEAR)])
        near = max(1, min(near, (length - self.horizon) // 4))
        far = (lag for m in self.seasons_ for lag in range(max(1, m - self.horizon), m + 2))
        self.lags_ = tuple(sorted({*range(1, near + 1), *far}))
        self._learn_scales(series)
        first = max(*self.lags_, *self.seasons_) if self.seasons_ else max(self.lags_)
        origins = Origins.cut([len(each.values) for each in series], first, self.horizon, self.folds)
        if not origins.held_out.any():
            self._fit_simple(series)
            return self
        scaled = [self._scaled(each, "value") for each in series]
        drawn = draw_features(
            [(x, self._known(each, pad=True), each.spans) for x, each in zip(scaled, series, strict=True)],
            horizon=self.horizon,
            lags=self.lags_,
            seasons=self.seasons_,
            targets=series[0].values.shape[1],
            n_units=self.n_units,
            generator=np.random.default_rng(self.seed_),
        )
        self._keep_features(drawn)
        views = [self._view(name, series, drawn, pad=True) for name in self.transforms_]
        fitted = fit_mixture([each.values for each in series], views, self.seasons_, origins)
        self._keep_mixture(fitted)
        held = origins.held_out
        self._keep_scores(series, fitted.errors, fitted.changes, origins.series[held], origins.step[held])
        return self

    def predict(
        self, y: Any = None, covariates: Any = None, times: Any = None, *, future_covariates: Any = None
    ) -> Float[np.ndarray, "*series horizon channel"]:
        """Forecast what comes after the training series, or after another one that is given with its past.

        Args:
            y: a series or a list, as in `fit`; None goes on from the training series.
            covariates: past covariates of ``y``, where `fit` had them.
            times: moments of ``y``, where `fit` had irregular ones.
            future_covariates: (time + horizon, covariate) beside ``y``, or the ``horizon`` new rows without it.

        Returns:
            (horizon, channel), nearest step first; (series, horizon, channel) for several.
        """
        series, several = self._given(y, covariates, times, future_covariates)
        forecasts = np.stack([self._forecast(each) for each in series])
        return forecasts if several else forecasts[0]

    def predict_interval(
        self,
        y: Any = None,
        covariates: Any = None,
        times: Any = None,
        *,
        future_covariates: Any = None,
        coverage: float | None = None,
    ) -> Float[np.ndarray, "*series 2 horizon channel"]:
        """Give the lower and upper ends of an interval around each forecast, arguments as for `predict`.

        Split conformal prediction, one horizon and channel at a time: the half width is the recent mean absolute
        change of the series times a quantile of such ratios |error| / recent change from n rolling origins, whose
        forecasts were made without them. Origins overlap, so that the n ratios are worth m ≤ n, by their
        autocorrelation; the quantile is that of ⌈(m + 1)·coverage⌉ of m. If the ratios and the future one were
        exchangeable, and m = n, the interval would hold the value with a probability of at least ``coverage``. It is
        about each horizon alone, not about all at once. Where fewer than coverage / (1 − coverage) stretches of a
        horizon's length were seen, the interval is at least as wide as Student's for as many normal errors. No
        horizon has a narrower interval than one before it.
        """
        wanted = self.coverage if coverage is None else coverage
        check_fraction("coverage", wanted)
        series, several = self._given(y, covariates, times, future_covariates)
        ratio = rising(conformal_quantile(self.scores_, wanted))
        ends = []
        for each in series:
            forecast, half = self._forecast(each), ratio * recent_change(each.values, self._window())[-1]
            ends.append(np.stack([forecast - half, forecast + half]))
        return np.stack(ends) if several else ends[0]

    def future_times(self, times: Any = None) -> Shaped[np.ndarray, " horizon"]:
        """Give the moments of the forecast: months follow months, weekdays weekdays, others by the median span.

        Without times, in `fit` or here, they are the numbers of the steps.
        """
        check_is_fitted(self)
        if times is not None:
            return next_times(read_times(times, len(times)), self.horizon)
        last = self._trained()[0]
        if last.times is None:
            return len(last.values) + np.arange(self.horizon)
        return next_times(last.times, self.horizon)

    def backtest(
        self, y: Any, covariates: Any = None, times: Any = None, *, future_covariates: Any = None, folds: int = 5
    ) -> BacktestResult:
        """Fit and forecast again and again on the past of ``y`` alone; see `sostenuto.estimators.forecast.backtest`."""
        from sostenuto.estimators.forecast.backtest import backtest

        return backtest(self, y, covariates, times, future_covariates=future_covariates, folds=folds)

    def plot(self, y: Any = None, *, channel: int = 0, history: int | None = None, **given: Any) -> Any:
        """Draw the end of a series, the forecast and its interval; return a matplotlib Figure, for ``savefig``.

        ``history`` is how many past steps are shown, ``given`` goes to `predict`.
        """
        from sostenuto.report.contents.forecast import forecast_figure

        series = self._given(y, given.get("covariates"), given.get("times"), given.get("future_covariates"))[0][0]
        forecast, (low, high) = self.predict(y, **given), self.predict_interval(y, **given)
        if forecast.ndim == 3:
            forecast, (low, high) = forecast[0], self.predict_interval(y, **given)[0]
        past = np.arange(len(series.values)) if series.times is None else series.times
        ahead = len(past) + np.arange(self.horizon) if series.times is None else next_times(past, self.horizon)
        shown = history or max(4 * self.horizon, 2 * max(self.seasons_, default=0))
        return forecast_figure(
            past[-shown:],
            series.values[-shown:, channel],
            ahead,
            forecast[:, channel],
            low[:, channel],
            high[:, channel],
            coverage=self.coverage,
        )

    def save(self, path: PathLike) -> None:
        """Write the fitted forecaster into one safetensors file; no pickle."""
        check_is_fitted(self)
        save_kernel_estimator(self, path)

    @classmethod
    def load(cls, path: PathLike) -> "Forecaster":
        """Read what `save` wrote, without unpickling."""
        loaded = load_kernel_estimator({cls.__name__: cls}, path)[0]
        loaded.seasons_, loaded.lags_ = tuple(loaded.seasons_), tuple(loaded.lags_)
        return loaded

    def _given(self, y: Any, covariates: Any, times: Any, future_covariates: Any) -> tuple[list[ForecastSeries], bool]:
        check_is_fitted(self)
        got = "got one of an earlier version, whose mixtures were others"
        require(hasattr(self, "reach_"), "expected a forecaster saved by this version", got, "fit it again")
        if y is not None:
            series, several = read_series(y, covariates, times, future_covariates, self.layout)
            series = [fill_by_season(each, max(self.seasons_, default=0)) for each in series]
            dated = times is not None or not self.irregular_
            require(dated, "expected times, as in fit, where they were irregular", "got none", "pass times=")
        else:
            series, several = self._trained(), self.several_
            if future_covariates is not None:
                rows = list(future_covariates) if several else [future_covariates]
                rows = [np.asarray(each, np.float64).reshape(-1, series[0].known.shape[1]) for each in rows]
                series = [
                    replace(each, known=np.concatenate([each.known[: len(each.values)], new]))
                    for each, new in zip(series, rows, strict=True)
                ]
        for name, expected in (("values", self.widths_[0]), ("past", self.widths_[1]), ("known", self.widths_[2])):
            width = getattr(series[0], name).shape[1]
            what = {"values": "channels", "past": "covariates", "known": "future covariates"}[name]
            require(width == expected, f"expected {expected} {what}, as in fit", f"got {width}")
        least = max(self.lags_) + 1
        for each in series:
            require(
                len(each.values) >= least,
                f"expected at least {least} steps to forecast from",
                f"got {len(each.values)}",
            )
        return series, several

    def _forecast(self, series: ForecastSeries) -> Float[np.ndarray, "horizon channel"]:
        shape = (self.horizon, series.values.shape[1])
        drawn = self._features() if len(self.coefficients_) else None
        views = {
            name: self._view(name, [series], drawn, pad=False)
            for name in sorted({each["transform"] for each in self.members_ if each["group"]})
        }
        bases = (0, *self.seasons_)
        smooth = {
            name: smoothed_forecasts(view.values[0], self.horizon, bases, last=True) for name, view in views.items()
        }
        coefficients = iter(self.coefficients_)
        total, change = np.zeros((2, *shape))
        for member in self.members_:
            if not member["group"]:
                forecast = base_forecasts(series.values, self.horizon, member["base"])[-1]
            elif member["group"] == "smooth":
                view = views[member["transform"]]
                made = smooth[view.name][bases.index(member["season"]), member["smoother"]]
                forecast = view.back(made, view.scales)[0]
            else:
                view = views[member["transform"]]
                row = np.append(np.concatenate([part[-1] for part in view.parts[0].values()]), 1.0)
                ahead = (row @ next(coefficients)).reshape(1, *shape)
                ahead = ahead + view_base(view.values[0], self.horizon, member["base"])[-1:]
                forecast = view.back(ahead, view.scales)[0]
            total += member["weight"] * forecast
            change += member["change"] * forecast
        reach = self.reach_ * recent_change(series.values, self._window())[-1]
        return total + np.clip(change, -reach, reach)

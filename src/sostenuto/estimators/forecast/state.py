"""What a fitted forecaster keeps: series, scales, features and the mixture, as arrays and plain values."""

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from sostenuto.checks import check_count, require
from sostenuto.estimators.forecast.features import ForecastFeatures
from sostenuto.estimators.forecast.mixture import (
    FittedMixture,
    View,
    base_forecasts,
    future_values,
    mixing_weights,
    recent_change,
    smoothed_members,
)
from sostenuto.estimators.forecast.series import MOMENT, ForecastSeries, calendar_season, find_seasons
from sostenuto.estimators.forecast.smoothing import smoothed_forecasts
from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.ops.oscillator_bank import OscillatorBank

_POSITIVE = 0.01
"""Logarithms are tried where every value is above this share of the mean."""
_MOST_SEARCHED = 20


class ForecastState(BaseEstimator):
    """The fitted part of a `Forecaster`; `Forecaster` explains."""

    horizon: Any
    season: Any
    seasons_: tuple[int, ...]
    lags_: tuple[int, ...]
    several_: bool

    def _keep_series(self, series: list[ForecastSeries]) -> None:
        self.series_ = PackedSequences.pack([each.values for each in series])
        self.past_ = PackedSequences.pack([each.past for each in series])
        self.known_ = PackedSequences.pack([each.known for each in series])
        self.widths_ = [each.num_channels for each in (self.series_, self.past_, self.known_)]
        moments = [each.times for each in series if each.times is not None]
        self.times_kind_ = moments[0].dtype.kind if moments else ""
        self.irregular_ = any(each.spans is not None for each in series)
        stamps = np.concatenate(moments) if moments else np.zeros(0)
        self.times_ = stamps.astype(np.int64) if self.times_kind_ == "M" else stamps

    def _trained(self) -> list[ForecastSeries]:
        """Give the series of `fit`."""
        count = len(self.series_)
        times: list[np.ndarray | None] = [None] * count
        if self.times_kind_:
            stamps = self.times_.astype(MOMENT) if self.times_kind_ == "M" else self.times_
            times = list(np.split(stamps, self.series_.borders[1:-1]))
        parts = (packed.cut(0, count) for packed in (self.series_, self.past_, self.known_))
        return [ForecastSeries(*each) for each in zip(*parts, times, strict=True)]

    def _choose_seasons(self, series: list[ForecastSeries]) -> tuple[int, ...]:
        if self.season is None:
            return ()
        longest = max(len(each.values) for each in series)
        if isinstance(self.season, str):
            require(self.season == "auto", "expected season to be 'auto', None or steps", f"got {self.season!r}")
            found = [find_seasons(each.values) for each in series[:_MOST_SEARCHED]]
            seasons = max(sorted(set(found)), key=found.count)
            calendar = calendar_season(series[0].times)
            # What the calendar suggests needs no proof by itself: members that read it have to show what it is worth.
            return seasons or ((calendar,) if 0 < 2 * calendar <= longest else ())
        seasons = tuple(int(each) for each in np.ravel(self.season))
        for each in seasons:
            check_count("season", each, least=2)
            require(each < longest, f"expected a season shorter than the series of {longest} steps", f"got {each}")
        return tuple(sorted(set(seasons), reverse=True))

    def _learn_scales(self, series: list[ForecastSeries]) -> None:
        values = self.series_.values
        positive = bool((values > _POSITIVE * values.mean(0)).all()) and bool((values > 0).all())
        self.transforms_ = ["value", "log"] if positive else ["value"]
        # Logarithms of later values end at a tenth of the least one seen.
        self.floor_ = values.min(0) / 10 if positive else np.zeros(values.shape[1])
        self.center_, self.scale_ = (
            np.stack(part) for part in zip(*map(self._own_scale, self.transforms_), strict=True)
        )
        logs = np.log(values) if positive else values
        self.log_low_, self.log_high_ = logs.min(0), logs.max(0)
        self.past_center_, self.past_scale_ = _center_and_scale(np.concatenate([each.past for each in series]))
        self.known_center_, self.known_scale_ = _center_and_scale(np.concatenate([each.known for each in series]))

    def _own_scale(self, transform: str) -> tuple[np.ndarray, np.ndarray]:
        values = self._transformed(self.series_.values, transform)
        return _center_and_scale(values)

    def _transformed(self, values: np.ndarray, transform: str) -> np.ndarray:
        return np.log(np.maximum(values, self.floor_)) if transform == "log" else values

    def _scales(self, values: np.ndarray, transform: str) -> tuple[np.ndarray, np.ndarray]:
        """Give center and scale: those of `fit` for one series, a series' own where `fit` had several."""
        if self.several_:
            return _center_and_scale(self._transformed(values, transform))
        at = self.transforms_.index(transform)
        return self.center_[at], self.scale_[at]

    def _scaled(self, series: ForecastSeries, transform: str) -> np.ndarray:
        center, scale = self._scales(series.values, transform)
        own = (self._transformed(series.values, transform) - center) / scale
        return np.concatenate([own, (series.past - self.past_center_) / self.past_scale_], 1)

    def _known(self, series: ForecastSeries, *, pad: bool) -> np.ndarray | None:
        """Give known covariates up to the horizon, scaled; in `fit` the last row stands for those not yet known."""
        if series.known.shape[1] == 0:
            return None
        steps, rows = len(series.values), len(series.known)
        need = steps if pad else steps + self.horizon
        require(
            rows >= need,
            f"expected future_covariates for {need} steps",
            f"got {rows}",
            "give them for every step of the series" + ("" if pad else " and of the horizon"),
        )
        known = series.known[np.minimum(np.arange(steps + self.horizon), rows - 1)]
        return (known - self.known_center_) / self.known_scale_

    def _view(self, name: str, series: list[ForecastSeries], drawn: ForecastFeatures | None, *, pad: bool) -> View:
        scaled = [self._scaled(each, name) for each in series]
        parts = [
            {} if drawn is None else drawn(x, self._known(each, pad=pad), each.spans)
            for x, each in zip(scaled, series, strict=True)
        ]
        scales = [self._scales(each.values, name) for each in series]
        targets = self.widths_[0]

        def back(forecasts: np.ndarray, scales: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
            centers, sizes = (np.stack(part)[:, None] for part in zip(*scales, strict=True))
            values = forecasts * sizes + centers
            if name != "log":
                return values
            # An exponential grows fast: at the most by the range that training saw.
            spread = self.log_high_ - self.log_low_
            return np.exp(np.clip(values, self.log_low_ - spread, self.log_high_ + spread))

        return View(name, [x[:, :targets] for x in scaled], parts, scales, back)

    def _keep_features(self, drawn: ForecastFeatures) -> None:
        for name in OscillatorBank.__annotations__:
            setattr(self, f"bank_{name}_", getattr(drawn.bank, name).numpy())
        self.random_mix_, self.random_offset_ = drawn.mix, drawn.offset
        # Features that never change have a scale of inf, which JSON does not know and an array does.
        self.random_center_, self.random_scale_ = drawn.center, drawn.scale

    def _features(self) -> ForecastFeatures:
        arrays = {name: torch.from_numpy(getattr(self, f"bank_{name}_")) for name in OscillatorBank.__annotations__}
        random = (self.random_mix_, self.random_offset_, self.random_center_, self.random_scale_)
        return ForecastFeatures(
            self.horizon, self.lags_, self.seasons_, self.widths_[0], OscillatorBank(**arrays), *random
        )

    def _keep_mixture(self, fitted: FittedMixture) -> None:
        self.members_, self.coefficients_, self.trust_ = fitted.members, fitted.coefficients, fitted.trust

    def _fit_simple(self, series: list[ForecastSeries]) -> None:
        """Mix simple forecasts alone, judged at every step: the series are too short to hold fits out."""
        bases, horizon = (0, *self.seasons_), self.horizon
        members: list[dict[str, Any]] = [{"group": "", "base": base} for base in bases]
        for base in bases:
            members += smoothed_members("value", base)
        errors, which, steps = [], [], []
        for index, each in enumerate(series):
            end = len(each.values) - horizon
            origins = np.arange(min(max(1, *bases), max(end - 1, 0)), end)
            smooth = smoothed_forecasts(each.values, horizon, bases)
            made = [*(base_forecasts(each.values, horizon, base) for base in bases), *np.concatenate(smooth)]
            if len(origins):
                errors.append(np.stack(made)[:, origins] - future_values(each.values, horizon)[origins])
                which.append(np.full(len(origins), index))
                steps.append(origins)
        joined = np.concatenate(errors, 1)
        weights = mixing_weights(joined / np.maximum(np.sqrt(np.square(joined[0]).mean(0)), 1e-300))
        self.members_ = [
            {**member, "weight": float(weight), "change": 0.0} for member, weight in zip(members, weights, strict=True)
        ]
        self.coefficients_, self.trust_ = np.zeros((0, 1, 1)), 0.0
        mixed = np.tensordot(weights, joined, 1)
        self._keep_scores(series, mixed, np.zeros_like(mixed), np.concatenate(which), np.concatenate(steps))

    def _keep_scores(
        self,
        series: list[ForecastSeries],
        errors: np.ndarray,
        changes: np.ndarray,
        which: np.ndarray,
        steps: np.ndarray,
    ) -> None:
        """Keep errors, and how far ridges went from simple forecasts at most, in recent changes of the series."""
        recent = [recent_change(each.values, self._window()) for each in series]
        unit = np.stack([recent[index][step] for index, step in zip(which, steps, strict=True)])[:, None]
        self.scores_ = np.abs(errors) / unit
        self.reach_ = (np.abs(changes) / unit).max(0)

    def _window(self) -> int:
        """Give the steps that a recent change is averaged over."""
        return max(20, 2 * self.horizon, 2 * max(self.seasons_, default=0))


def _center_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give mean and standard deviation of each channel; 1 where it never changes."""
    if values.size == 0:
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    deviation = values.std(0)
    return values.mean(0), np.where(deviation > 0, deviation, 1.0)

"""Fit a forecast: ridge regressions on several features and bases, judged from rolling origins and mixed."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from sostenuto.estimators.forecast_bases import base_forecasts, future_values
from sostenuto.estimators.forecast_features import GROUPS, columns
from sostenuto.estimators.forecast_origins import (
    PENALTIES,
    Origins,
    cross_fitted,
    held_out_ridge,
    mixing_weights,
    ridge,
    trust,
)

_LEAST_WEIGHT = 1e-3
_CAUTION = 2.0
"""Where no season beats the previous value, the series may be a random walk: gains must be as many standard errors."""
MEAN = -1
"""The base that is the mean of the series; others are 0, the previous value, and seasons."""


@dataclass(frozen=True, eq=False)
class View:
    """A transform's view of all series: scaled values, features by kind, and the way back to the data's unit.

    Lists have one item a series. ``back`` undoes scale and transform of forecasts (origin, ahead, channel).
    """

    name: str
    values: list[np.ndarray]
    parts: list[dict[str, np.ndarray]]
    scales: list[tuple[np.ndarray, np.ndarray]]
    back: Any


@dataclass(frozen=True, eq=False)
class FittedMixture:
    """``members`` (transform, group, base, penalty, weight; no group: the base itself) and ``coefficients`` of ridges.

    ``errors`` (origin, ahead, channel) are those of held-out origins, mixed by weights of other folds.
    """

    members: list[dict[str, Any]]
    coefficients: Float[np.ndarray, "ridge feature output"]
    errors: Float[np.ndarray, "origin ahead channel"]
    trust: float


def fit_mixture(
    series: list[np.ndarray], views: list[View], seasons: tuple[int, ...], origins: Origins
) -> FittedMixture:
    """Fit every member on the past of each fold, choose penalties and weights on the folds, and fit again on all."""
    held, horizon = origins.held_out, origins.horizon
    truth = _gather([future_values(each, horizon) for each in series], origins)[held]
    bases = (0, *seasons)
    own = [_gather([base_forecasts(each, horizon, base) for each in series], origins)[held] for base in bases]
    forecasts, members = list(own), [{"group": "", "base": base} for base in bases]
    fits = [_Ridges(view, seasons, origins, group) for view, group in product(views, GROUPS)]
    for fit in fits:
        for base, penalty, forecast in fit.judged():
            forecasts.append(forecast)
            members.append({"transform": fit.view.name, "group": fit.group, "base": base, "penalty": penalty})
    sizes = np.stack([views[0].scales[index][1] for index in origins.series[held]])[:, None]
    errors = (np.stack(forecasts) - truth) / sizes
    unit = np.sqrt(np.square(errors[0]).mean(0))
    unit = np.where(unit > 0, unit, 1.0)
    relative = errors / unit
    weights = mixing_weights(relative)
    simple = int(np.square(relative[: len(bases)]).mean((1, 2, 3)).argmin())
    crossed = cross_fitted(relative, origins.fold[held], mixing_weights)
    own, other = (np.square(errors).mean((1, 2)) for errors in (relative[simple], crossed))
    share = trust(own, other, horizon, _CAUTION if bases[simple] == 0 else 1.0)
    weights = share * np.where(weights > _LEAST_WEIGHT, weights, 0.0)
    weights[simple] += 1 - weights.sum()
    mixed = share * crossed + (1 - share) * relative[simple]
    kept = [{**member, "weight": float(weight)} for member, weight in zip(members, weights, strict=True) if weight > 0]
    named = {(fit.view.name, fit.group): fit for fit in fits}
    ridges = [named[member["transform"], member["group"]].final(member) for member in kept if member["group"]]
    width = len(columns(views[0].parts[0], "lags")) + 1
    empty = np.zeros((0, width, truth[0].size))
    return FittedMixture(kept, np.stack(ridges) if ridges else empty, mixed * unit * sizes, share)


class _Ridges:
    """Ridge regressions of one group of features in one view, one for each base, that share their rows."""

    def __init__(self, view: View, seasons: tuple[int, ...], origins: Origins, group: str) -> None:
        self.view, self.group, self.origins = view, group, origins
        self.bases = (0, *seasons, MEAN)
        self.used = columns(view.parts[0], group)
        rows = _gather([np.concatenate(list(parts.values()), 1)[:, self.used] for parts in view.parts], origins)
        self.center, scale = rows.mean(0), rows.std(0)
        self.scale = np.where(scale > 1e-9 * (1 + np.abs(self.center)), scale, np.inf)
        self.rows = np.concatenate([(rows - self.center) / self.scale, np.ones((len(rows), 1))], 1)
        self.future = _gather([future_values(each, origins.horizon) for each in view.values], origins)
        self.base = {
            base: _gather([view_base(each, origins.horizon, base) for each in view.values], origins)
            for base in self.bases
        }

    def judged(self) -> list[tuple[int, float, np.ndarray]]:
        """Give, for each base, the penalty of the least error over the folds and its held-out forecasts."""
        held = self.origins.held_out
        targets = np.concatenate([self._targets(base) for base in self.bases], 1)
        forecasts = held_out_ridge(self.rows, targets, self.origins)
        unit = np.square(self._targets(0)[held]).mean(0)
        unit = np.tile(np.where(unit > 0, unit, 1.0), len(self.bases))
        errors = (np.square(forecasts - targets[held]) / unit).reshape(len(PENALTIES), held.sum(), len(self.bases), -1)
        best = errors.mean((1, 3)).argmin(0)
        shape = self.future[held].shape
        split = forecasts.reshape(len(PENALTIES), held.sum(), len(self.bases), -1)
        scales = [self.view.scales[index] for index in self.origins.series[held]]
        return [
            (
                base,
                float(PENALTIES[best[at]]),
                self.view.back(split[best[at], :, at].reshape(shape) + self.base[base][held], scales),
            )
            for at, base in enumerate(self.bases)
        ]

    def final(self, member: dict[str, Any]) -> Float[np.ndarray, "feature output"]:
        """Fit one member on all origins; coefficients of all features as they are, with 0 for those of other groups."""
        fitted = ridge(self.rows, self._targets(member["base"]), member["penalty"])
        out = np.zeros((len(self.used) + 1, fitted.shape[1]))
        out[:-1][self.used] = fitted[:-1] / self.scale[:, None]
        out[-1] = fitted[-1] - self.center / self.scale @ fitted[:-1]
        return out

    def _targets(self, base: int) -> np.ndarray:
        return (self.future - self.base[base]).reshape(len(self.future), -1)


def view_base(values: np.ndarray, horizon: int, base: int) -> Float[np.ndarray, "time ahead channel"]:
    """Give a base in scaled values, whose mean is 0."""
    if base == MEAN:
        return np.zeros((len(values), horizon, values.shape[1]))
    return base_forecasts(values, horizon, base)


def _gather(arrays: list[np.ndarray], origins: Origins) -> np.ndarray:
    """Pick the rows of the origins out of one array a series."""
    return np.concatenate([array[origins.step[origins.series == index]] for index, array in enumerate(arrays)])

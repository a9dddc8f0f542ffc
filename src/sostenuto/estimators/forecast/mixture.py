"""Ridge regressions from rolling origins, and the weights of their mixture with plain forecasts."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import nnls

from sostenuto.estimators.forecast.features import GROUPS, columns

PENALTIES = np.logspace(-3, 6, 19)
_TRAINED_FIRST = 0.6
"""The share of the origins before the first fold."""
_LEAST_ROWS = 8
_SPREAD = 0.1
"""Weights are drawn a little toward each other, by this share of the mean squared error: equals share their weight."""
_MOST_BLOCKS = 30


@dataclass(frozen=True, eq=False)
class Origins:
    """The origins of all series, one below the other: steps of a series that have ``horizon`` steps after them.

    ``fold`` is −1 for an origin that is only trained on; ``first_step`` (fold, series) is where each fold begins.
    """

    series: Int[np.ndarray, " origin"]
    step: Int[np.ndarray, " origin"]
    fold: Int[np.ndarray, " origin"]
    first_step: Int[np.ndarray, "fold series"]
    horizon: int

    @classmethod
    def cut(cls, lengths: list[int], first: int, horizon: int, folds: int) -> "Origins":
        """Cut the later 40 % of each series' origins into folds; a series too short for that is only trained on."""
        series, steps, fold, begins = [], [], [], []
        for index, length in enumerate(lengths):
            own = np.arange(min(first, max(length - horizon, 0)), length - horizon)
            start = max(first + _TRAINED_FIRST * len(own), first + horizon + _LEAST_ROWS - 1)
            borders = np.linspace(start, length - horizon, folds + 1).astype(int)
            if len(own) == 0 or (np.diff(borders) < 1).any():
                borders = np.full(folds + 1, length)
            series.append(np.full(len(own), index))
            steps.append(own)
            fold.append(np.searchsorted(borders, own, side="right") - 1)
            begins.append(borders[:-1])
        return cls(np.concatenate(series), np.concatenate(steps), np.concatenate(fold), np.stack(begins, 1), horizon)

    @property
    def held_out(self) -> Bool[np.ndarray, " origin"]:
        """Say which origins lie in a fold."""
        return self.fold >= 0

    def past(self, fold: int) -> Bool[np.ndarray, " origin"]:
        """Say which origins have their whole truth before the fold begins, in their own series."""
        return self.step + self.horizon <= self.first_step[fold][self.series]


def held_out_ridge(
    rows: Float[np.ndarray, "origin feature"], targets: Float[np.ndarray, "origin output"], origins: Origins
) -> Float[np.ndarray, "penalty held_out output"]:
    """Forecast every held-out origin from what was known when its fold began, for every penalty."""
    out = np.empty((len(PENALTIES), len(rows), targets.shape[1]))
    for fold in range(len(origins.first_step)):
        inside = origins.fold == fold
        past = origins.past(fold)
        solve = _solver(rows[past], targets[past])
        values, vectors, response = solve
        turned = rows[inside] @ vectors
        out[:, inside] = [turned @ (response / (values + penalty)[:, None]) for penalty in PENALTIES]
    return out[:, origins.held_out]


def ridge(
    rows: Float[np.ndarray, "origin feature"], targets: Float[np.ndarray, "origin output"], penalty: float
) -> Float[np.ndarray, "feature output"]:
    """Minimize ‖targets − rows B‖² + λ‖B‖²."""
    values, vectors, response = _solver(rows, targets)
    return vectors @ (response / (values + penalty)[:, None])


def _solver(rows: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(rows.T @ rows)
    return np.maximum(values, 0.0), vectors, vectors.T @ (rows.T @ targets)


def mixing_weights(errors: Float[np.ndarray, "member ..."]) -> Float[np.ndarray, " member"]:
    """Give the weights, at least 0 and summing to 1, of the mean of members with the least squared error.

    >>> mixing_weights(np.array([[1.0, -1.0], [-1.0, 1.0], [9.0, 9.0]])).round(2)
    array([0.5, 0.5, 0. ])
    """
    count = len(errors)
    flat = errors.reshape(count, -1)
    products = flat @ flat.T / flat.shape[1]
    size = np.trace(products) / count
    if size == 0:
        return np.full(count, 1 / count)
    least = float(np.diag(products).min())
    products += (_SPREAD * least + 1e-10 * size) * np.eye(count)
    root = np.linalg.cholesky(products).T
    # The sum is held to 1 by one heavy row.
    heavy = 1e3 * np.sqrt(np.diag(products).max())
    weights, _ = nnls(np.vstack([root, np.full(count, heavy)]), np.append(np.zeros(count), heavy), maxiter=100 * count)
    return weights / weights.sum()


def trust(
    simple: Float[np.ndarray, " origin"], mixed: Float[np.ndarray, " origin"], horizon: int, least: float = 1.0
) -> float:
    """Give how far to go from a simple forecast to a mixture, by their squared errors at the origins.

    Over blocks of ``horizon`` origins, whose truths overlap, the mean of simple − mixed and that of
    log(simple / mixed) are compared with their standard errors; t is the larger quotient. The answer is
    4/3 (1 − (least / t)²) within 0 and 1: a gain that chance can explain is not followed, and one of twice
    ``least`` standard errors is followed in full. Logarithms keep a few bad moments from hiding a gain that is always
    there, differences see one that only bad moments have.

    >>> trust(np.full(40, 4.0), np.tile([1.0, 2.0], 20), 3), trust(np.ones(40), np.tile([0.5, 1.6], 20), 3)
    (1.0, 0.0)
    """
    blocks = max(min(len(simple) // horizon, _MOST_BLOCKS), min(len(simple), 2))
    if blocks < 2 or mixed.sum() >= simple.sum():
        return 0.0
    parts = (np.array_split(errors, blocks) for errors in (simple, mixed))
    own, other = (np.array([block.mean() for block in part]) + 1e-12 * simple.mean() for part in parts)
    quotient = max(_quotient(own - other), _quotient(np.log(own / other)))
    return float(np.clip(4 / 3 * (1 - (least / quotient) ** 2), 0.0, 1.0)) if quotient > least else 0.0


def _quotient(gains: np.ndarray) -> float:
    """Divide a mean by its standard error."""
    error = float(gains.std(ddof=1)) / np.sqrt(len(gains))
    return float(gains.mean()) / max(error, 1e-12)


def cross_fitted(
    errors: Float[np.ndarray, "member origin *rest"],
    fold: Int[np.ndarray, " origin"],
    rule: Callable[[np.ndarray], np.ndarray],
) -> Float[np.ndarray, "origin *rest"]:
    """Mix each fold's errors by weights that the other folds chose."""
    out = np.empty(errors.shape[1:])
    for each in np.unique(fold):
        inside = fold == each
        out[inside] = np.tensordot(rule(errors[:, ~inside]), errors[:, inside], 1)
    return out


def base_forecasts(
    values: Float[np.ndarray, "time channel"], horizon: int, season: int = 0
) -> Float[np.ndarray, "time ahead channel"]:
    """Forecast from every step: its own value, or with a season the latest value seen at the phase of each next step.

    >>> base_forecasts(np.arange(6.0)[:, None], 3, season=2)[-1].ravel()
    array([4., 5., 4.])
    """
    ahead = np.arange(1, horizon + 1)
    back = np.zeros(horizon, int) if season == 0 else season * -(-ahead // season) - ahead
    return values[np.maximum(np.arange(len(values))[:, None] - back, 0)]


def future_values(values: Float[np.ndarray, "time channel"], horizon: int) -> Float[np.ndarray, "origin ahead channel"]:
    """Give the values after each step that has ``horizon`` steps after it.

    >>> future_values(np.arange(4.0)[:, None], 2)[..., 0].tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    return values[np.arange(len(values) - horizon)[:, None] + np.arange(1, horizon + 1)]


_FLOOR = 0.1


def recent_change(values: Float[np.ndarray, "time channel"], window: int) -> Float[np.ndarray, "time channel"]:
    """Give the mean absolute change per step over the last ``window`` steps, and at least a tenth of that of all past.

    >>> recent_change(np.array([[0.0], [1.0], [2.0], [6.0]]), 2).ravel()
    array([1. , 1. , 1. , 2.5])
    """
    changes = np.abs(np.diff(values, axis=0))
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(changes, 0)])
    steps = np.arange(len(values))
    begin = np.maximum(steps - window, 0)
    recent = (sums - sums[begin]) / np.maximum(steps - begin, 1)[:, None]
    overall = sums / np.maximum(steps, 1)[:, None]
    recent = np.maximum(recent, _FLOOR * overall)
    if len(recent) > 1:
        recent[0] = recent[1]
    # A series that never changed: any positive unit will do.
    return np.where(recent > 0, recent, 1.0)


def conformal_quantile(
    scores: Float[np.ndarray, "n ahead channel"], coverage: float
) -> Float[np.ndarray, "ahead channel"]:
    """Give per horizon the least score with a share of ⌈(m + 1)·coverage⌉ / m at or below it, at most the largest.

    m = n / (1 + 2 Σ ρₗ) is what n scores in the order of time are worth (Bayley and Hammersley, 1946): forecasts k
    steps ahead from origins less than k apart share errors; ρₗ is their autocorrelation where it is above 0, l < k.

    >>> conformal_quantile(np.arange(1.0, 11.0)[:, None, None], 0.8)
    array([[9.]])
    >>> conformal_quantile(np.arange(1.0, 11.0)[:, None, None].repeat(3, 1), 0.8).ravel()
    array([ 9., 10., 10.])
    """
    count, horizon = scores.shape[:2]
    ahead = np.arange(1, horizon + 1)[:, None]
    centered = scores - scores.mean(0)
    square = np.maximum(np.square(centered).mean(0), np.finfo(float).tiny)
    times = np.ones(scores.shape[1:])
    for lag in range(1, min(horizon, count)):
        correlation = (centered[:-lag] * centered[lag:]).mean(0) / square
        times += np.where(lag < ahead, 2 * np.maximum(correlation, 0), 0)
    worth = np.maximum(count / np.minimum(times, ahead), 1)
    # 1e-9: a share that is a whole number of scores stays one.
    rank = np.ceil((worth + 1) * coverage / worth * count - 1e-9)
    place = np.clip(rank.astype(int), 1, count) - 1
    return np.take_along_axis(np.sort(scores, 0), place[None], 0)[0]


_LEAST_WEIGHT = 1e-3
_CAUTION = 2.0
"""Where no season beats the previous value, the series may be a random walk: gains must be as many standard errors."""
MEAN = -1
"""The base that is the mean of the series; others are 0, the previous value, and seasons."""


@dataclass(frozen=True, eq=False)
class View:
    """A transform's view of all series: scaled values, features by kind, and the inverse to the data's unit.

    Lists have one item per series. ``back`` undoes scale and transform of forecasts (origin, ahead, channel).
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
    """Pick the rows of the origins out of one array per series."""
    return np.concatenate([array[origins.step[origins.series == index]] for index, array in enumerate(arrays)])

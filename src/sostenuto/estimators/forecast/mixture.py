"""Ridge regressions from rolling origins, and the weights of their mixture with plain forecasts."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import nnls
from scipy.stats import t as student

from sostenuto.estimators.forecast.features import GROUPS, columns
from sostenuto.estimators.forecast.smoothing import SMOOTHERS, smoothed_forecasts

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
    simple: Float[np.ndarray, " origin"], mixed: Float[np.ndarray, " origin"], horizon: int, sure: float = 0.95
) -> float:
    """Give how far to go from a simple forecast to a mixture, by their squared errors at the origins.

    Over blocks of ``horizon`` origins, whose truths overlap, the mean of simple − mixed and that of
    log(simple / mixed) are compared with their standard errors; t is the larger quotient. With the quantile q of
    Student's distribution at ``sure``, for as many blocks, the answer is 4/3 (1 − (q / t)²) within 0 and 1: a gain
    that chance can explain is not followed, and one twice as large is followed in full. Logarithms keep a few bad
    moments from hiding a gain that is always there, differences see one that only bad moments have.

    >>> trust(np.full(40, 4.0), np.tile([1.0, 2.0], 20), 3), trust(np.ones(40), np.tile([0.5, 1.6], 20), 3)
    (1.0, 0.0)
    """
    blocks = max(min(len(simple) // horizon, _MOST_BLOCKS), min(len(simple), 2))
    if blocks < 2 or mixed.sum() >= simple.sum():
        return 0.0
    parts = (np.array_split(errors, blocks) for errors in (simple, mixed))
    own, other = (np.array([block.mean() for block in part]) + 1e-12 * simple.mean() for part in parts)
    quotient = max(_quotient(own - other), _quotient(np.log(own / other)))
    least = float(student.ppf(sure, blocks - 1))
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
    Few scores show little of how they depend: between m and the n / k stretches that share nothing lies their geometric
    mean. Where it is below coverage / (1 − coverage), so that the largest score need not be far enough out, the answer
    is at least Student's quantile, for so many, times the root mean square of the scores.

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
    ordered = np.take_along_axis(np.sort(scores, 0), place[None], 0)[0]
    freedom = np.sqrt(worth * np.maximum(count / ahead, 1))
    wide = student.ppf((1 + coverage) / 2, freedom) * np.sqrt(np.square(scores).mean(0))
    return np.where(freedom < coverage / (1 - coverage), np.maximum(ordered, wide), ordered)


def rising(quantiles: Float[np.ndarray, "ahead channel"]) -> Float[np.ndarray, "ahead channel"]:
    """Give every horizon the largest quantile up to it: what is farther off is not known better.

    >>> rising(np.array([[1.0], [4.0], [2.0], [5.0]])).ravel()
    array([1., 4., 4., 5.])
    """
    return np.maximum.accumulate(quantiles, 0)


_LEAST_WEIGHT = 1e-3
_SURE, _LIKELY = 0.95, 0.7
"""Student's quantiles of a gain: by which ridges have to lead exponential smoothing, and that the previous value, which
nothing leads where the series is a random walk."""
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
    """What is mixed, and by what weights: simple forecasts first, and how far to go from them to all together.

    ``members`` are records of ``group``, ``weight``, ``change`` and what tells them apart: base (group ``""``: the
    base itself), transform, season and smoother (group ``"smooth"``), or transform, base and penalty (a ridge).
    The forecast is Σ weight · forecast + Σ change · forecast. ``coefficients`` are those of ridges; ``errors`` (origin,
    ahead, channel) those of held-out origins, by weights of other folds, and ``changes`` their second sums.
    """

    members: list[dict[str, Any]]
    coefficients: Float[np.ndarray, "ridge feature output"]
    errors: Float[np.ndarray, "origin ahead channel"]
    changes: Float[np.ndarray, "origin ahead channel"]
    trust: float


def fit_mixture(
    series: list[np.ndarray], views: list[View], seasons: tuple[int, ...], origins: Origins
) -> FittedMixture:
    """Fit every member on the past of each fold, choose penalties and weights on the folds, and fit again on all.

    Simple forecasts are mixed first. From the previous value, where no season does better, the way leads to their
    mixture, and from there to that of all members, each as far as `trust` says.
    """
    held, horizon = origins.held_out, origins.horizon
    truth = _gather([future_values(each, horizon) for each in series], origins)[held]
    bases = (0, *seasons)
    forecasts = [_gather([base_forecasts(each, horizon, base) for each in series], origins)[held] for base in bases]
    members: list[dict[str, Any]] = [{"group": "", "base": base} for base in bases]
    for view in views:
        made = [smoothed_forecasts(each, horizon, bases) for each in view.values]
        rows = _gather([np.moveaxis(each, 2, 0) for each in made], origins)[held]
        scales = [view.scales[index] for index in origins.series[held]]
        for place, season in enumerate(bases):
            smooth = smoothed_members(view.name, season)
            forecasts += [view.back(rows[:, place, member["smoother"]], scales) for member in smooth]
            members += smooth
    simple = len(members)
    fits = [_Ridges(view, seasons, origins, group) for view, group in product(views, GROUPS)]
    for fit in fits:
        for base, penalty, forecast in fit.judged():
            forecasts.append(forecast)
            members.append({"transform": fit.view.name, "group": fit.group, "base": base, "penalty": penalty})
    sizes = np.stack([views[0].scales[index][1] for index in origins.series[held]])[:, None]
    errors = (np.stack(forecasts) - truth) / sizes
    unit = np.sqrt(np.square(errors[0]).mean(0))
    unit = np.where(unit > 0, unit, 1.0)
    plain, change, mixed, share = _weights(errors / unit, origins.fold[held], len(bases), simple, horizon)
    kept = [
        {**member, "weight": float(weight), "change": float(more)}
        for member, weight, more in zip(members, plain, change, strict=True)
        if abs(weight) + abs(more) > 0
    ]
    changes = np.tensordot(change, errors, 1) * sizes  # the changes of weights sum to 0, and the truth drops out
    named = {(fit.view.name, fit.group): fit for fit in fits}
    ridges = [named[each["transform"], each["group"]].final(each) for each in kept if each["group"] in GROUPS]
    width = len(columns(views[0].parts[0], "lags")) + 1
    coefficients = np.stack(ridges) if ridges else np.zeros((0, width, truth[0].size))
    return FittedMixture(kept, coefficients, mixed * unit * sizes, changes, share)


def smoothed_members(transform: str, season: int) -> list[dict[str, Any]]:
    """Name the smoothers of a season, 0 for none."""
    named = {"group": "smooth", "transform": transform, "season": season}
    return [named | {"smoother": index} for index in range(len(SMOOTHERS))]


def _weights(
    errors: Float[np.ndarray, "member origin ahead channel"], fold: np.ndarray, bases: int, simple: int, horizon: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Give the weights of simple forecasts, how all weights change from there, unseen errors, and the trust in that.

    The first ``bases`` members are the previous value and seasons, the first ``simple`` ones all that is simple.
    """
    few = errors[:simple]
    plain = np.zeros(len(errors))
    plain[:simple] = _without_small(mixing_weights(few))
    unseen = cross_fitted(few, fold, mixing_weights)
    if np.square(errors[:bases]).mean((1, 2, 3)).argmin() == 0:
        share = trust(_squares(errors[0]), _squares(unseen), horizon, _LIKELY)
        plain, unseen = share * plain, share * unseen + (1 - share) * errors[0]
        plain[0] += 1 - share
    crossed = cross_fitted(errors, fold, mixing_weights)
    share = trust(_squares(unseen), _squares(crossed), horizon, _SURE)
    change = share * (_without_small(mixing_weights(errors)) - plain)
    return plain, change, share * crossed + (1 - share) * unseen, share


def _without_small(weights: np.ndarray) -> np.ndarray:
    kept = np.where(weights > _LEAST_WEIGHT, weights, 0.0)
    return kept / kept.sum()


def _squares(errors: Float[np.ndarray, "origin ahead channel"]) -> Float[np.ndarray, " origin"]:
    return np.square(errors).mean((1, 2))


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

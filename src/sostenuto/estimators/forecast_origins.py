"""Rolling origins: ridge regressions are fitted on the past of each fold and judged on its forecasts."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import nnls

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

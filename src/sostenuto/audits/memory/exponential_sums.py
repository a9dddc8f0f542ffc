"""Memory functions as exponential sums: all that a linear recurrent network of a given width can remember by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import expm
from scipy.optimize import least_squares

from sostenuto.checks import check_count, require
from sostenuto.results import Numbers, Record

SLOWEST, FASTEST = 1e-3, 8.0
"""Rates are sought between the one over the longest lag and the other over the least distance of two lags: a faster
exponential is gone after one lag, and needs a weight beyond all measure to be seen there."""
_CUT = 1e-13
"""Singular values below this share of the largest are rounding: weights along them would only cancel."""

Curve = Float[np.ndarray, " lag"]


@dataclass(frozen=True, kw_only=True)
class ExponentialSum(Record):
    """Σ_k weights_k e^{−rates_k t}, and how far it is from the memory it was fitted to.

    ``error`` is the root mean square of the difference over the lags, ``largest`` its largest absolute value and
    ``total`` the sum of its absolute values: the largest error of the linear functional itself over inputs |x|_∞ ≤ 1.
    """

    rates: Numbers
    weights: Numbers
    error: float
    largest: float
    total: float

    def at(self, lags: Any) -> Curve:
        """Give the sum at ``lags``."""
        return _basis(np.asarray(self.rates), np.asarray(lags, dtype=float)) @ np.asarray(self.weights)

    def matrices(self) -> tuple[Float[np.ndarray, "m m"], Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Give (W, U, c) with cᵀe^{Wt}U the sum: W diagonal, every weight shared evenly between U and c."""
        weights = np.asarray(self.weights)
        half = np.sqrt(np.abs(weights))
        return -np.diag(np.asarray(self.rates)), half, np.sign(weights) * half


def fit_exponential_sum(
    lags: Any,
    memory: Any,
    terms: int,
    *,
    rates: Sequence[float] | None = None,
) -> ExponentialSum:
    """Fit a memory function by a sum of ``terms`` decaying exponentials, in the least squares sense.

        min Σ_t (ρ(t) − cᵀe^{Wt}U)²,   W = −diag(rates), weights = c ⊙ U

    Weights are solved for, rates searched (variable projection), each width from the best of the width below, so that
    the error does not rise with ``terms``. With ``rates`` given only weights are solved for, as the paper does with
    polynomials in e^{−t}. What is found is a local optimum in the rates. Reference: wang2024, appendix D, eq. (118).

    Args:
        lags: increasing times, ``(lag,)``.
        memory: ρ at these times, ``(lag,)``.
        terms: the width m.
        rates: fixed rates, ``terms`` positive numbers.

    >>> t = np.arange(1, 101)
    >>> found = fit_exponential_sum(t, 0.9**t, 1)
    >>> round(found.rates[0], 6), round(found.weights[0], 6), found.largest < 1e-9
    (0.105361, 1.0, True)
    >>> [fit_exponential_sum(t, (t + 1) ** -1.1, m).largest > 1e-4 for m in (1, 2)]
    [True, True]
    """
    check_count("terms", terms)
    time, target = _curve(lags, memory)
    if rates is None:
        found = _searched(time, target, terms)
    else:
        found = np.asarray(rates, dtype=float)
        good = found.shape == (terms,) and bool(np.isfinite(found).all()) and bool((found > 0).all())
        require(good, f"expected {terms} rates above 0, as there are so many terms", f"got {list(rates)}")
    found = np.sort(found)
    basis = _basis(found, time)
    weights = _weights(basis, target)
    off = np.abs(basis @ weights - target)
    return ExponentialSum(
        rates=tuple(found.tolist()),
        weights=tuple(weights.tolist()),
        error=float(np.sqrt(np.mean(off**2))),
        largest=float(off.max()),
        total=float(off.sum()),
    )


def perturbed_sum_error(
    fit: ExponentialSum,
    lags: Any,
    memory: Any,
    betas: Sequence[float],
    *,
    draws: int = 10,
    seed: int = 0,
) -> Numbers:
    """Give E(β), the largest error of a fit whose W, U and c each move by β in the spectral norm, over random draws.

        E(β) = max over draws of Σ_t |ρ(t) − (c + δc)ᵀ e^{(W + δW)t} (U + δU)|,   ‖δW‖₂ = |δU|₂ = |δc|₂ = β

    The same directions serve every β. It is a lower bound of the supremum; infinity where the sum overflows.
    Reference: wang2024, definition 3.4, appendix D and figure 1.

    >>> t = np.arange(1, 101)
    >>> fit = fit_exponential_sum(t, 0.9**t, 1)
    >>> still, small, large = perturbed_sum_error(fit, t, 0.9**t, (0, 1e-4, 0.5))
    >>> still < 1e-9 < small < 0.1 < large
    True
    """
    check_count("draws", draws)
    check_count("seed", seed, least=0)
    sizes = [float(beta) for beta in betas]
    require(all(0 <= beta < np.inf for beta in sizes), "expected finite betas of at least 0", f"got {sizes}")
    time, target = _curve(lags, memory)
    parts = fit.matrices()
    generator = np.random.default_rng(seed)
    worst = np.zeros(len(sizes))
    for _ in range(draws):
        moves = [generator.standard_normal(part.shape) for part in parts]
        moves = [move / np.linalg.norm(move, 2) for move in moves]
        for place, beta in enumerate(sizes):
            matrix, entering, reading = (part + beta * move for part, move in zip(parts, moves, strict=True))
            worst[place] = max(worst[place], _total(matrix, entering, reading, time, target))
    return tuple(worst.tolist())


def _total(matrix: np.ndarray, entering: np.ndarray, reading: np.ndarray, time: Curve, target: Curve) -> float:
    """Sum |ρ(t) − cᵀe^{Wt}U| over the lags, by one exponential of each distance between lags."""
    steps = np.diff(time, prepend=0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        advance = {step: expm(matrix * step) for step in np.unique(steps).tolist()}
        state, total = entering, 0.0
        for step, wanted in zip(steps.tolist(), target.tolist(), strict=True):
            state = advance[step] @ state
            total += abs(float(reading @ state) - wanted)
    return total if np.isfinite(total) else float("inf")


def _searched(time: Curve, target: Curve, terms: int) -> np.ndarray:
    span = time[-1] - time[0]
    least = np.log(SLOWEST / span)
    most = np.log(FASTEST / np.diff(time).min())

    def residual(logs: np.ndarray) -> np.ndarray:
        basis = _basis(np.exp(np.clip(logs, least, most)), time)
        return basis @ _weights(basis, target) - target

    best = np.zeros(0)
    for _ in range(terms):
        inside = np.clip(best, least, most)
        new = [np.log(3 / span)] if not len(inside) else [inside.min() - 1, inside.max() + 1]
        starts = [np.append(inside, np.clip(one, least, most)) for one in new]
        found = [least_squares(residual, start, max_nfev=40, x_scale=1.0) for start in starts]
        best = min(found, key=lambda one: one.cost).x
    return np.exp(np.clip(best, least, most))


def _basis(rates: Float[np.ndarray, " term"], time: Curve) -> Float[np.ndarray, "lag term"]:
    return np.exp(-time[:, None] * rates)


def _weights(basis: Float[np.ndarray, "lag term"], target: Curve) -> Float[np.ndarray, " term"]:
    sizes = np.linalg.norm(basis, axis=0) + 1e-300
    return np.linalg.lstsq(basis / sizes, target, rcond=_CUT)[0] / sizes


def _curve(lags: Any, memory: Any) -> tuple[Curve, Curve]:
    time, target = np.asarray(lags, dtype=float), np.asarray(memory, dtype=float)
    good = time.ndim == 1 and time.shape == target.shape and len(time) >= 2
    require(good, "expected as many lags as values of the memory, at least 2", f"got {time.shape} and {target.shape}")
    finite = bool(np.isfinite(time).all() and np.isfinite(target).all())
    require(finite, "expected finite lags and memory", "got NaN or infinity")
    require(bool((np.diff(time) > 0).all() and time[0] >= 0), "expected increasing lags of at least 0", "got others")
    return time, target

"""Linear units whose rates are rescaled, and the worst that moving their weights can do (wang2024, appendix C)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

Curve = Float64[np.ndarray, " lag"]
Units = Float64[np.ndarray, " unit"]
_STEEPEST = 24
"""Lags, evenly spread over all, whose steepest direction is tried."""


@dataclass(frozen=True)
class LinearUnits:
    """Independent linear units with the memory ρ̂(t) = Σ_k readout_k e^{scales_k weights_k t}.

    Scales are fixed, 1 in a plain network and 1/k in the rescaled one; weights and readout are trained, so they move.
    """

    weights: Units
    readout: Units
    scales: Units

    def terms(self, lags: Curve, move: Units | float = 0.0) -> Float64[np.ndarray, "lag unit"]:
        """Return e^{scales (weights + move) t}; infinity where that overflows."""
        return np.exp(lags[:, None] * (self.scales * (self.weights + move)))


def slow_memory(lags: Curve, power: int, terms: int) -> Curve:
    """Return ρ(t) = Σ_k k⁻² e^{−t/k^power}, cut after ``terms``: at most 1/terms is missing.

    Its integral, Σ_k k^(power − 2), is infinite.

    >>> slow_memory(np.array([0.0, 1e9]), 1, 1000).round(3).tolist()
    [1.644, 0.0]
    """
    results = np.zeros_like(lags)
    for part in np.array_split(np.arange(1.0, terms + 1), max(terms // 1000, 1)):
        results += np.exp(-lags[:, None] / part**power) @ part**-2.0
    return results


@np.errstate(over="ignore", invalid="ignore")
def worst_errors(
    units: LinearUnits, lags: Curve, target: Curve, betas: Sequence[float], *, readout: bool
) -> tuple[float, list[float]]:
    """Return sup_t |ρ − ρ̂| as it stands, and the worst found after the weights moved by at most each of the ``betas``.

    Weights move by |δ|₂ ≤ β: one alone, either way, or in the direction that changes the memory fastest at some lag: a
    lower bound of the supremum. With ``readout`` the read-out moves by |δ|₂ ≤ β as well, the worst way, which is
    exact: it adds β times the 2-norm of the terms. Reference: wang2024, definition 3.4.

    >>> one = LinearUnits(np.array([-1.0]), np.array([1.0]), np.array([1.0]))
    >>> t = np.linspace(0, 50, 501)
    >>> still, (small, large) = worst_errors(one, t, np.exp(-t), [0.01, 1.5], readout=False)
    >>> still, round(small, 4), large > 1e10
    (0.0, 0.0037, True)
    """
    terms = units.terms(lags)
    still = terms @ units.readout - target
    slopes = units.readout * units.scales * lags[:, None] * terms
    chosen = np.unique(np.linspace(1, len(lags) - 1, _STEEPEST).round().astype(int))
    sizes = np.linalg.norm(slopes, axis=1)
    directions = [slopes[place] / sizes[place] for place in chosen if sizes[place] > 0]
    worst = []
    for beta in betas:
        results = [_alone(units, lags, still, terms, sign * beta, readout) for sign in (1, -1)]
        for direction in directions:
            for sign in (1, -1):
                moved = units.terms(lags, sign * beta * direction)
                change = _weighed(units, moved - terms).sum(1)
                results.append(_largest(still + change, np.linalg.norm(moved, axis=1), beta if readout else 0.0))
        worst.append(max(results))
    return float(np.abs(still).max()), np.maximum.accumulate(worst).tolist()


def _alone(units: LinearUnits, lags: Curve, still: Curve, terms: np.ndarray, move: float, readout: bool) -> float:
    """Move every weight, one at a time."""
    moved = units.terms(lags, move)
    sizes = np.sqrt(np.maximum((terms**2).sum(1)[:, None] - terms**2 + moved**2, 0.0))
    return _largest(still[:, None] + _weighed(units, moved - terms), sizes, abs(move) if readout else 0.0)


def _weighed(units: LinearUnits, change: Float64[np.ndarray, "lag unit"]) -> Float64[np.ndarray, "lag unit"]:
    """Weigh changes by the read-out; a unit that is not read adds nothing, however it grows."""
    return np.where(units.readout == 0, 0.0, units.readout * change)


def _largest(off: np.ndarray, sizes: np.ndarray, beta: float) -> float:
    errors = np.abs(off) + (beta * sizes if beta else 0.0)
    return float(np.nan_to_num(errors, nan=np.inf, posinf=np.inf).max())

"""How slowly and how fast a map h ← F h + Q σ(W h + z) can forget, for every input: ρ₋ ≤ ‖Δ⁺‖/‖Δ‖ ≤ ρ₊."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sostenuto.nn.certificates.equations import stein
from sostenuto.nn.certificates.inequality import Solution, distortion, proved, verified
from sostenuto.nn.certificates.interval import Interval
from sostenuto.nn.certificates.riccati import search_with_one_multiplier
from sostenuto.nn.certificates.semidefinite import has_solver, search
from sostenuto.nn.certificates.slopes import decay_limit, rate_limit
from sostenuto.nn.certificates.system import SectorSystem, bare
from sostenuto.nn.certificates.units import joined, parts

SMALL = 48
"""States and units together up to which the solver is asked: beyond it takes longer than some seconds."""
_NEVER = 30.0
"""A decay of e^{−30} a step counts as none proved."""


@dataclass(frozen=True, eq=False)
class Side:
    """One side: the rate per step, the norm √(δᵀPδ) it is in (Euclidean where None) and the test that proved it."""

    rate: float
    metric: Float[np.ndarray, "state state"] | None
    test: str
    multipliers: Float[np.ndarray, " unit"] | None = None

    @property
    def distortion(self) -> float:
        """Bound √cond(P), what going to the Euclidean norm and back costs."""
        return 1.0 if self.metric is None else distortion(self.metric)


def fastest(system: SectorSystem) -> Side | None:
    """Prove the least rate of decay that no difference exceeds: ‖Δ⁺‖ ≥ e^{−rate}‖Δ‖; None where nothing is found.

    V(Δ) = ΔᵀXΔ grows to at least ρ²V where

        [[FᵀXF − ρ²X, FᵀXQ − sWᵀΛ], [QᵀXF − sΛW, QᵀXQ + 2Λ]] ≽ 0

    for X ≻ 0 and a diagonal Λ ≻ 0. Tried are norms in which the middle slopes act evenly with one multiplier for all
    units, at any size, and, for small parts with cvxpy, the semidefinite program. No pair is believed unchecked.

    >>> round(fastest(SectorSystem(np.array([[0.9]]), np.array([[0.1]]), np.array([[-1.0]]), 1.0)).rate, 3)
    0.223
    """
    return _proved_by_parts(system, _fastest_part, lower=True)


def slowest(system: SectorSystem) -> Side | None:
    """Prove the largest rate at which every difference decays, ‖Δ⁺‖ ≤ e^{−rate}‖Δ‖ with rate > 0; None where none is.

    >>> round(slowest(SectorSystem(np.array([[0.9]]), np.array([[0.1]]), np.array([[-1.0]]), 1.0)).rate, 3)
    0.105
    """
    return _proved_by_parts(system, _slowest_part, lower=False)


def _proved_by_parts(
    system: SectorSystem, prove: Callable[[SectorSystem], tuple[Solution | None, str]], *, lower: bool
) -> Side | None:
    """Prove each independent part, and check the whole at the worst part's rate or a little on its safe side."""
    system = bare(system)
    split = parts(system)
    solutions, tests = [], set()
    for part in split:
        solution, test = prove(part.system)
        if solution is None or (not lower and solution.rate <= 0):
            return None
        solutions.append(solution)
        tests.add(test)
    rate = (max if lower else min)(solution.rate for solution in solutions)
    for share in (0.0, 1e-9, 1e-6, 1e-3):
        safe = rate + share * max(abs(rate), 1e-6) if lower else rate * (1 - share)
        whole = joined(system, split, solutions, safe)
        if (not lower or whole.rate < _NEVER) and verified(system, whole, discrete=True, lower=lower):
            return Side(whole.rate, whole.metric, " and ".join(sorted(tests)), whole.multipliers)
    return None


def unit_factors(
    linear: Float[np.ndarray, " unit"],
    gain: Float[np.ndarray, " unit"],
    weight: Float[np.ndarray, " unit"],
    slopes: tuple[float, float],
) -> Interval:
    """Enclose the factors f + q·w·k over slopes k of independent units h ← f h + q σ(w h + z).

    >>> found = unit_factors(np.ones(1), np.full(1, 0.1), np.full(1, -2.0), (0.0, 1.0))
    >>> found.low.round(6), found.high.round(6)
    (array([0.8]), array([1.]))
    """
    ends = [Interval.of(linear) + Interval.of(gain) * weight * slope for slope in slopes]
    return Interval(np.minimum(ends[0].low, ends[1].low), np.maximum(ends[0].high, ends[1].high))


def slow_field(system: SectorSystem, step: float) -> float | None:
    """Prove ‖δ + τ(Fδ + Qφ)‖ ≥ e^{−rate}‖δ‖ for every step 0 ≤ τ ≤ ``step`` of a field, by two Euclidean tests.

    The field is at most L = ‖C‖ + ½s‖Q‖‖W‖ times as large as δ, C = F + ½sQW, so 1 − τL is left; and it points inward
    by at most m = λ_max(−(C + Cᵀ)/2) + ½s‖Q‖‖W‖, so 1 − 2τm of the square is.
    """
    center = system.at(np.full(system.input.shape[1], system.slope / 2))
    push = system.slope / 2 * np.linalg.norm(system.input, 2) * np.linalg.norm(system.output, 2)
    slack = 64 * len(center) * np.finfo(np.float64).eps * (np.linalg.norm(center) + push) + system.rounding
    largest = float(np.linalg.norm(center, 2) + push + slack)
    inward = max(float(np.linalg.eigvalsh(-(center + center.T) / 2)[-1] + push + slack), 0.0)
    kept = max(1 - step * largest, max(1 - 2 * step * inward, 0.0) ** 0.5) * (1 - 1e-14)
    return float(-np.log(kept)) * (1 + 1e-14) if kept > np.exp(-_NEVER) else None


def _fastest_part(system: SectorSystem) -> tuple[Solution | None, str]:
    limit = decay_limit(system)
    if not limit < _NEVER:
        return None, ""
    best = None
    for metric in _even_norms(system):
        solution = proved(system, metric, _multipliers(system, metric), discrete=True, lower=True)
        if solution is not None and (best is None or solution.rate < best.rate):
            best = solution
    test = "norm"
    if not system.is_linear and sum(system.input.shape) <= SMALL and has_solver():
        start = best.rate if best is not None else max(4 * limit, 0.1)
        finer = search(system, discrete=True, start=start, limit=limit, lower=True)
        if finer is not None and (best is None or finer.rate < best.rate):
            best, test = finer, "matrix inequality"
    return best, test


def _slowest_part(system: SectorSystem) -> tuple[Solution | None, str]:
    limit = min(rate_limit(system, discrete=True), _NEVER)
    if limit <= 0:
        return None, ""
    best = None
    for metric in _even_norms(system, growing=True):
        solution = proved(system, metric, _multipliers(system, metric), discrete=True)
        if solution is not None and (best is None or solution.rate > best.rate):
            best = solution
    if system.is_linear or (best is not None and best.rate > 0.9 * limit):
        return best, "norm"
    if sum(system.input.shape) <= SMALL and has_solver():
        start, test = best.rate if best else 0.0, "matrix inequality"
        searched = search(system, discrete=True, start=start, limit=limit)
    else:
        searched, test = search_with_one_multiplier(system, discrete=True, limit=limit), "riccati equation"
    return (searched, test) if searched is not None and (best is None or searched.rate > best.rate) else (best, "norm")


def _even_norms(system: SectorSystem, *, growing: bool = False) -> list[np.ndarray]:
    """Propose norms: the Euclidean one, and those where the map with middle slopes acts evenly, by Stein's equation."""
    eye = np.eye(len(system.linear))
    center = system.at(np.full(system.input.shape[1], system.slope / 2))
    sizes = np.abs(np.linalg.eigvals(center))
    edge = float(sizes.max() if growing else sizes.min())
    candidates = [eye]
    if edge == 0 or np.linalg.cond(center) > 1e12:
        return candidates
    decay = max(abs(np.log(edge)), 1e-6)
    for share in (0.03, 0.3) if not system.is_linear else (1e-9, 1e-6, 1e-3, 0.1):
        if growing:
            metric = stein(center / edge * np.exp(-share * decay), eye)
        else:
            metric = stein(np.linalg.inv(center) * edge * np.exp(-share * decay), eye)
        if metric is not None:
            candidates.append(metric)
    return candidates


def _multipliers(system: SectorSystem, metric: np.ndarray) -> Float[np.ndarray, "candidate unit"]:
    """Propose multipliers common to all units: around the one of the norm test in this norm."""
    ones = np.ones((1, system.input.shape[1]))
    if system.is_linear:
        return ones
    values = np.linalg.eigvalsh(metric)
    push = values[-1] ** 0.5 * np.linalg.norm(system.input, 2)
    lean = system.slope * np.linalg.norm(system.output, 2) / max(float(values[0]), 1e-300) ** 0.5
    return push / max(float(lean), 1e-300) * 4.0 ** np.arange(-3, 3)[:, None] * ones

"""The two matrix inequalities, and the check that a pair (P, Λ) solves one: in float64, rounding counted."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sostenuto.nn.certificates.system import SectorSystem

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Solution:
    """P, the diagonal of Λ, and the rate for which the inequality was checked with them."""

    metric: Float[np.ndarray, "state state"]
    multipliers: Float[np.ndarray, " unit"]
    rate: float

    @property
    def overshoot(self) -> float:
        """Bound what going from the norm of P to the Euclidean one can cost: √cond(P)."""
        return distortion(self.metric)


def distortion(metric: Float[np.ndarray, "state state"]) -> float:
    """Bound √cond(P) of a positive definite P, however far apart the units of its states are.

    Where rounding hides the least eigenvalue P is read as DP̂D, with D of powers of two and a diagonal of P̂ near one:
    then cond(P) ≤ cond(P̂)·cond(D)².

    >>> distortion(np.diag([1.0, 4.0])) >= 2, distortion(np.diag([1.0, 1e-40])) < 2e20
    (True, True)
    """
    bound, scale = _condition(metric), np.exp2(np.round(np.log2(np.diag(metric)) / 2))
    if not bound < 1e12:
        bound = min(bound, _condition(metric / scale / scale[:, None]) * float(scale.max() / scale.min()) ** 2)
    return float(np.sqrt(bound)) * (1 + 1e-15)


def _condition(metric: np.ndarray) -> float:
    """Bound cond(P) by its eigenvalues and the rounding in them; infinite where that hides the least."""
    values = np.linalg.eigvalsh(metric)
    error = 8 * len(values) * _EPS * values[-1]
    return float((values[-1] + error) / (values[0] - error)) if values[0] > error else np.inf


def form(
    system: SectorSystem,
    metric: np.ndarray,
    multipliers: np.ndarray,
    rate: float,
    *,
    discrete: bool,
    lower: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Build the matrix that must be negative definite, and a bound on the rounding error of every entry.

    Continuous, δ′ = Aδ + Bφ: [[AᵀP + PA + 2rP, PB + sCᵀΛ], [·, −2Λ]]. Discrete, δ ← Aδ + Bφ:
    [[AᵀPA − e^{−2r}P, AᵀPB + sCᵀΛ], [·, BᵀPB − 2Λ]]. Either is V′ + 2rV (or V⁺ − e^{−2r}V) for V = δᵀPδ plus
    2Σλᵢφᵢ(s(Cδ)ᵢ − φᵢ), which is never negative for slopes in [0, s]. With ``lower`` the discrete one is turned round,
    Λ to −Λ and the whole to its negative: e^{−2r}V − V⁺ + 2Σλᵢφᵢ(s(Cδ)ᵢ − φᵢ), so that V⁺ ≥ e^{−2r}V.
    """
    A, B, C, s = system.linear, system.input, system.output, system.slope  # noqa: N806
    turn = -1.0 if lower else 1.0

    def blocks(a: np.ndarray, b: np.ndarray, c: np.ndarray, p: np.ndarray, sign: float, lean: np.ndarray) -> np.ndarray:
        left, side, end = a.T @ p, s * c.T * lean, sign * 2 * np.diag(lean)
        if discrete:
            corner = left @ a + sign * np.exp(-2 * rate) * p
            side, end = side + left @ b, end + b.T @ p @ b
        else:
            corner = left + left.T + 2 * (rate if sign < 0 else abs(rate)) * p
            side = side + p @ b
        return np.block([[corner, side], [side.T, end]])

    form = turn * blocks(A, B, C, metric, -1.0, turn * multipliers)
    moved, own = np.abs(A) + system.rounding, np.abs(multipliers)
    size = blocks(moved, np.abs(B), np.abs(C), np.abs(metric), 1.0, own)
    error = (2 * len(A) + 8) * _EPS * size
    if system.rounding:
        error = error + 2 * (size - blocks(np.abs(A), np.abs(B), np.abs(C), np.abs(metric), 1.0, own))
    return (form + form.T) / 2, error


def is_negative(matrix: np.ndarray, error: np.ndarray) -> bool:
    """Return whether every symmetric matrix within ``error`` of ``matrix`` is negative definite.

    Rows and columns are first scaled by powers of two, which is exact, so that the diagonal is of order one. Then the
    negative, less the error and 2(n + 4)ε times its trace on the diagonal, is handed to Cholesky's method: that it ends
    proves the claim, since rounding moves what it factors by less than that. Reference: Rump 2006, theorem 2.3.

    >>> is_negative(np.diag([-1.0, -1e-9]), np.zeros((2, 2))), is_negative(np.diag([-1.0, 1e-18]), np.zeros((2, 2)))
    (True, False)
    """
    diagonal = -np.diag(matrix)
    if not (np.isfinite(matrix).all() and np.isfinite(error).all() and (diagonal > 0).all()):
        return False
    scale = np.exp2(-np.round(np.log2(diagonal) / 2))
    scaled = -matrix * scale * scale[:, None]
    rounding = 2 * (len(matrix) + 4) * _EPS * float(np.trace(scaled))
    unsure = np.linalg.norm(error * scale * scale[:, None]) * (1 + 1e-9) + rounding
    try:
        np.linalg.cholesky(scaled - unsure * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return False
    return True


def verified(system: SectorSystem, solution: Solution, *, discrete: bool, lower: bool = False) -> bool:
    """Check P ≻ 0, Λ ≻ 0 and the inequality itself, whatever proposed them."""
    metric, multipliers = solution.metric, solution.multipliers
    positive = bool((multipliers > 0).all()) and is_negative(-metric, np.zeros_like(metric))
    return positive and is_negative(*form(system, metric, multipliers, solution.rate, discrete=discrete, lower=lower))


def best_rates(
    system: SectorSystem,
    metric: np.ndarray,
    candidates: Float[np.ndarray, "candidate unit"],
    *,
    discrete: bool,
    lower: bool = False,
) -> list[float | None]:
    """Return the largest rate for which (P, Λ) solves the inequality, for several Λ with one P; None where none is.

    φ is eliminated, in coordinates in which P is the identity. What is left is S + 2rP ≺ 0 (or S ≺ e^{−2r}P): a
    generalized eigenvalue. The rate may be negative. With ``lower`` it is the least one, S ≻ e^{−2r}P.
    """
    A, B, C, s = system.linear, system.input, system.output, system.slope  # noqa: N806
    try:
        root = np.linalg.cholesky(metric)
    except np.linalg.LinAlgError:
        return [None] * len(candidates)
    moved = metric @ A
    corner = A.T @ moved if discrete else moved.T + moved
    corner = np.linalg.solve(root, np.linalg.solve(root, corner).T)
    side = np.linalg.solve(root, moved.T @ B if discrete else metric @ B)
    lean = s * np.linalg.solve(root, C.T)
    end = B.T @ metric @ B if discrete else np.zeros((B.shape[1],) * 2)
    turn = -1.0 if lower else 1.0
    rates: list[float | None] = []
    for multipliers in candidates:
        try:
            half = np.linalg.cholesky(np.diag(2 * multipliers) - turn * end)
        except np.linalg.LinAlgError:
            rates.append(None)
            continue
        half = np.linalg.solve(half, (side + turn * lean * multipliers).T)
        values = np.linalg.eigvalsh(_symmetric(corner + turn * half.T @ half))
        edge = float(values[0 if lower else -1])
        if discrete:
            rates.append(-float(np.log(edge)) / 2 if edge > 0 else None)
        else:
            rates.append(-edge / 2)
    return rates


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def proved(
    system: SectorSystem, metric: np.ndarray, multipliers: np.ndarray, *, discrete: bool, lower: bool = False
) -> Solution | None:
    """Return the pair with the best rate it proves, less what rounding takes; None where that is nothing.

    Of several Λ, one per row, the best that passes the check is taken.
    """
    candidates = np.atleast_2d(multipliers)
    rates = best_rates(system, metric, candidates, discrete=discrete, lower=lower)
    known = [(rate, units) for rate, units in zip(rates, candidates, strict=True) if rate is not None]
    for rate, units in sorted(known, key=lambda pair: pair[0] if lower else -pair[0]):
        if not (lower or rate > 0):
            return None
        for share in (1e-9, 1e-6, 1e-3):
            inside = rate + share * max(abs(rate), 1e-6) if lower else rate * (1 - share)
            solution = Solution(metric, units, inside)
            if verified(system, solution, discrete=discrete, lower=lower):
                return solution
    return None

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
        values = np.linalg.eigvalsh(self.metric)
        error = 8 * len(values) * _EPS * values[-1]
        return float(np.sqrt((values[-1] + error) / (values[0] - error)))


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
        if discrete:
            corner = a.T @ p @ a + sign * np.exp(-2 * rate) * p
            side = a.T @ p @ b + s * c.T @ lean
            end = b.T @ p @ b + sign * 2 * lean
        else:
            corner = a.T @ p + p @ a + 2 * (rate if sign < 0 else abs(rate)) * p
            side = p @ b + s * c.T @ lean
            end = sign * 2 * lean
        return np.block([[corner, side], [side.T, end]])

    form = turn * blocks(A, B, C, metric, -1.0, turn * np.diag(multipliers))
    moved, own = np.abs(A) + system.rounding, np.diag(np.abs(multipliers))
    size = blocks(moved, np.abs(B), np.abs(C), np.abs(metric), 1.0, own)
    error = (2 * len(A) + 8) * _EPS * size
    if system.rounding:
        error = error + 2 * (size - blocks(np.abs(A), np.abs(B), np.abs(C), np.abs(metric), 1.0, own))
    return (form + form.T) / 2, error


def is_negative(matrix: np.ndarray, error: np.ndarray) -> bool:
    """Say whether every symmetric matrix within ``error`` of ``matrix`` is negative definite.

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
    """Check P ≻ 0, Λ ≻ 0 and the inequality itself; nobody's word is taken for any of them."""
    metric, multipliers = solution.metric, solution.multipliers
    positive = bool((multipliers > 0).all()) and is_negative(-metric, np.zeros_like(metric))
    return positive and is_negative(*form(system, metric, multipliers, solution.rate, discrete=discrete, lower=lower))


def best_rate(
    system: SectorSystem, metric: np.ndarray, multipliers: np.ndarray, *, discrete: bool, lower: bool = False
) -> float | None:
    """Give the largest rate for which (P, Λ) solves the inequality, by eliminating φ; None where there is none.

    What is left is S + 2rP ≺ 0 (or S ≺ e^{−2r}P): a generalized eigenvalue. The rate may be negative. With ``lower``
    it is the least one, S ≻ e^{−2r}P.
    """
    A, B, C, s = system.linear, system.input, system.output, system.slope  # noqa: N806
    slope_part = s * C.T * multipliers
    if lower:
        end, side, corner = np.diag(2 * multipliers) + B.T @ metric @ B, A.T @ metric @ B - slope_part, A.T @ metric @ A
    elif discrete:
        end, side, corner = np.diag(2 * multipliers) - B.T @ metric @ B, A.T @ metric @ B + slope_part, A.T @ metric @ A
    else:
        end, side, corner = np.diag(2 * multipliers), metric @ B + slope_part, A.T @ metric + metric @ A
    try:
        root = np.linalg.cholesky(metric)
        half = np.linalg.solve(np.linalg.cholesky(end), side.T)
    except np.linalg.LinAlgError:
        return None
    left = np.linalg.solve(root, corner - half.T @ half if lower else corner + half.T @ half)
    values = np.linalg.eigvalsh(_symmetric(np.linalg.solve(root, left.T)))
    largest = float(values[0 if lower else -1])
    if not discrete:
        return -largest / 2
    return -float(np.log(largest)) / 2 if largest > 0 else None


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def proved(
    system: SectorSystem, metric: np.ndarray, multipliers: np.ndarray, *, discrete: bool, lower: bool = False
) -> Solution | None:
    """Give the pair with the best rate it proves, less what rounding takes; None where that is nothing."""
    rate = best_rate(system, metric, multipliers, discrete=discrete, lower=lower)
    if rate is None or not (lower or rate > 0):
        return None
    for share in (1e-9, 1e-6, 1e-3):
        inside = rate + share * max(abs(rate), 1e-6) if lower else rate * (1 - share)
        solution = Solution(metric, multipliers, inside)
        if verified(system, solution, discrete=discrete, lower=lower):
            return solution
    return None

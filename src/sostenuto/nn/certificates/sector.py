"""The Lur'e test: a matrix inequality that uses every unit's slope on its own."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.certificates import norms
from sostenuto.nn.certificates.certificate import Certificate, fails
from sostenuto.nn.certificates.equations import lyapunov_equation, stein
from sostenuto.nn.certificates.inequality import Solution, verified
from sostenuto.nn.certificates.riccati import search_with_one_multiplier
from sostenuto.nn.certificates.semidefinite import has_solver, search
from sostenuto.nn.certificates.slopes import rate_limit
from sostenuto.nn.certificates.system import SectorSystem, Slope, bare, sector_system
from sostenuto.nn.certificates.unit import DenseUnit
from sostenuto.nn.certificates.units import Part, joined, parts

LARGEST = 64
"""States and units together beyond which the semidefinite program takes minutes; a Riccati equation serves there."""
LURE = "[[AᵀP + PA + 2rP, PB + sWᵀΛ], [BᵀP + sΛW, −2Λ]] ≺ 0 for some P ≻ 0 and diagonal Λ ≻ 0"
_HURWITZ = "a Hurwitz matrix A + B diag(k) W for all slopes k"


def lure(
    A: Float[Tensor, "state state"],  # noqa: N803
    W: Float[Tensor, "unit state"],  # noqa: N803
    slope: Slope = 1.0,
    *,
    B: Float[Tensor, "state unit"] | None = None,  # noqa: N803
) -> Certificate:
    """Test whether h′ = A h + B σ(W h + z(t)) contracts in some quadratic norm under every input z.

    It does at the rate r if there are P ≻ 0 and a diagonal Λ ≻ 0 with

        [[AᵀP + PA + 2rP, PB + sWᵀΛ], [BᵀP + sΛW, −2Λ]] ≺ 0,

    for slopes of σ in [0, s]. The largest r is searched with cvxpy (extra ``certificates``), and what the solver finds
    is checked by Cholesky's method before it is called one. It proves at least what `contraction` does:
    P = I, Λ = ‖B‖₂/(s‖W‖₂) I is that test. Without cvxpy that test alone is made, and beyond 64 states and units Λ = λI
    is tried, which a Riccati equation solves; ``test`` and ``checked`` say so. For the identity the exact test of a
    linear system is made instead.
    Reference: erichson2021, proposition 1, as corrected in ``docs/errata.md`` (erichson2021.1).

    Args:
        A: the linear part, ``(state, state)``.
        W: from the state to the units, ``(unit, state)``.
        slope: the activation's name, its largest slope, or its least and largest one.
        B: from the units to the state, ``(state, unit)``; the identity if left out.

    >>> import torch
    >>> A, W = torch.tensor([[-1.0]]), torch.tensor([[-3.0]])
    >>> contraction = norms.contraction(A, W)
    >>> contraction.holds, lure(A, W).holds
    (False, True)
    >>> lure(torch.tensor([[-0.1]]), torch.tensor([[1.0]])).reason
    'not applicable: a Hurwitz matrix A + B diag(k) W for all slopes k fails (largest real part 0.9)'
    """
    system = sector_system(A, W, B, slope)
    limit = rate_limit(system, discrete=False)
    if limit <= 0:
        value = f"largest real part {-limit:.6g}"
        return Certificate("lure", False, "linear", _HURWITZ, reason=fails(_HURWITZ, value))
    if system.is_linear:
        return linear_certificate("lure", system, limit, discrete=False)
    value, slack = norms.growth(system)
    floor = replace(norms.contraction(A, W, slope, B=B), kind="lure")
    return inequality_certificate(floor, system, -(value + slack), limit, LURE, discrete=False)


def certify_lure(unit: DenseUnit) -> Certificate:
    """Test a layer's differential equation."""
    return lure(unit.linear, unit.weight, unit.activation, B=unit.gain)


def inequality_certificate(
    floor: Certificate, system: SectorSystem, start: float, limit: float, condition: str, *, discrete: bool
) -> Certificate:
    """Improve on ``floor``, the answer of the norm test, where cvxpy is there and the system small enough."""
    split = parts(system)
    size = max(len(part.states) + len(part.units) for part in split)
    if not has_solver():
        return _norms_alone(floor, "the matrix inequality needs cvxpy: pip install 'sostenuto[certificates]'")
    if size > LARGEST:
        return _large(floor, system, limit, condition, discrete=discrete)
    solution = _by_parts(system, split, discrete=discrete, start=max(start, 0.0), limit=limit)
    if solution is None or solution.rate <= (floor.rate or 0.0):
        if floor.holds:
            return floor
        why = "the solver finds no pair that passes the check"
        return Certificate(floor.kind, False, "matrix inequality", condition, reason=fails(condition, why))
    return _solved(floor.kind, "matrix inequality", condition, solution)


def _by_parts(
    system: SectorSystem, split: list[Part], *, discrete: bool, start: float, limit: float
) -> Solution | None:
    """Search in every part alone, in balanced units, and check what they give together in the units of the whole."""
    solutions = []
    for part in split:
        own = part.system
        if own.is_linear:
            own_limit = rate_limit(own, discrete=discrete)
            solution = _linear(own, own_limit, discrete=discrete)
        else:
            solution = search(own, discrete=discrete, start=start, limit=limit)
            solution = solution or (search(own, discrete=discrete, start=0.0, limit=limit) if start else None)
        if solution is None:
            return None
        solutions.append(solution)
    rate = min(solution.rate for solution in solutions)
    for share in (0.0, 1e-9, 1e-6, 1e-3):
        whole = joined(system, split, solutions, rate * (1 - share))
        if verified(system, whole, discrete=discrete):
            return whole
    return None


def linear_certificate(kind: str, system: SectorSystem, limit: float, *, discrete: bool) -> Certificate:
    """Prove a rate just below the slowest eigenvalue's by a solution of Lyapunov's equation."""
    condition = "FᵀPF ≺ e^{−2r}P for some P ≻ 0" if discrete else "AᵀP + PA + 2rP ≺ 0 for some P ≻ 0"
    alone = bare(system)
    solution = _by_parts(alone, parts(alone), discrete=discrete, start=0.0, limit=limit)
    if solution is not None:
        return _solved(kind, "linear", condition, replace(solution, multipliers=np.ones(0)))
    why = f"rounding hides the decay of {limit:.3g}"
    return Certificate(kind, False, "linear", condition, reason=fails(condition, why))


def _linear(system: SectorSystem, limit: float, *, discrete: bool) -> Solution | None:
    alone = bare(system)
    eye, units = np.eye(len(alone.linear)), np.ones(system.input.shape[1])
    for share in (1e-9, 1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9):
        # A limit of infinity is a nilpotent map, whose rate has no upper limit.
        rate = (1 - share) * min(limit, 36.0) if discrete else (1 - share) * limit
        if discrete:
            metric = stein(np.exp(rate) * alone.linear, eye)
        else:
            metric = lyapunov_equation(alone.linear + rate * eye, eye)
        if metric is not None and verified(alone, Solution(metric, np.ones(0), rate), discrete=discrete):
            return Solution(metric, units, rate)
    return None


def _large(floor: Certificate, system: SectorSystem, limit: float, condition: str, *, discrete: bool) -> Certificate:
    """Try one multiplier for all units, by a Riccati equation, where the semidefinite program would take too long."""
    solution = search_with_one_multiplier(system, discrete=discrete, limit=limit)
    why = f"Λ = λI, as there are more than {LARGEST} states and units"
    if solution is not None and solution.rate > (floor.rate or 0.0):
        return _solved(floor.kind, "riccati equation", f"{condition}; {why}", solution)
    if floor.holds:
        return floor
    return replace(floor, test="riccati equation", reason=f"{floor.reason}; nor is there a pair with {why}")


def _norms_alone(floor: Certificate, why: str) -> Certificate:
    said = f"{floor.checked} alone; {why}"
    reason = f"{floor.reason}; {why}" if floor.reason else ""
    return replace(floor, checked=said, reason=reason)


def _solved(kind: str, test: str, condition: str, solution: Solution) -> Certificate:
    return Certificate(
        kind,
        True,
        test,
        condition,
        rate=solution.rate,
        overshoot=solution.overshoot,
        metric=tuple(tuple(row) for row in solution.metric.tolist()),
        multipliers=tuple(solution.multipliers.tolist()),
    )

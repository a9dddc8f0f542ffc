"""Searching for (P, Λ) with a semidefinite solver; what it finds is a proposal, checked elsewhere."""

import importlib.util
import warnings
from typing import Any

import numpy as np

from sostenuto.checks import MissingExtraError
from sostenuto.nn.certificates.inequality import Solution, proved
from sostenuto.nn.certificates.system import SectorSystem

ROUNDS = 12
"""Semidefinite programs solved at most for one certificate."""
PRECISION = 0.01
"""The search for the largest rate ends when it is known to this share."""


def has_solver() -> bool:
    """Return whether cvxpy is installed."""
    return importlib.util.find_spec("cvxpy") is not None


def search(system: SectorSystem, *, discrete: bool, start: float, limit: float, lower: bool = False) -> Solution | None:
    """Look for the largest rate from ``start`` up to ``limit`` that some (P, Λ) proves; None if none is found.

    At a rate r the solver maximizes t in M(r) ≼ −tI with trace P fixed. Where t > 0, the P and Λ found prove more than
    r: the largest rate they prove is a generalized eigenvalue. Bisection between the best rate proved and the least one
    refused does the rest. Every solution returned has passed `verified`. With ``lower`` the least rate is looked for,
    from ``start`` down to ``limit``.
    """
    program = _Program(system, discrete=discrete, lower=lower)
    best, near, far, trial = None, start, limit, start
    for _ in range(ROUNDS):
        solution = _proposal(system, program, trial, discrete=discrete, lower=lower)
        if solution is not None and (solution.rate < near if lower else solution.rate > near):
            best, near = solution, solution.rate
        elif trial == start:
            return None
        else:
            far = trial
        if abs(far - near) <= PRECISION * max(abs(far), abs(near)):
            break
        trial = (near + far) / 2 if np.isfinite(far) else 2 * near
    return best


def _proposal(
    system: SectorSystem, program: "_Program", rate: float, *, discrete: bool, lower: bool
) -> Solution | None:
    """Ask the solver at ``rate`` and return what its answer proves by itself, a little inside the best rate."""
    solution = program.solve(rate)
    if solution is None or not (solution[1] > 0).all():
        return None
    return proved(system, *solution, discrete=discrete, lower=lower)


class _Program:
    """One semidefinite program, compiled once for all rates, in units in which its matrices are of order one."""

    def __init__(self, system: SectorSystem, *, discrete: bool, lower: bool) -> None:
        try:
            import cvxpy
        except ImportError as error:
            raise MissingExtraError("cvxpy", "certificates", "the matrix inequality of a Lur'e certificate") from error
        self.cvxpy: Any = cvxpy
        states, units = system.input.shape
        enter = max(np.linalg.norm(system.input, 2), 1e-300)
        push = system.slope * enter * np.linalg.norm(system.output, 2)
        moving = system.linear - np.eye(states) if discrete else system.linear
        speed = np.linalg.norm(moving, 2) + push
        self.speed = float(min(1.0, speed) if discrete else speed)
        self.unit = float(enter**2 / self.speed)
        self.metric = cvxpy.Variable((states, states), symmetric=True)
        self.multipliers = cvxpy.Variable(units)
        self.shift = cvxpy.Parameter()
        self.margin = cvxpy.Variable()
        B, C = system.input / enter, system.slope * enter * system.output / self.speed  # noqa: N806
        turn = -1.0 if lower else 1.0
        metric, lean = self.metric, turn * cvxpy.diag(self.multipliers)
        if discrete:
            corner = (moving.T @ metric @ moving) / self.speed + (moving.T @ metric + metric @ moving) / self.speed
            side = system.linear.T @ metric @ B + C.T @ lean
            end = self.speed * (B.T @ metric @ B) - 2 * lean
        else:
            scaled = moving / self.speed
            corner, side, end = scaled.T @ metric + metric @ scaled, metric @ B + C.T @ lean, -2 * lean
        whole = cvxpy.bmat([[corner + self.shift * metric, side], [side.T, end]])
        constraints = [
            turn * (whole + whole.T) / 2 + self.margin * np.eye(states + units) << 0,
            cvxpy.trace(metric) == states,
        ]
        if lower:  # otherwise both follow from the inequality
            constraints += [metric >> 1e-6 * np.eye(states), self.multipliers >= 1e-9]
        self.problem = cvxpy.Problem(cvxpy.Maximize(self.margin), constraints)
        self.discrete = discrete

    def solve(self, rate: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Return P and the diagonal of Λ in the system's own units, or None where the solver finds no pair."""
        self.shift.value = float(-np.expm1(-2 * rate) if self.discrete else 2 * rate) / self.speed
        with warnings.catch_warnings():
            # An inaccurate answer is as welcome as any other: it is checked, not believed.
            warnings.filterwarnings("ignore", message="Solution may be inaccurate")
            try:
                self.problem.solve(solver=self.cvxpy.CLARABEL)
            except self.cvxpy.SolverError:
                return None
        metric, multipliers = self.metric.value, self.multipliers.value
        if metric is None or multipliers is None or self.margin.value is None or self.margin.value <= 0:
            return None
        return (metric + metric.T) / 2, multipliers * self.unit

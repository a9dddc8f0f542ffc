"""The matrix inequalities with one multiplier for all units, which a Riccati equation solves at any size.

With Λ = λI and φ = ½sCδ + ψ the sector becomes |ψ|₂ ≤ ½s|Cδ|₂, a ball, and the inequality the bounded-real lemma: some
P proves the rate r exactly where the gain from ψ to ½sCδ stays below one at that rate. P comes from the stable
eigenvectors of a Hamiltonian matrix. It is a proposal as any other, and checked.
"""

import numpy as np

from sostenuto.nn.certificates.inequality import Solution, proved
from sostenuto.nn.certificates.slopes import LARGE
from sostenuto.nn.certificates.system import SectorSystem

ROUNDS = 10
_STRICT = 1e-6


def search_with_one_multiplier(system: SectorSystem, *, discrete: bool, limit: float) -> Solution | None:
    """Look for the largest rate up to ``limit`` that some P and Λ = λI prove, by bisection; None if none is found."""
    best, low, high, trial = None, 0.0, limit, 0.0
    for _ in range(ROUNDS if len(system.linear) <= LARGE else 1):
        proposal = _proposal(system, trial, discrete=discrete)
        if proposal is not None and proposal.rate > low:
            best, low = proposal, proposal.rate
        elif trial == 0:
            return None
        else:
            high = trial
        if high - low <= (0.01 if len(system.linear) <= 128 else 0.1) * high:
            break
        trial = (low + high) / 2
    return best


def _proposal(system: SectorSystem, rate: float, *, discrete: bool) -> Solution | None:
    multiplier = np.linalg.norm(system.input, 2) / (system.slope * np.linalg.norm(system.output, 2))
    states, units = system.input.shape
    center = system.linear + system.slope / 2 * system.input @ system.output
    entering = system.input / np.sqrt(2 * multiplier)
    leaving = np.sqrt(multiplier / 2) * system.slope * system.output
    scale = np.sqrt(_STRICT) * np.linalg.norm(leaving, 2)
    leaving = np.concatenate([leaving, scale * np.eye(states)])
    if discrete:
        factor = np.exp(rate)
        metric = _bounded_real(*_cayley(factor * center, entering, factor * leaving))
    else:
        metric = _bounded_real(center + rate * np.eye(states), entering, leaving, np.zeros((len(leaving), units)))
    if metric is None:
        return None
    return proved(system, metric, np.full(units, multiplier), discrete=discrete)


def _cayley(
    step: np.ndarray, entering: np.ndarray, leaving: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Turn a discrete system (F, Q, C, 0) into a continuous one with the same P: A = (F + I)⁻¹(F − I), and so on."""
    eye = np.eye(len(step))
    inverse = np.linalg.inv(step + eye)
    root = np.sqrt(2.0)
    turned = leaving @ inverse
    return inverse @ (step - eye), root * inverse @ entering, root * turned, -turned @ entering


def _bounded_real(
    linear: np.ndarray, entering: np.ndarray, leaving: np.ndarray, through: np.ndarray
) -> np.ndarray | None:
    """Solve the Riccati equation of gain one; None where the gain is not below one or rounding hides it."""
    states = len(linear)
    rest = np.eye(entering.shape[1]) - through.T @ through
    if np.linalg.eigvalsh(rest)[0] <= 0:
        return None
    weighted = np.linalg.solve(rest, entering.T)
    moved = linear + entering @ np.linalg.solve(rest, through.T @ leaving)
    cost = leaving.T @ (leaving + through @ np.linalg.solve(rest, through.T @ leaving))
    hamiltonian = np.block([[moved, entering @ weighted], [-cost, -moved.T]])
    values, vectors = np.linalg.eig(hamiltonian)
    stable = vectors[:, np.real(values) < 0]
    if stable.shape[1] != states:
        return None
    try:
        metric = np.real(np.linalg.solve(stable[:states].T, stable[states:].T)).T
    except np.linalg.LinAlgError:
        return None
    return (metric + metric.T) / 2

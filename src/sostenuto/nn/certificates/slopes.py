"""The slopes at which a system is least stable: an upper bound on every rate, and the reason where there is none."""

import numpy as np

from sostenuto.nn.certificates.system import SectorSystem

_SWEEPS = 6
LARGE = 256
"""States beyond which eigenvalues take seconds: limits are then rough, and rates the first that are found."""


def rate_limit(system: SectorSystem, *, discrete: bool) -> float:
    """Bound every rate that any certificate could prove: the least decay of A + B diag(k) C over slopes k tried.

    Units may have any slopes k in [0, s], constant ones among them, and a linear system decays no faster than its
    slowest eigenvalue. From all slopes at 0, at s/2 and at s, those that push that eigenvalue outward go to s and the
    others to 0, until nothing changes. The limit may be negative: then no certificate exists.

    >>> rate_limit(SectorSystem(np.array([[-0.1]]), np.eye(1), np.eye(1), 1.0), discrete=False)
    -0.9
    """
    units = system.input.shape[1]
    return -max(_climb(system, np.full(units, share * system.slope), discrete) for share in (0.0, 0.5, 1.0))


def decay_limit(system: SectorSystem) -> float:
    """Bound from below every rate of decay that a discrete map can be proved to keep under: the fastest one tried.

    The mirror of `rate_limit`: slopes that push the least eigenvalue inward; infinite where the map becomes singular.

    >>> round(decay_limit(SectorSystem(np.array([[0.5]]), np.eye(1), -0.25 * np.eye(1), 1.0)), 3)
    1.386
    """
    units = system.input.shape[1]
    worst = max(-_climb(system, np.full(units, share * system.slope), True, inward=True) for share in (0.0, 0.5, 1.0))
    return np.inf if worst > 30 else worst


def _climb(system: SectorSystem, slopes: np.ndarray, discrete: bool, *, inward: bool = False) -> float:
    sign = -1.0 if inward else 1.0
    worst = -np.inf
    if len(system.linear) > LARGE:
        values = np.linalg.eigvals(system.at(slopes))
        sizes = np.log(np.maximum(np.abs(values), 1e-300)) if discrete else np.real(values)
        return float((sizes.min if inward else sizes.max)())
    for _ in range(_SWEEPS):
        values, right = np.linalg.eig(system.at(slopes))
        sizes = np.log(np.maximum(np.abs(values), 1e-300)) if discrete else np.real(values)
        place = int(np.argmax(sign * sizes))
        worst = max(worst, float(sign * sizes[place]))
        if system.is_linear:
            break
        moved = _outward(system, values, right, place, discrete)
        if inward and moved is not None:
            moved = system.slope - moved
        if moved is None or np.array_equal(moved, slopes):
            break
        slopes = moved
    return sign * worst


def _outward(
    system: SectorSystem, values: np.ndarray, right: np.ndarray, place: int, discrete: bool
) -> np.ndarray | None:
    """Choose for each unit the end of its slopes that moves the eigenvalue outward, by first-order perturbation."""
    try:
        left = np.linalg.inv(right)[place]
    except np.linalg.LinAlgError:
        return None
    change = (left @ system.input) * (system.output @ right[:, place])
    if discrete:
        change = change * np.conj(values[place])
    return np.where(change.real > 0, system.slope, 0.0)

"""Units of measurement: a system split into parts that do not touch, each in units in which its numbers are alike."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from sostenuto.nn.certificates.inequality import Solution
from sostenuto.nn.certificates.system import SectorSystem

_SWEEPS = 20


class Part(NamedTuple):
    """States and units that only act on each other, and the system they are in balanced units."""

    states: np.ndarray
    units: np.ndarray
    system: SectorSystem
    state_scale: Float[np.ndarray, " state"]
    unit_scale: Float[np.ndarray, " unit"]


def parts(system: SectorSystem) -> list[Part]:
    """Split a system into its connected parts and balance each; units that touch nothing are left out.

    >>> eye = np.eye(2)
    >>> [len(part.states) for part in parts(SectorSystem(np.diag([-1.0, -1e4]), eye, eye, 1.0))]
    [1, 1]
    """
    count = len(system.linear)
    links = np.block([[system.linear, system.input], [system.output, np.zeros((system.input.shape[1],) * 2)]]) != 0
    group = _connected(links | links.T)
    parts = []
    for label in dict.fromkeys(group[:count].tolist()):
        inside = np.flatnonzero(group == label)
        states, units = inside[inside < count], inside[inside >= count] - count
        parts.append(_balanced(system, states, units))
    return parts


def joined(system: SectorSystem, split: list[Part], solutions: list[Solution], rate: float) -> Solution:
    """Put the solutions of all parts together, in the units of the whole, each norm at least the Euclidean one."""
    metric = np.zeros_like(system.linear)
    multipliers = np.ones(system.input.shape[1])
    for part, solution in zip(split, solutions, strict=True):
        own = solution.metric / part.state_scale / part.state_scale[:, None]
        least = float(np.linalg.eigvalsh(own)[0])
        size = 2.0 ** -np.round(np.log2(least)) if least > 0 else 1.0
        metric[np.ix_(part.states, part.states)] = size * own
        multipliers[part.units] = size * solution.multipliers / part.unit_scale**2
    return Solution(metric, multipliers, rate)


def _balanced(system: SectorSystem, states: np.ndarray, units: np.ndarray) -> Part:
    """Scale states and units by powers of two, which is exact, until rows and columns are alike (Osborne 1960)."""
    linear = system.linear[np.ix_(states, states)]
    entering, output = system.input[np.ix_(states, units)], system.output[np.ix_(units, states)]
    sizes = np.abs(np.block([[linear, entering], [output, np.zeros((len(units), len(units)))]]))
    np.fill_diagonal(sizes, 0.0)
    scale = np.ones(len(sizes))
    for _ in range(_SWEEPS):
        changed = False
        for i in range(len(sizes)):
            row, column = float(np.linalg.norm(sizes[i])), float(np.linalg.norm(sizes[:, i]))
            power = 2.0 ** np.round(np.log2(row / column) / 2) if row > 0 and column > 0 else 1.0
            if power != 1.0:
                scale[i] *= power
                sizes[i] /= power
                sizes[:, i] *= power
                changed = True
        if not changed:
            break
    t, u = scale[: len(states)], scale[len(states) :]
    turned = SectorSystem(
        linear * t / t[:, None],
        entering * u / t[:, None],
        output * t / u[:, None],
        system.slope,
        system.rounding * float(t.max(initial=1.0) / t.min(initial=1.0)),
    )
    return Part(states, units, turned, t, u)


def _connected(links: np.ndarray) -> np.ndarray:
    """Return each node of a graph the least node it is connected with."""
    label = np.arange(len(links))
    while True:
        least = np.where(links, label, len(links)).min(axis=1, initial=len(links))
        lower = np.minimum(label, least)
        lower = lower[lower]
        if np.array_equal(lower, label):
            return label
        label = lower

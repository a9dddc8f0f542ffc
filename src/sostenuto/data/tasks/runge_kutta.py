"""The classical Runge–Kutta method of order four, for the tasks that follow a differential equation."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float


def integrate(
    field: Callable[[np.ndarray], np.ndarray], initial: Float[np.ndarray, "..."], step: float, num_steps: int
) -> Float[np.ndarray, "..."]:
    """Follow ``dx/dt = field(x)`` from ``initial`` and return ``(num_steps + 1, …)`` states, the first one included.

    ``x ← x + step/6 · (k₁ + 2k₂ + 2k₃ + k₄)``, ``k₁ = f(x)``, ``k₂ = f(x + step/2 · k₁)``,
    ``k₃ = f(x + step/2 · k₂)``, ``k₄ = f(x + step · k₃)``; global error O(step⁴).

    >>> path = integrate(lambda x: -x, np.array([1.0]), step=0.1, num_steps=10)
    >>> path.shape, bool(abs(path[-1, 0] - np.exp(-1)) < 1e-6)
    ((11, 1), True)
    """
    path = np.empty((num_steps + 1, *initial.shape))
    path[0] = state = initial.astype(np.float64)
    for index in range(1, num_steps + 1):
        first = field(state)
        second = field(state + step / 2 * first)
        third = field(state + step / 2 * second)
        fourth = field(state + step * third)
        state = state + step / 6 * (first + 2 * second + 2 * third + fourth)
        path[index] = state
    return path

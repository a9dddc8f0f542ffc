"""Perturbation curves E(β) of wang2024: how far weights may move before the error passes a limit."""

import itertools
from collections.abc import Sequence

import numpy as np


def stable_up_to(betas: Sequence[float], errors: Sequence[float], limit: float) -> float:
    """Return the largest β of a rising list up to which every error is at most ``limit``; 0 where none is.

    >>> stable_up_to([0.1, 0.2, 0.4, 0.8], [0.0, 0.5, 2.0, 0.1], limit=1.0)
    0.2
    """
    good = np.asarray(errors, dtype=float) <= limit
    count = len(good) if good.all() else int(np.argmin(good))
    return float(betas[count - 1]) if count else 0.0


def crossing(betas: Sequence[float], narrow: Sequence[float], wide: Sequence[float]) -> float | None:
    """Return the least β from which the wider model errs more than the narrower one, if there is any.

    >>> crossing([0.1, 0.2, 0.4], [1.0, 1.0, 1.0], [0.1, 2.0, 3.0])
    0.2
    """
    passed = np.asarray(wide, dtype=float) > np.asarray(narrow, dtype=float)
    return float(betas[int(np.argmax(passed))]) if passed.any() else None


def falls(values: Sequence[float]) -> bool:
    """Say whether every value is below the one before it.

    >>> falls([3.0, 2.0, 1.0]), falls([3.0, 3.0])
    (True, False)
    """
    return all(later < earlier for earlier, later in itertools.pairwise(values))

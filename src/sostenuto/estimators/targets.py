"""What `fit` is given beside sequences: a target for every step, and weights."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import check_array

from sostenuto.checks import InputError, require


def read_step_targets(given: Any, *, numbers: bool = False) -> list[np.ndarray]:
    """Read ``y`` with a target for every step: ``(n, time)``, or a list of one array per sequence.

    Where targets are ``numbers``, each step may have several: ``(n, time, targets)``.

    >>> [row.tolist() for row in read_step_targets([["a", "b"], ["a"]])]
    [['a', 'b'], ['a']]
    """
    rows = [np.asarray(row.detach().cpu() if hasattr(row, "detach") else row) for row in given]
    for index, row in enumerate(rows):
        if row.ndim != 1 and not (numbers and row.ndim == 2):
            raise InputError(
                f"sequence {index}: expected a target for every step, as step_targets=True says, "
                f"got an array of shape {row.shape}; pass y of shape (n, time) or a list of arrays."
            )
        if numbers and row.dtype.kind not in "fiub":
            raise InputError(f"sequence {index}: expected numbers as targets, got {row.dtype} data.")
    require(len(rows) > 0, "expected at least one sequence", "got none")
    return rows


def joined_steps(actual: Any, answers: Any, weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Join the steps of all sequences for a score; the weight of a sequence is that of each of its steps."""
    rows = [np.asarray(row) for row in actual]
    lengths = [len(row) for row in rows]
    got = [len(row) for row in answers]
    require(lengths == got, "expected a target for every step of every sequence", "got y of other lengths")
    repeated = None if weights is None else np.repeat(np.asarray(weights), lengths)
    return np.concatenate(rows), np.concatenate(list(answers)), repeated


def read_weights(given: Any, count: int) -> Float[np.ndarray, " n"] | None:
    """Check ``sample_weight``, one number of at least 0 per sequence, and scale it to a mean of 1.

    >>> read_weights([1, 3], 2)
    array([0.5, 1.5])
    """
    if given is None:
        return None
    weights = check_array(given, ensure_2d=False, dtype="float64", input_name="sample_weight")
    require(weights.shape == (count,), f"expected sample_weight of shape {(count,)}", f"got {weights.shape}")
    require(bool(weights.min() >= 0), "expected sample_weight of at least 0", f"got {weights.min()}")
    require(bool(weights.any()), "expected sample_weight to contain at least one non-zero number", "got only zeros")
    return weights / weights.mean()

"""Kernel ridge regression, kernel and ridge term chosen by cross-validation, for many small Gram matrices at once."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int

RANK = 1e-12
"""Eigenvalues below this part of the largest are rounding: without a ridge they are left out, not divided by."""


def ridge_weights(
    matrices: Float64[np.ndarray, "kernel n n"], targets: Float64[np.ndarray, " n"], ridges: Sequence[float]
) -> Float64[np.ndarray, "kernel ridge n"]:
    """Return (K + λI)⁻¹y for every kernel and λ from one eigendecomposition each; for λ = 0 the pseudo-inverse.

    >>> ridge_weights(np.eye(2)[None], np.array([1.0, 3.0]), [0.0, 1.0])[0]
    array([[1. , 3. ],
           [0.5, 1.5]])
    """
    values, vectors = np.linalg.eigh(matrices)
    terms = values[:, None, :] + np.asarray(ridges)[None, :, None]
    kept = terms > RANK * values[:, -1:, None]
    inverse = np.where(kept, 1 / np.where(kept, terms, 1.0), 0.0)
    turned = np.einsum("knj,n->kj", vectors, targets)
    return np.einsum("knj,krj->krn", vectors, inverse * turned[:, None, :])


def choose_ridge(
    matrices: Float64[np.ndarray, "kernel n n"],
    targets: Float64[np.ndarray, " n"],
    ridges: Sequence[float],
    folds: Int[np.ndarray, " n"],
) -> tuple[int, int]:
    """Return the kernel and the ridge term of the least squared error over folds.

    >>> near = np.exp(-np.abs(np.subtract.outer(np.arange(6), np.arange(6))))
    >>> choose_ridge(np.stack([np.eye(6), near]), np.arange(6.0), [0.0, 100.0], np.arange(6) % 3)
    (1, 0)
    """
    errors = np.zeros((len(matrices), len(ridges)))
    for fold in np.unique(folds):
        train, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        weights = ridge_weights(matrices[:, train[:, None], train], targets[train], ridges)
        predicted = np.einsum("khn,krn->krh", matrices[:, held[:, None], train], weights)
        errors += ((predicted - targets[held]) ** 2).sum(axis=2)
    kernel, ridge = np.unravel_index(np.argmin(np.where(np.isfinite(errors), errors, np.inf)), errors.shape)
    return int(kernel), int(ridge)

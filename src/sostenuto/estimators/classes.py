"""Classes as columns of scores, and folds that hold every class."""

from typing import Any

import numpy as np
from jaxtyping import Float64, Int
from scipy.linalg import cho_solve
from scipy.optimize import minimize_scalar

from sostenuto.checks import check_count


def one_against_rest(indices: Int[np.ndarray, " n"]) -> Float64[np.ndarray, "n column"]:
    """Write classes as ±1: one column per class, or one column in all for two.

    >>> one_against_rest(np.array([0, 1, 1])).ravel(), one_against_rest(np.array([2, 0, 1]))[0]
    (array([-1.,  1.,  1.]), array([-1., -1.,  1.]))
    """
    count = int(indices.max()) + 1
    columns = np.where(indices[:, None] == np.arange(count), 1.0, -1.0)
    return columns[:, 1:] if count == 2 else columns


def both_classes(scores: Float64[np.ndarray, "n column"]) -> Float64[np.ndarray, "n class"]:
    """Give two classes a column each, where one column told them apart."""
    return np.concatenate([-scores, scores], axis=1) if scores.shape[1] == 1 else scores


def softmax(scores: Float64[np.ndarray, "n class"]) -> Float64[np.ndarray, "n class"]:
    """Return exp(s) / Σ exp(s), safe for large scores."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def temperature(scores: Float64[np.ndarray, "n class"], indices: Int[np.ndarray, " n"]) -> float:
    """Find τ between 1/100 and 100 such that softmax(scores / τ) gives the true classes the highest likelihood.

    A true class counts (n + 1) / (n + 2) and the others share the rest, as in Platt's scaling: n right answers do not
    prove that there will never be a wrong one.

    >>> temperature(np.array([[1.0, -1.0], [1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]), np.array([0, 0, 1, 1])) > 1
    True
    """
    count, classes = scores.shape
    targets = np.full((count, classes), 1 / (count + 2) / (classes - 1))
    targets[np.arange(count), indices] = (count + 1) / (count + 2)

    def loss(logarithm: float) -> float:
        shifted = scores / np.exp(logarithm)
        shifted = shifted - shifted.max(axis=1, keepdims=True)
        logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return -float((targets * logarithms).sum(axis=1).mean())

    limit = float(np.log(100.0))
    minimum: Any = minimize_scalar(loss, bounds=(-limit, limit), method="bounded")
    return float(np.exp(minimum.x))


def inverse_diagonal(factor: Any) -> Float64[np.ndarray, " n"]:
    """Return the diagonal of S⁻¹ from the Cholesky factor of S."""
    return np.diag(cho_solve(factor, np.eye(len(factor[0])))).copy()


def deal_folds(classes: Int[np.ndarray, " n"], folds: int, seed: int) -> Int[np.ndarray, " n"]:
    """Give every sequence a fold, so that each class is spread as evenly as its size allows.

    The sequences of one class are shuffled and dealt to the folds in turn, the next class goes on where it ended: sizes
    of folds differ by one at most, and a class with fewer members than folds is missing from some folds instead of
    being an error. With fewer sequences than folds, every sequence is a fold of its own.

    >>> deal_folds(np.array([0, 0, 0, 0, 1, 1]), 2, seed=0)
    array([1, 0, 0, 1, 1, 0])
    """
    check_count("folds", folds, least=2)
    folds = min(folds, len(classes))
    generator = np.random.default_rng(seed)
    dealt = np.empty(len(classes), dtype=np.int64)
    order = np.concatenate([generator.permutation(np.flatnonzero(classes == each)) for each in np.unique(classes)])
    dealt[order] = np.arange(len(classes)) % folds
    return dealt

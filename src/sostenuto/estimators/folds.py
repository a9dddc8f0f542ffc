"""Folds for classes of any size: dealt out like cards, class by class."""

import numpy as np
from jaxtyping import Int

from sostenuto.checks import check_count


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

"""Ragged and multi-channel sequences in the one form that scikit-learn's Gaussian processes let through."""

from typing import Any

import numpy as np

from sostenuto.kernels.base import Steps, checked_sequences


class SequenceObject:
    """One sequence that numpy takes for a single object; ``np.asarray`` gives its ``(time, channel)`` values back."""

    __slots__ = ("values",)

    def __init__(self, values: Steps) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values."""
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def __repr__(self) -> str:
        return f"SequenceObject{self.values.shape}"


def as_objects(sequences: Any) -> np.ndarray:
    """Put sequences into a one-dimensional array of objects, one a sequence.

    scikit-learn's Gaussian processes take a 2-D array ``(n, time)`` as it is, but refuse ragged lists, lists of arrays
    and 3-D arrays before a kernel sees them. An array of objects passes; every kernel here reads it like the list.

    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from sostenuto.kernels import RBF
    >>> X = as_objects([[[0.0]], [[0.0], [3.0]], [[4.0], [4.0], [4.0]]])
    >>> X.shape
    (3,)
    >>> GaussianProcessRegressor(RBF(length_scale_bounds="fixed")).fit(X, [0.0, 1.0, 2.0]).predict(X).round(6)
    array([0., 1., 2.])
    """
    checked = checked_sequences(sequences, "sequences")
    objects = np.empty(len(checked), dtype=object)
    for index, sequence in enumerate(checked):
        objects[index] = SequenceObject(sequence)
    return objects

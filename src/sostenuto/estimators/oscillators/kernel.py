"""`OscillatorKernel`: what the features of random oscillators say of two sequences, as one number."""

from typing import Any

import numpy as np
from jaxtyping import Float64

from sostenuto.checks import require
from sostenuto.estimators.oscillators.features import OscillatorFeatures

_MOST = 2000
"""Sequences of the reference that the features are standardized on, at the most."""


class OscillatorKernel:
    """Compare sequences by their oscillators' features: k(x, y) = Σⱼ (φⱼ(x) − mⱼ)(φⱼ(y) − mⱼ) / (F sⱼ²).

    φ are the F features of `OscillatorFeatures`, m and s their mean and deviation over the ``reference``; those that do
    not vary are left out. A ridge regression on standardized features is one with this kernel. It takes sequences of
    any lengths, and goes into `sostenuto.kernels.gram`, tile by tile, on threads or on a cluster.

    Args:
        reference: sequences that scales and thresholds are learned from, such as the training part.
        n_units: oscillators, and the other parameters of `OscillatorFeatures`.

    >>> from sostenuto.kernels import gram
    >>> X = np.random.default_rng(0).normal(size=(10, 50))
    >>> kernel = OscillatorKernel(X, n_units=32)
    >>> gram(kernel, X, progress=False).shape, bool(abs(kernel.diag(X).mean() - 1) < 0.05)
    ((10, 10), True)
    """

    requires_vector_input = False

    def __init__(
        self,
        reference: Any,
        n_units: int = 700,
        *,
        quality: Any = (0.3, 8.0),
        longest_period: float = 1.0,
        random_state: int = 0,
    ) -> None:
        self._parameters = {"n_units": n_units, "quality": quality, "longest_period": longest_period}
        self._parameters["random_state"] = random_state
        sequences = list(reference)
        self._features = OscillatorFeatures(**self._parameters).fit(sequences)
        rows = self._features.transform(sequences[:_MOST])
        self._center, deviation = rows.mean(0), rows.std(0)
        varies = deviation > 1e-6
        require(bool(varies.any()), "expected sequences that differ as the reference", "got equal ones")
        self._scale = np.where(varies, deviation, np.inf) * np.sqrt(varies.sum())

    def __call__(self, X: Any, Y: Any = None) -> Float64[np.ndarray, "row column"]:  # noqa: N803
        """Return K(X, Y), or K(X, X) without Y."""
        left = self._standardized(X)
        return left @ (left if Y is None else self._standardized(Y)).T

    def diag(self, X: Any) -> Float64[np.ndarray, " row"]:  # noqa: N803
        """Return k(x, x) for every sequence of X."""
        return np.square(self._standardized(X)).sum(1)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return what the kernel is made of: its parameters, and what was learned from the reference."""
        thresholds = self._features.bank_thresholds_
        return {**self._parameters, "thresholds": thresholds, "center": self._center, "scale": self._scale}

    def _standardized(self, sequences: Any) -> Float64[np.ndarray, "n feature"]:
        rows = self._features.transform(list(sequences))
        return (rows - self._center).astype(np.float64) / self._scale

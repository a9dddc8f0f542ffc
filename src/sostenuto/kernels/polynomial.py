"""The polynomial kernel on whole sequences: the second kernel to compare others with."""

import numpy as np

from sostenuto.checks import check_count
from sostenuto.kernels.base import Bounds, Diagonal, Matrix, SequenceKernel, Steps, zero_padded


class Polynomial(SequenceKernel):
    """Compare sequences by a power of their inner product: k(x, y) = (r + ⟨x, y⟩)^d (alemohammad2021, appendix A.1).

    ⟨·, ·⟩ runs over all steps and channels; sequences of unequal length are compared as if zeros followed the shorter
    one. Scale sequences to ‖x‖ = 1, as the paper does, or values grow with the length.

    Args:
        degree: d ≥ 1.
        offset: r ≥ 0.
        offset_bounds: lowest and highest r in a search, or ``"fixed"``. An r of 0 has no logarithm and is fixed too.

    >>> Polynomial(degree=2, offset=1.0)([[1.0, 2.0], [3.0]])
    array([[ 36.,  16.],
           [ 16., 100.]])
    """

    parameters = ("offset",)
    may_be_zero = ("offset",)

    def __init__(self, degree: int = 2, offset: float = 1.0, offset_bounds: Bounds = (1e-5, 1e5)) -> None:
        self.degree, self.offset, self.offset_bounds = degree, offset, offset_bounds
        self.check_parameters()

    def check_parameters(self) -> None:
        """Refuse a degree that is not a whole number of at least 1, and an offset below 0."""
        check_count("degree", self.degree)
        super().check_parameters()

    def gram(self, left: list[Steps], right: list[Steps]) -> Matrix:
        """Return (r + ⟨x, y⟩)^d."""
        return (self.offset + self._inner(left, right)) ** self.degree

    def gradients(self, sequences: list[Steps], names: list[str]) -> tuple[Matrix, dict[str, np.ndarray]]:
        """Return K and ∂K/∂log r = r d (r + ⟨x, y⟩)^(d−1)."""
        base = self.offset + self._inner(sequences, sequences)
        slope = self.offset * self.degree * base ** (self.degree - 1)
        return base**self.degree, dict.fromkeys(names, slope)

    def diagonal(self, sequences: list[Steps]) -> Diagonal:
        """Return (r + ‖x‖²)^d."""
        own = np.array([np.einsum("i,i->", sequence.ravel(), sequence.ravel()) for sequence in sequences])
        return (self.offset + own) ** self.degree

    def _inner(self, left: list[Steps], right: list[Steps]) -> Matrix:
        steps = max(len(sequence) for sequence in [*left, *right])
        # A library product may sum in another order when its factors change places; this one does not.
        return np.einsum("ik,jk->ij", zero_padded(left, steps), zero_padded(right, steps))

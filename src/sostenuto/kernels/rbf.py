"""The radial basis function on whole sequences: the kernel to compare others with."""

import numpy as np
import torch
from torch import Tensor

from sostenuto.kernels.base import Bounds, Diagonal, Matrix, SequenceKernel, Steps, zero_padded


class RBF(SequenceKernel):
    """Compare sequences by their distance, step against step: k(x, y) = exp(−‖x − y‖² / 2ℓ²).

    ‖·‖ runs over all steps and channels. Sequences of unequal length are compared as if zeros followed the shorter one,
    which is what alemohammad2021 (section 4) does for kernels that have no notion of length. So k depends on the two
    sequences alone, never on what else is in the batch; and to this kernel a sequence with zeros appended is the same
    sequence.

    Args:
        length_scale: ℓ > 0, in the unit of ‖x − y‖; for standardized channels √(time · channel) is of the right size.
        length_scale_bounds: lowest and highest ℓ in a search, or ``"fixed"``.

    >>> kernel = RBF(length_scale=2.0)
    >>> kernel([[1.0, 2.0], [1.0]]).round(6)  # two sequences of one channel, of 2 steps and of 1
    array([[1.      , 0.606531],
           [0.606531, 1.      ]])
    >>> (kernel * kernel + 1.0).theta.round(3)
    array([0.693, 0.693, 0.   ])
    """

    parameters = ("length_scale",)

    def __init__(self, length_scale: float = 1.0, length_scale_bounds: Bounds = (1e-5, 1e5)) -> None:
        self.length_scale = length_scale
        self.length_scale_bounds = length_scale_bounds
        self.check_parameters()

    def gram(self, left: list[Steps], right: list[Steps]) -> Matrix:
        """Return exp(−‖x − y‖² / 2ℓ²)."""
        return torch.exp(-0.5 * self._squared(left, right)).numpy()

    def gradients(self, sequences: list[Steps], names: list[str]) -> tuple[Matrix, dict[str, np.ndarray]]:
        """Return K and ∂K/∂log ℓ = K ‖x − y‖² / ℓ²."""
        squared = self._squared(sequences, sequences)
        matrix = torch.exp(-0.5 * squared)
        return matrix.numpy(), {name: (matrix * squared).numpy() for name in names}

    def diagonal(self, sequences: list[Steps]) -> Diagonal:
        """Return ones."""
        return np.ones(len(sequences))

    def is_stationary(self) -> bool:
        """Say yes: k depends on x − y alone."""
        return True

    def _squared(self, left: list[Steps], right: list[Steps]) -> Tensor:
        """Return ‖x − y‖² / ℓ² from differences, not from inner products, which cancel for close sequences."""
        steps = max(len(sequence) for sequence in [*left, *right])
        rows, columns = (torch.from_numpy(zero_padded(side, steps)) for side in (left, right))
        distance = torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist") / self.length_scale
        # exp(−100²/2) is 0 in float64: the limit changes no entry, and keeps 0 · ∞ out of the gradient.
        return distance.clamp(max=100.0) ** 2

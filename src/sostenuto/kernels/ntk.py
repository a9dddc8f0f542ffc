"""The neural tangent kernel of a multi-layer perceptron on whole sequences."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from sostenuto.checks import check_choice, check_count
from sostenuto.kernels.base import Bounds, Diagonal, Matrix, SequenceKernel, Steps
from sostenuto.kernels.recurrent_ntk import RecurrentNTK


class NTK(SequenceKernel):
    """Compare sequences, all steps side by side, as an infinitely wide perceptron of ``num_layers`` hidden layers does.

    Σ¹ = σ_w²⟨x, y⟩/m + σ_b², Σ^ℓ = σ_w² V_φ[Σ^{ℓ−1}] + σ_b² for ℓ ≥ 2, and Θ = Σ_ℓ Σ^ℓ ∏_{ℓ′ ≥ ℓ} Σ̇^{ℓ′} + 𝒦 with
    Σ̇^ℓ = σ_w² V_φ′[Σ^ℓ], but σ_v² for σ_w² in the last (alemohammad2021, appendix A.1, as corrected in docs/errata.md,
    alemohammad2021.5). It is the recurrent NTK of an RNN that reads x at the first of ``num_layers`` steps and nothing
    after.

    Sequences of unequal length are compared as if zeros followed the shorter one; each is divided by √m of its own
    number m of values, so that k depends on the two sequences alone.

    Args:
        num_layers: L, the hidden layers.
        activation: ``"relu"``, ``"erf"`` or a function on tensors, as in `RecurrentNTK`.
        sigma_w: weights of the hidden layers.
        sigma_b: biases.
        sigma_v: the read-out.
        kind: ``"ntk"`` or ``"nngp"``.
        normalize: divide by √(k(x,x) k(y,y)).
        sigma_w_bounds, sigma_b_bounds, sigma_v_bounds: lowest and highest values in a search, or ``"fixed"``.

    >>> NTK(num_layers=3)([[1.0, 2.0], [0.5, -1.0]]).round(4)
    array([[10.    ,  0.8831],
           [ 0.8831,  2.5   ]])
    """

    parameters = ("sigma_w", "sigma_b", "sigma_v")
    may_be_zero = ("sigma_b",)

    def __init__(
        self,
        num_layers: int = 1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        sigma_w: float = 2**0.5,
        sigma_b: float = 0.0,
        sigma_v: float = 1.0,
        *,
        kind: str = "ntk",
        normalize: bool = False,
        sigma_w_bounds: Bounds = (0.1, 10.0),
        sigma_b_bounds: Bounds = (1e-3, 1e1),
        sigma_v_bounds: Bounds = (1e-2, 1e2),
    ) -> None:
        self.num_layers, self.activation, self.kind, self.normalize = num_layers, activation, kind, normalize
        self.sigma_w, self.sigma_b, self.sigma_v = sigma_w, sigma_b, sigma_v
        self.sigma_w_bounds, self.sigma_b_bounds, self.sigma_v_bounds = sigma_w_bounds, sigma_b_bounds, sigma_v_bounds
        self.check_parameters()

    def check_parameters(self) -> None:
        """Refuse options out of range."""
        check_count("num_layers", self.num_layers)
        if not callable(self.activation):
            check_choice("activation", self.activation, ("relu", "erf"))
        check_choice("kind", self.kind, ("ntk", "nngp"))
        super().check_parameters()

    def gram(self, left: list[Steps], right: list[Steps]) -> Matrix:
        """Return Θ or 𝒦 of every pair."""
        rows, columns = self._unrolled(left, right)
        return self._recurrent().gram(rows, rows if right is left else columns)

    def gradients(self, sequences: list[Steps], names: list[str]) -> tuple[Matrix, dict[str, np.ndarray]]:
        """Return K and its derivatives by log σ; σ_w is the RNN's recurrent and input σ at once."""
        rows, _ = self._unrolled(sequences, sequences)
        wanted = [*names, "sigma_u"] if "sigma_w" in names else names
        matrix, gradients = self._recurrent().gradients(rows, wanted)
        if "sigma_w" in names:
            gradients["sigma_w"] = gradients["sigma_w"] + gradients.pop("sigma_u")
        return matrix, gradients

    def diagonal(self, sequences: list[Steps]) -> Diagonal:
        """Return k(x, x)."""
        return self._recurrent().diagonal(self._unrolled(sequences, sequences)[0])

    def _recurrent(self) -> RecurrentNTK:
        return RecurrentNTK(
            1, self.activation, self.sigma_w, self.sigma_w, self.sigma_b, 0.0, self.sigma_v,
            kind=self.kind, normalize=self.normalize,
        )  # fmt: skip

    def _unrolled(self, left: list[Steps], right: list[Steps]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Lay each sequence out as the first of ``num_layers`` steps, zeros after, in the width of the longest."""
        width = max(sequence.size for sequence in [*left, *right])

        def unroll(sequence: np.ndarray) -> np.ndarray:
            rows = np.zeros((self.num_layers, width))
            rows[0, : sequence.size] = sequence.ravel() * np.sqrt(width / sequence.size)
            return rows

        return [unroll(sequence) for sequence in left], [unroll(sequence) for sequence in right]

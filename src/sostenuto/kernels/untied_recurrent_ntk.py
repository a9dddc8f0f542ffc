"""The recurrent NTK of weights that are drawn anew for every step."""

import math
from typing import Any

import torch
from torch import Tensor

from sostenuto.checks import require
from sostenuto.kernels.recurrent_ntk import RecurrentNTK
from sostenuto.ops.recurrent_ntk import Scaled, Scales, dual_for
from sostenuto.ops.recurrent_ntk.covariances import Covariances
from sostenuto.ops.recurrent_ntk.profile import profile


class UntiedRecurrentNTK(RecurrentNTK):
    """Compare sequences as an infinitely wide RNN does whose W_t, U_t and b_t belong to one step t each.

    At equal lengths it is `RecurrentNTK` (alemohammad2021, Theorem 3). At unequal lengths T ≠ T′ the last states come
    from different weights: their pre-activations are uncorrelated, no gradient but the read-out's is shared, and

        Θ(x, y) = 𝒦(x, y) = σ_v² E[φ(g_T)] E[φ(g′_T′)]

    (docs/errata.md, alemohammad2021.6), which is σ_v²√(q q′)/2π for the rectifier and 0 for an odd φ. Steps are counted
    from the start, as in `WideRNN`. Options are those of `RecurrentNTK`, with ``pooling="last"``.

    >>> x, y = [1.0, -1.0, 1.0], [0.6, 0.8]
    >>> UntiedRecurrentNTK(sigma_w=1.4)([x, y]).round(4)
    array([[4.3908, 0.2719],
           [0.2719, 1.1692]])
    """

    def check_parameters(self) -> None:
        """Refuse what `RecurrentNTK` does, and a mean over steps."""
        super().check_parameters()
        require(self.pooling == "last", "expected pooling='last' of untied weights", f"got {self.pooling!r}")

    def covariances(self, x: Any, y: Any) -> Covariances:
        """Return Σ and Π of one pair: both vanish between different steps, and Π at unequal lengths."""
        tied = super().covariances(x, y)
        same = torch.eye(*tied.sigma.shape[1:], dtype=torch.float64)
        if tied.sigma.shape[1] == tied.sigma.shape[2]:
            return Covariances(tied.sigma * same, tied.pi * same, tied.nngp)
        one, other = self._pair(x, y)
        with torch.no_grad():
            scaled = self._scaled([one], [other], self._scales())
            value = (scaled.values * torch.exp(scaled.rows[:, None] + scaled.columns[None])).squeeze()
        return Covariances(tied.sigma * same, torch.zeros_like(tied.pi), value)

    def _carries_derivatives(self) -> bool:
        return False

    def _scaled(self, left: list[Tensor], right: list[Tensor] | None, scales: Scales) -> Scaled:
        tied = super()._scaled(left, right, scales)
        others = left if right is None else right
        lengths, theirs = (torch.tensor([len(each) for each in side]) for side in (left, others))
        means = self._means(left, others, scales)
        apart = means[0][:, None] * means[1][None, :]
        return Scaled(torch.where(lengths[:, None] == theirs[None, :], tied.values, apart), tied.rows, tied.columns)

    def _means(self, left: list[Tensor], right: list[Tensor], scales: Scales) -> list[Tensor]:
        """Return E[φ(g)] of each last state in its unit."""
        if isinstance(self.activation, str):
            mean = 1 / math.sqrt(2 * math.pi) if self.activation == "relu" else 0.0
            return [torch.full((len(side),), mean, dtype=torch.float64) for side in (left, right)]
        dual = dual_for(self.activation, [*left, *right], scales)

        def mean_of(sequence: Tensor) -> Tensor:
            coefficients = profile(sequence[None], scales, dual).layers[-1].moments.coefficients
            assert coefficients is not None
            return coefficients[0, -1, :, 0].sum()

        return [torch.stack([mean_of(sequence) for sequence in side]) for side in (left, right)]

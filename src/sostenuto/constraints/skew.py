"""Skew matrices, moved to the left: A = M − Mᵀ − γI."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_positive
from sostenuto.constraints.parts import require_part, skew_part, symmetric_part


class Skew(nn.Module):
    """Make a free matrix skew: A = M − Mᵀ − γI, so A + Aᵀ = −2γI and every eigenvalue has the real part −γ.

    Reference: Chang et al. 2019 (AntisymmetricRNN), eq. (10); `SymmetricSkew` with β = 1.

    >>> skew = Skew(0.1)
    >>> (skew(torch.ones(2, 2)) + 0.1 * torch.eye(2)).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """

    def __init__(self, gamma: float = 0.0) -> None:
        super().__init__()
        check_positive("gamma", gamma, zero=True)
        self.gamma = float(gamma)

    def forward(self, free: Float[Tensor, "*n h h"]) -> Float[Tensor, "*n h h"]:
        """Map a free matrix to A."""
        identity = torch.eye(free.shape[-1], dtype=free.dtype, device=free.device)
        return free - free.mT - self.gamma * identity

    def right_inverse(self, weight: Float[Tensor, "*n h h"]) -> Float[Tensor, "*n h h"]:
        """Find the skew M that maps to ``weight``, whose symmetric part must be −γI."""
        identity = torch.eye(weight.shape[-1], dtype=weight.dtype, device=weight.device)
        moved = weight + self.gamma * identity
        require_part(symmetric_part(moved), weight, f"a skew matrix less {self.gamma}·I")
        return skew_part(moved) / 2

    def extra_repr(self) -> str:
        """Show γ."""
        return f"gamma={self.gamma}"

"""Matrices with a chosen share of symmetric and skew part: A = (1−β)(M+Mᵀ) + β(M−Mᵀ) − γI."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_fraction, check_positive, require
from sostenuto.constraints.parts import require_part, skew_part, symmetric_part


class SymmetricSkew(nn.Module):
    """Weigh the symmetric and the skew part of a free M: A = (1−β)(M + Mᵀ) + β(M − Mᵀ) − γI.

    The real parts of A's eigenvalues lie between (1−β)·λ_min(M + Mᵀ) − γ and (1−β)·λ_max(M + Mᵀ) − γ; β = 1 gives
    A + Aᵀ = −2γI, β = ½ gives M − γI. Reference: erichson2021, eqs. (9) and (10), as corrected in ``docs/errata.md``
    (erichson2021.2, erichson2021.3).

    Args:
        beta: β, the share of the skew part, in [0, 1]; the paper takes [½, 1].
        gamma: γ ≥ 0, by which the spectrum is moved to the left.

    >>> constraint = SymmetricSkew(0.75, 0.001)
    >>> weight = torch.randn(4, 4)
    >>> torch.allclose(constraint(constraint.right_inverse(weight)), weight, atol=1e-6)
    True
    """

    def __init__(self, beta: float, gamma: float = 0.0) -> None:
        super().__init__()
        check_fraction("beta", beta, one=True)
        check_positive("gamma", gamma, zero=True)
        self.beta, self.gamma = float(beta), float(gamma)

    def forward(self, free: Float[Tensor, "*n h h"]) -> Float[Tensor, "*n h h"]:
        """Map a free matrix to A."""
        # M + (1 − 2β)Mᵀ is the same sum with one product instead of two.
        identity = torch.eye(free.shape[-1], dtype=free.dtype, device=free.device)
        return free + (1 - 2 * self.beta) * free.mT - self.gamma * identity

    def right_inverse(self, weight: Float[Tensor, "*n h h"]) -> Float[Tensor, "*n h h"]:
        """Find the M that maps to ``weight``; β = 1 reaches no symmetric part but −γI, β = 0 no skew part."""
        identity = torch.eye(weight.shape[-1], dtype=weight.dtype, device=weight.device)
        moved = weight + self.gamma * identity
        symmetric, skew = symmetric_part(moved), skew_part(moved)
        if self.beta == 1:
            require_part(symmetric, weight, f"a skew matrix less {self.gamma}·I, as beta=1 gives")
            return skew / 2
        if self.beta == 0:
            require_part(skew, weight, "a symmetric matrix, as beta=0 gives")
            return symmetric / 2
        return (symmetric / (1 - self.beta) + skew / self.beta) / 2

    @torch.no_grad()
    def eigenvalue_bounds(self, free: Float[Tensor, "h h"]) -> tuple[float, float]:
        """Bound the real parts of A's eigenvalues from M alone (erichson2021, eq. (10), corrected).

        >>> SymmetricSkew(0.75, 1.0).eigenvalue_bounds(torch.eye(2))
        (-0.5, -0.5)
        """
        require(free.ndim == 2, "expected one matrix", f"got {free.ndim} axes")
        values = torch.linalg.eigvalsh(free + free.mT)
        return tuple((1 - self.beta) * float(value) - self.gamma for value in (values[0], values[-1]))  # pyright: ignore[reportReturnType]

    def extra_repr(self) -> str:
        """Show β and γ."""
        return f"beta={self.beta}, gamma={self.gamma}"

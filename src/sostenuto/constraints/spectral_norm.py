"""Matrices whose largest singular value stays at or below a bound."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_positive, require


class SpectralNorm(nn.Module):
    """Hold ‖W‖₂ ≤ c: W = M / max(1, ‖M‖₂/c), so a matrix within the bound stays as it is.

    The norm is the exact one, from the singular values, not an estimate by power iteration, which may lie below it; and
    where M is scaled it is scaled by a few roundings more, so that the bound holds in floats.

    >>> constraint = SpectralNorm(0.5)
    >>> bool(torch.linalg.matrix_norm(constraint(10 * torch.randn(4, 4)), 2) <= 0.5)
    True
    """

    def __init__(self, bound: float = 1.0) -> None:
        super().__init__()
        check_positive("bound", bound)
        self.bound = float(bound)

    def forward(self, free: Float[Tensor, "*n rows columns"]) -> Float[Tensor, "*n rows columns"]:
        """Scale a free matrix down where its norm exceeds the bound."""
        slack = 1 + 8 * max(free.shape[-2:]) * torch.finfo(free.dtype).eps
        norm = torch.linalg.matrix_norm(free, 2)[..., None, None]
        return free / (norm * (slack / self.bound)).clamp(min=1)

    def right_inverse(self, weight: Float[Tensor, "*n rows columns"]) -> Float[Tensor, "*n rows columns"]:
        """Return ``weight`` itself, which must be within the bound."""
        if weight.is_meta:
            return weight  # a shape without values
        norm = float(torch.linalg.matrix_norm(weight, 2).max())
        allowed = self.bound * (1 + 8 * max(weight.shape[-2:]) * torch.finfo(weight.dtype).eps)
        require(norm <= allowed, f"expected a spectral norm of at most {self.bound}", f"got {norm}")
        return weight

    def extra_repr(self) -> str:
        """Show the bound."""
        return f"bound={self.bound}"

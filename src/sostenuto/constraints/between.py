"""Weights kept between two numbers: w = low + (high − low)·σ̂(v)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import require


class Between(nn.Module):
    """Keep every entry of a weight between ``low`` and ``high``: w = low + (high − low)·σ̂(v) for a free v.

    From −b to b this is b·tanh(v/2).

    >>> bounded = Between(-1.0, 3.0)
    >>> weight = torch.tensor([-0.5, 0.0, 2.0])
    >>> torch.allclose(bounded(bounded.right_inverse(weight)), weight)
    True
    """

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        require(low < high, "expected low below high", f"got {low} and {high}")
        self.low, self.high = float(low), float(high)

    def forward(self, free: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Map a free value to a constrained one."""
        low, high = self.bounds(free.dtype)
        return low + (high - low) * torch.sigmoid(free)

    def bounds(self, dtype: torch.dtype) -> tuple[float, float]:  # noqa: ARG002
        """Return the bounds for a weight of this dtype; a subclass may leave room for rounding."""
        return self.low, self.high

    @torch.no_grad()
    def right_inverse(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Find a free value that maps to ``weight``."""
        low, high = self.bounds(weight.dtype)
        share = (weight - low) / (high - low)
        if not weight.is_meta:  # a shape without values
            inside = bool(((share > 0) & (share < 1)).all())
            got = f"got {float(weight.min()):.6g} to {float(weight.max()):.6g}"
            require(inside, f"expected weights between {low:.6g} and {high:.6g}", got)
        return torch.logit(share)

    def extra_repr(self) -> str:
        """Show the bounds."""
        return f"low={self.low}, high={self.high}"

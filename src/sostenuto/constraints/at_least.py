"""Weights bounded from below: w = floor + softplus(v)."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import require
from sostenuto.constraints.parts import inverse_softplus


class AtLeast(nn.Module):
    """Keep every entry of a weight above ``floor``: w = floor + softplus(v) for a free v.

    >>> import torch
    >>> bounded = AtLeast(-1.0)
    >>> weight = torch.tensor([-0.5, 0.0, 2.0])
    >>> torch.allclose(bounded(bounded.right_inverse(weight)), weight)
    True
    """

    def __init__(self, floor: float) -> None:
        super().__init__()
        self.floor = float(floor)

    def forward(self, free: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Map a free value to a constrained one."""
        return self.floor + F.softplus(free)

    def right_inverse(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Find a free value that maps to ``weight``."""
        above = weight - self.floor
        if not weight.is_meta:  # a shape without values
            require(bool((above > 0).all()), f"expected weights above {self.floor}", f"got {float(weight.min())}")
        return inverse_softplus(above)

    def extra_repr(self) -> str:
        """Show the floor."""
        return f"floor={self.floor}"

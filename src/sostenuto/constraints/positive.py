"""Weights above zero: w = softplus(v), or e^v."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_choice, require
from sostenuto.constraints.parts import inverse_softplus

MAPS = ("softplus", "exp")


class Positive(nn.Module):
    """Keep every entry of a weight positive, in floats too: w = softplus(v) or e^v for a free v.

    A float reaches 0 where the map only tends to it, so the smallest normal number is the least w; e^v is held at the
    largest. ``exp`` moves a weight in proportion to itself, ``softplus`` becomes additive above 1.

    >>> positive = Positive("exp")
    >>> positive(torch.tensor([0.0])).tolist(), bool(positive(torch.tensor([-1e4])) > 0)
    ([1.0], True)
    """

    def __init__(self, map: str = "softplus") -> None:
        super().__init__()
        check_choice("map", map, MAPS)
        self.map = map

    def forward(self, free: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Map a free value to a positive one."""
        limits = torch.finfo(free.dtype)
        if self.map == "softplus":
            return F.softplus(free) + limits.tiny
        return torch.exp(free.clamp(max=math.log(limits.max) - 1)) + limits.tiny

    def right_inverse(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Find a free value that maps to ``weight`` > 0."""
        if not weight.is_meta:  # a shape without values
            require(bool((weight > 0).all()), "expected weights above 0", f"got {float(weight.min())}")
        return torch.log(weight) if self.map == "exp" else inverse_softplus(weight)

    def extra_repr(self) -> str:
        """Show the map."""
        return f"map={self.map}"

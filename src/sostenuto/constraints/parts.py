"""What several constraints share: parts of a matrix, refused where they should be zero, and the inverse softplus."""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import require


def symmetric_part(matrix: Float[Tensor, "*n h h"]) -> Float[Tensor, "*n h h"]:
    """Return (M + Mᵀ)/2.

    >>> symmetric_part(torch.tensor([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return (matrix + matrix.mT) / 2


def skew_part(matrix: Float[Tensor, "*n h h"]) -> Float[Tensor, "*n h h"]:
    """Return (M − Mᵀ)/2.

    >>> skew_part(torch.tensor([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[0.0, 1.0], [-1.0, 0.0]]
    """
    return (matrix - matrix.mT) / 2


def inverse_softplus(value: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return x with log(1 + eˣ) = value > 0, to full accuracy for small and large values.

    >>> inverse_softplus(torch.tensor([2.0])).exp().log1p().tolist()
    [2.0]
    """
    return value + torch.log(-torch.expm1(-value))


def require_part(part: Float[Tensor, "..."], weight: Float[Tensor, "..."], expected: str) -> None:
    """Refuse a weight whose ``part``, which should be zero, is more than rounding.

    A weight on the device ``meta`` has a shape and no values, so there is nothing to refuse.
    """
    if weight.is_meta:
        return
    off, scale = float(part.abs().max()), float(weight.abs().max())
    allowed = 100 * torch.finfo(weight.dtype).eps * max(1.0, scale)
    require(off <= allowed, f"expected {expected}", f"got one that differs by {off:.3g}")

"""What the signature's levels mean, in plain torch: Chen's identity segment by segment, gradients by autograd."""

import torch
from jaxtyping import Float
from torch import Tensor


def signature_levels_reference(
    increments: Float[Tensor, "B T d"], level: int, *, prefixes: bool = False
) -> Float[Tensor, "B *T_size"]:
    """Multiply exp(a_1) ⊗ … ⊗ exp(a_T) level by level; every prefix of the product with ``prefixes``."""
    B, T, d = increments.shape
    levels = [increments.new_zeros(B, d**k) for k in range(1, level + 1)]
    kept = []
    for t in range(T):
        levels = join_segment(levels, increments[:, t])
        if prefixes:
            kept.append(torch.cat(levels, dim=-1))
    return torch.stack(kept, dim=1) if prefixes else torch.cat(levels, dim=-1)


def join_segment(levels: list[Float[Tensor, "B _"]], a: Float[Tensor, "B d"]) -> list[Float[Tensor, "B _"]]:
    """Return the levels of X ⊗ exp(a), by Horner: ((a/k + X¹) ⊗ a/(k−1) + X²) ⊗ … ⊗ a + X^k."""
    joined = []
    for k in range(1, len(levels) + 1):
        inner = a / k
        for lower in range(1, k):
            inner = ((inner + levels[lower - 1])[:, :, None] * (a / (k - lower))[:, None, :]).flatten(1)
        joined.append(levels[k - 1] + inner)
    return joined

"""The signature kernel through explicit signatures: the shorter way where d + … + d^N is small."""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.signature import signature_levels


def feature_kernel(
    left: Float[Tensor, "n S d"], right: Float[Tensor, "m R d"], weights: list[float]
) -> Float[Tensor, "n m"]:
    """Return Σ_k w_k ⟨X^k, Y^k⟩ as inner products of the signatures that the increments give.

    >>> line = torch.tensor([[[2.0]]], dtype=torch.float64)
    >>> feature_kernel(line, line, [1.0, 1.0, 4.0]).tolist()  # 1 + 4 + 4 · (4/2)²
    [[21.0]]
    """
    rows = weighted_features(left, weights)
    return _products(rows, rows if right is left else weighted_features(right, weights)) + weights[0]


def feature_diagonal(increments: Float[Tensor, "n S d"], weights: list[float]) -> Float[Tensor, " n"]:
    """Return Σ_k w_k ⟨X^k, X^k⟩ of every path: a sum of squares, which loses no digits.

    >>> feature_diagonal(torch.tensor([[[2.0]]], dtype=torch.float64), [1.0, 1.0, 4.0]).tolist()
    [21.0]
    """
    return weighted_features(increments, weights).square().sum(-1) + weights[0]


def feature_slopes(
    increments: Float[Tensor, "n S d"], weights: list[float], scaled: int
) -> tuple[Float[Tensor, "n n"], Float[Tensor, "n n"], Float[Tensor, "n n"]]:
    """Return K, its derivative by the logarithm of a factor on the first ``scaled`` channels, and by one on all.

    An iterated integral over a word with c such letters goes with the c-th power of the factor.
    """
    rows = weighted_features(increments, weights)
    letters = letter_counts(increments.shape[2], len(weights) - 1, scaled)
    every = letter_counts(increments.shape[2], len(weights) - 1, increments.shape[2])
    return (
        _products(rows, rows) + weights[0],
        _products(2 * letters * rows, rows),
        _products(2 * every * rows, rows),
    )


def weighted_features(increments: Float[Tensor, "n S d"], weights: list[float]) -> Float[Tensor, "n size"]:
    """Return levels 1 to N of the signatures, level k times √w_k, side by side."""
    channels = increments.shape[2]
    flat = signature_levels(increments, len(weights) - 1)
    roots = [torch.full((channels**k,), weight**0.5) for k, weight in enumerate(weights) if k > 0]
    return flat * torch.cat(roots).to(flat)


def letter_counts(channels: int, level: int, counted: int) -> Float[Tensor, " size"]:
    """Count, for every word of up to ``level`` letters, those that are among the first ``counted``.

    >>> letter_counts(2, 2, 1).tolist()
    [1.0, 0.0, 2.0, 1.0, 1.0, 0.0]
    """
    letters = (torch.arange(channels) < counted).double()
    counts = [letters]
    for _ in range(level - 1):
        counts.append((counts[-1][:, None] + letters).flatten())
    return torch.cat(counts)


def _products(left: Tensor, right: Tensor) -> Tensor:
    from sostenuto.ops.signature.cpu import kernel as cpu

    return cpu.feature_products(left, right)

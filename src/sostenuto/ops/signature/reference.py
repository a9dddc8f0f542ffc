"""What signatures and their inner products mean, in plain torch; gradients by autograd."""

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


Grid = Float[Tensor, "n m S R"]


def signature_kernel_reference(
    left: Float[Tensor, "n S d"], right: Float[Tensor, "m R d"], level: int
) -> Float[Tensor, "n m levels"]:
    """Return ⟨X^k, Y^k⟩ for k = 0 … N and every pair, from the increments of both paths.

    ``ends[p, q]`` is R_k(i, j; p, q): the sum over pairs of words of k segments that end in segment i of X, the p-th
    time in a row, and in segment j of Y, the q-th time in a row. The README derives the recursion.
    """
    inner = torch.einsum("isd,jrd->ijsr", left, right)
    results = [torch.ones_like(inner[..., 0, 0])]
    ends = {(1, 1): inner}
    for k in range(1, level + 1):
        if k > 1:
            ends = _longer(ends, inner, k)
        results.append(torch.stack([end.sum((-1, -2)) for end in ends.values()]).sum(0))
    return torch.stack(results, dim=-1)


def _longer(ends: dict[tuple[int, int], Grid], inner: Grid, k: int) -> dict[tuple[int, int], Grid]:
    """Append one more segment to the words of both paths: new on both sides, on one, or repeated on both."""
    rows = [sum(ends[p, q] for q in range(1, k)) for p in range(1, k)]
    columns = [sum(ends[p, q] for p in range(1, k)) for q in range(1, k)]
    longer = {(1, 1): inner * _before(_before(sum(rows), -1), -2)}
    for run in range(2, k + 1):
        longer[run, 1] = inner / run * _before(rows[run - 2], -1)
        longer[1, run] = inner / run * _before(columns[run - 2], -2)
    for (p, q), end in ends.items():
        longer[p + 1, q + 1] = inner / ((p + 1) * (q + 1)) * end
    return longer


def _before(values: Tensor | int, axis: int) -> Tensor:
    """Sum over all earlier segments along ``axis``, without the present one."""
    assert isinstance(values, Tensor)
    earlier = values.cumsum(axis).narrow(axis, 0, values.shape[axis] - 1)
    return torch.cat([torch.zeros_like(values.narrow(axis, 0, 1)), earlier], dim=axis)

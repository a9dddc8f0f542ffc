"""Whether a model answers each sequence by itself: not by the others of its batch, nor by what it was asked before."""

import torch
from torch import Tensor, nn

from sostenuto.audits.batches import EvalBatch
from sostenuto.audits.model import audited

FEW = 4
SAME = 1e-4
"""Answers that differ by less than this share of what they vary by are the same."""
OF_BATCH = "its answer to a sequence depends on the others of the batch, as with a normalization left in training mode"
OF_ROW = "its answer to a sequence depends on its place in the batch"
MORE = 10
"""By so many times must a change of order outdo a change of random numbers."""
OF_PAST = (
    "its answers to the same sequences differ from call to call though torch's random numbers are the same, as where a "
    "state is kept between calls"
)


def misconduct(model: nn.Module, data: EvalBatch, seed: int) -> str:
    """Say why no number of this model means anything by itself; empty where each sequence is answered alone.

    A few sequences are asked about in two batches of the same shape, in the reverse order, and again after other ones;
    torch's random numbers are the same in each call. A model that draws numbers answers differently in another order,
    but not by much more than with other numbers.

    >>> from sostenuto.audits.batches import eval_batch
    >>> class Last(nn.Module):
    ...     def forward(self, x):
    ...         return torch.cat([-x[:, -1], x[:, -1]], 1)
    >>> X = torch.randn(20, 5, 1, generator=torch.Generator().manual_seed(0))
    >>> misconduct(Last(), eval_batch(Last(), X, torch.arange(20) % 2), 0)
    ''
    """
    if len(data.values) < 3 * FEW:
        return ""
    order = torch.randperm(len(data.values), generator=torch.Generator().manual_seed(seed))
    own, second, third = order[: 3 * FEW].split(FEW)
    first = _asked(model, data, torch.cat([own, second]), seed)
    beside = _asked(model, data, torch.cat([own, third]), seed)
    again = _asked(model, data, torch.cat([own, second]), seed)
    spread = float((first - first.mean(0)).abs().max()) + 1e-30
    if _differ(first, again, spread):
        return OF_PAST
    if _differ(first[:FEW], beside[:FEW], spread):
        return OF_BATCH
    turned = _asked(model, data, torch.cat([own, second]).flip(0), seed).flip(0)
    drawn = float((_asked(model, data, torch.cat([own, second]), seed + 1) - first).abs().max())
    return OF_ROW if _differ(first, turned, spread + MORE * drawn / SAME) else ""


def _asked(model: nn.Module, data: EvalBatch, rows: Tensor, seed: int) -> Tensor:
    few = data.take(rows)
    with audited(model, seed):
        return few.answers(model, slice(0, len(rows)), few.values).double().cpu()


def _differ(one: Tensor, other: Tensor, spread: float) -> bool:
    return bool(((one - other).abs() > SAME * spread).any())

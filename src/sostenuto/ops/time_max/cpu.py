"""The largest value over time on the CPU: Numba, one pass over memory."""

from typing import no_type_check

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit
from torch import Tensor

from sostenuto.ops.columns.cpu import OPTIONS, block_of
from sostenuto.ops.threads import run_blocks


def largest(values: Float[Tensor, "B T H"]) -> tuple[Float[Tensor, "B H"], Int[Tensor, "B H"], bool]:
    """Give the largest value over time, the first step that has it, and whether no other step does, anywhere."""
    B, T, H = values.shape
    rows = values.detach().transpose(0, 1).reshape(T, B * H).numpy()
    best, step, ties = np.empty(B * H, rows.dtype), np.empty(B * H, np.int64), np.zeros(B * H, np.int32)
    run_blocks(lambda start, stop: _largest(rows, best, step, ties, start, stop), B * H, block_of(B * H, values.dtype))
    return torch.from_numpy(best).view(B, H), torch.from_numpy(step).view(B, H), not ties.any()


@no_type_check
@njit(**OPTIONS)
def _largest(rows, best, step, ties, start, stop):
    n = stop - start
    most, at, same = rows[0, start:stop].copy(), np.zeros(n, np.int32), np.zeros(n, np.int32)
    for t in range(1, rows.shape[0]):
        row, now = rows[t, start:stop], np.int32(t)
        for i in range(n):
            value, before = row[i], most[i]
            # what is not a number is larger than every number, as in torch, and stays so
            above = (value > before) | ((value != value) & (before == before))
            same[i] = np.int32(0) if above else same[i] + np.int32(value == before)
            at[i] = now if above else at[i]
            most[i] = value if above else before
    best[start:stop] = most
    step[start:stop] = at
    ties[start:stop] = same

"""The largest value over time and its backward pass on the CPU: Numba, one pass over memory."""

from typing import no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.columns import block_of, flat
from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.parallel_for import parallel_for
from sostenuto.ops._cpu.threads import run_kernel
from sostenuto.ops._cpu.workspace import new


def max_backward(
    values: Float[Tensor, "B T H"], largest: Float[Tensor, "B H"], gradient: Float[Tensor, "B H"]
) -> Float[Tensor, "B T H"]:
    """Give each step that has the largest value an even share of its gradient, and the others 0."""
    B, T, H = values.shape
    spread = new((T, B, H), values.dtype)
    rows, shares = (each.view(T, B * H).numpy() for each in (values.detach().transpose(0, 1), spread))
    most, arriving = flat(largest, values.dtype), flat(gradient, values.dtype)
    run_kernel(
        _max_backward, _max_backward_blocks, (rows, most, arriving, shares), B * H, block_of(B * H, values.dtype)
    )
    return spread.transpose(0, 1)


@no_type_check
@njit(**OPTIONS)
def _max_backward(rows, largest, gradient, shares, start, stop):
    T, n = rows.shape[0], stop - start
    most, arriving, zero = largest[start:stop], gradient[start:stop], rows.dtype.type(0)
    holders, ties = np.zeros(n, np.int32), np.int32(0)
    for t in range(T):
        row, share = rows[t, start:stop], shares[t, start:stop]
        for i in range(n):
            # as in torch, one that is not a number is the largest
            holds = (row[i] == most[i]) | ((row[i] != row[i]) & (most[i] != most[i]))
            share[i] = arriving[i] if holds else zero
            holders[i] += np.int32(holds)
    for i in range(n):
        ties = max(ties, holders[i])
    if ties > 1:
        for t in range(T):
            share = shares[t, start:stop]
            for i in range(n):
                share[i] /= max(holders[i], np.int32(1))


@no_type_check
@njit(**OPTIONS)
def _max_backward_blocks(entry, threads, count, block, rows, largest, gradient, shares):
    parallel_for(_max_backward, entry, threads, count, block, (rows, largest, gradient, shares))


@no_type_check
@procedure
def spread_peak_gradient(values, at, steps, largest, shares, gradients):
    """Write what arrives at some steps, row by row: a column's share where it has its largest value, and 0 elsewhere.

    All steps have a largest value that is not a number.
    """
    n, zero = len(largest), values.dtype.type(0)
    for t in range(steps):
        row, target = values[at[0] + t, at[1] : at[1] + n], gradients[t * n : t * n + n]
        for i in range(n):
            target[i] = zero if row[i] < largest[i] else shares[i]

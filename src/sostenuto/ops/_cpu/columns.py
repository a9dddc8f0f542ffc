"""Tensors as the rows of columns that compiled CPU scans read, how columns are cut into blocks, and room for them."""

from typing import Any, no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.workspace import PAGE

BLOCK_BYTES = 8192
"""Bytes of one array's row in a block; measured best between 4 and 32 KiB."""
FLUSH = 64
"""Steps summed in the working precision before they go into float64 sums."""
STAGGER = 320
"""Bytes between the places of two arrays; the sets of the first cache come again after a page."""


def array(values: Float[Tensor, "..."], dtype: torch.dtype) -> Any:
    """Give a tensor's numbers as an array, in the tensor's own memory where they are contiguous and of this kind.

    >>> array(torch.ones(2, requires_grad=True), torch.float64).tolist()
    [1.0, 1.0]
    """
    values = values.detach()
    if values.dtype != dtype or not values.is_contiguous():  # asked first: torch's operators take longer to do nothing
        values = values.to(dtype).contiguous()
    return values.numpy()


def rows(values: Float[Tensor, "T ..."], dtype: torch.dtype) -> Any:
    """Give an array with one row of columns for each step.

    >>> rows(torch.zeros(5, 2, 3), torch.float64).shape
    (5, 6)
    """
    return array(values, dtype).reshape(len(values), -1)


def flat(values: Float[Tensor, "..."], dtype: torch.dtype) -> Any:
    """Give an array that is one row of columns.

    >>> flat(torch.zeros(2, 3), torch.float64).shape
    (6,)
    """
    return array(values, dtype).reshape(-1)


def block_of(count: int, dtype: torch.dtype) -> int:
    """Choose the columns of a block: a row of it fits the cache, and every thread has work.

    >>> block_of(10, torch.float32)
    64
    """
    most = BLOCK_BYTES // dtype.itemsize
    share = -(-count // max(torch.get_num_threads(), 1))
    return max(min(most, share), 64)


@no_type_check
@njit(**OPTIONS)
def empty_at(address, like, rows, columns):
    """Give an array whose values are not set, which begins at the same place of a page as the address does.

    Numbers 4096 bytes apart share a set of the first cache, and to read one just after the other was written makes the
    machine wait. Arrays that a step reads and writes therefore begin at places apart, or by chance they would take
    twice as long for the life of a process.
    """
    size = like.itemsize
    memory = np.empty(rows * columns + PAGE // size, like.dtype)
    first = (address - memory.ctypes.data) % PAGE // size
    return memory[first : first + rows * columns].reshape(rows, columns)


@no_type_check
@njit(**OPTIONS)
def empty(like, rows, columns, place):
    """Give an array whose values are not set, at one of many places of a page that are apart from each other."""
    return empty_at(place * STAGGER, like, rows, columns)


@no_type_check
@procedure
def copy_row(target, source):
    """Copy numbers; an assignment of arrays would compile the text of every error it can raise."""
    for i in range(len(source)):
        target[i] = source[i]


@no_type_check
@procedure
def load_tile(tile, states, low, high):
    """Copy the states of some batch rows into a tile, one row for each layer; where there are none, they are 0."""
    H = tile.shape[1] // (high - low)
    for layer in range(len(tile)):
        for r in range(high - low):
            row = tile[layer, r * H : (r + 1) * H]
            if len(states) > 0:
                copy_row(row, states[layer, low + r])
            else:
                row[:] = 0


@no_type_check
@procedure
def store_tile(tile, states, low, high):
    """Copy what `load_tile` took back to the states of a tile."""
    H = states.shape[2]
    for layer in range(len(states)):
        for r in range(low, high):
            copy_row(states[layer, r], tile[layer, (r - low) * H : (r - low + 1) * H])


@no_type_check
@procedure
def repeat_rows(rows, vectors, R):
    """Repeat a vector of each layer for every one of the ``R`` rows of a tile."""
    L, H = vectors.shape
    for layer in range(L):
        for r in range(R):
            copy_row(rows[layer, r * H : (r + 1) * H], vectors[layer])

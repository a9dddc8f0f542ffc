"""Tensors as the rows of columns that compiled CPU scans read, and how columns are cut into blocks."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

BLOCK_BYTES = 8192
"""Bytes of one array's row in a block; measured best between 4 and 32 KiB."""
FLUSH = 64
"""Steps summed in the working precision before they go into float64 sums."""
OPTIONS: Any = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"contract"}}
"""How kernels are compiled: no interpreter, no checks, products and sums fused, kept on disk."""


def rows(values: Float[Tensor, "T ..."], dtype: torch.dtype) -> Any:
    """Give an array with one row of columns for each step.

    >>> rows(torch.zeros(5, 2, 3), torch.float64).shape
    (5, 6)
    """
    return values.detach().to(dtype).reshape(values.shape[0], -1).contiguous().numpy()


def flat(values: Float[Tensor, "..."], dtype: torch.dtype) -> Any:
    """Give an array that is one row of columns.

    >>> flat(torch.zeros(2, 3), torch.float64).shape
    (6,)
    """
    return values.detach().to(dtype).contiguous().view(-1).numpy()


def block_of(count: int, dtype: torch.dtype) -> int:
    """Choose the columns of a block: a row of it fits the cache, and every thread has work.

    >>> block_of(10, torch.float32)
    64
    """
    most = BLOCK_BYTES // dtype.itemsize
    share = -(-count // max(torch.get_num_threads(), 1))
    return max(min(most, share), 64)

"""New memory for what a scan writes on the CPU."""

import math

import numpy as np
import torch
from torch import Tensor

LARGE = 1 << 25
"""Bytes from which the C library takes new pages from the system every time, and gives them back."""
LINE = 64


def new(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Give an uninitialized tensor on whole cache lines; a large one from numpy.

    Sequences of states are large and written once, so that the system's handing out of pages, 4 KiB at a time, can take
    longer than the writing. Numpy asks Linux for large pages and torch does not. Under torch's deterministic
    algorithms, which fill new memory, torch's own is used.

    >>> new((2, 3), torch.float64).shape
    torch.Size([2, 3])
    """
    count = math.prod(shape)
    if count * dtype.itemsize < LARGE or torch.are_deterministic_algorithms_enabled():
        return torch.empty(shape, dtype=dtype)
    raw = np.empty(count * dtype.itemsize + LINE, np.uint8)
    skip = -raw.ctypes.data % LINE
    return torch.from_numpy(raw[skip : skip + count * dtype.itemsize]).view(dtype).view(shape)

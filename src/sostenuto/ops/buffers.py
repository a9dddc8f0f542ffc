"""Large CPU buffers that are used again instead of given back: new memory costs more than a scan over it.

The system hands out memory a page at a time, each cleared at its first touch; for a buffer of 65 MB that took 15 ms,
where a scan reads and writes it in 7. So memory is asked for in huge pages, and the memory of a tensor that nobody
holds any more waits for the next one of its size.
"""

import math
import mmap
import weakref
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

LEAST_BYTES = 1 << 22
"""Smaller tensors are torch's own."""
KEPT_BYTES = 1 << 28
"""Memory that waits at most; what would exceed it goes back to the system. 0 keeps nothing."""

_PAGE = 1 << 21
_waiting: dict[int, list[np.ndarray]] = {}


def new(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Give a CPU tensor whose values are not set, like `torch.empty`.

    Its memory is taken up again only when its storage has died: every view, array and graph that could see it is gone.

    >>> new((3, 4), torch.float64).shape
    torch.Size([3, 4])
    """
    size = math.prod(shape) * dtype.itemsize
    if size < LEAST_BYTES:
        return torch.empty(shape, dtype=dtype)
    owner = _take(-(-size // _PAGE) * _PAGE)
    lent = owner[:size]
    weakref.finalize(lent, _give_back, owner).atexit = False
    values = torch.from_numpy(lent).view(dtype).view(shape)
    if torch.are_deterministic_algorithms_enabled():  # a law of the ops: what nobody wrote must show
        values.fill_(torch.nan)
    return values


def release() -> None:
    """Give all waiting memory back to the system.

    >>> release()
    """
    _waiting.clear()


def _take(size: int) -> np.ndarray:
    """Find waiting memory or make new; every step on the lists is one that threads cannot interrupt."""
    try:
        return _waiting[size].pop()
    except (KeyError, IndexError):
        return _made(size)


def _give_back(owner: np.ndarray) -> None:
    """Let memory wait for the next buffer of its size; make room for it from the other sizes first."""
    size = len(owner)
    for other in list(_waiting):
        while other != size and _kept() + size > KEPT_BYTES and _waiting.get(other):
            _waiting[other].pop()
    if _kept() + size <= KEPT_BYTES:
        _waiting.setdefault(size, []).append(owner)


def _kept() -> int:
    return sum(size * len(owners) for size, owners in list(_waiting.items()))


def _made(size: int) -> np.ndarray:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8).numpy()
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without huge pages refuses the advice, and small ones do as well
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)

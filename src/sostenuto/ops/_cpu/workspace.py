"""Large CPU buffers that are used again instead of given back: new memory costs more than a scan over it.

The system gives out memory a page at a time, each cleared at its first touch; for a buffer of 65 MB that took 15 ms,
where a scan reads and writes it in 7. So much memory is asked for in huge pages, and the memory of a tensor that was
freed waits for the next one of its size. A chunked sweep, too, runs in the buffers of its first chunk.
"""

import math
import mmap
import weakref
from contextlib import suppress

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

LEAST_BYTES = 1 << 18
"""Smaller tensors are torch's own."""
LARGE_BYTES = 1 << 22
"""From here on memory is asked for in huge pages."""
KEPT_BYTES = 1 << 28
"""Memory that waits at most; what would exceed it goes back to the system. 0 keeps nothing."""

LINE, PAGE = 1 << 6, 1 << 12
"""Bytes of a cache line and of a small page of memory."""

_HUGE_PAGE = 1 << 21
_free: dict[int, list[np.ndarray]] = {}


def new(shape: tuple[int, ...], dtype: torch.dtype, *, place: int | None = None) -> Tensor:
    """Return a CPU tensor whose values are not set, like `torch.empty`.

    Its memory is taken up again only when its storage has died: every view, array and graph that could see it is gone.
    With a ``place`` a large one begins at that place of a page, down to cache lines: to read from a place of one page
    just after writing to the same place of another makes the processor wait.

    >>> new((3, 4), torch.float64).shape
    torch.Size([3, 4])
    """
    size = math.prod(shape) * dtype.itemsize
    if size < LEAST_BYTES:
        return torch.empty(shape, dtype=dtype)
    owner = _take(_rounded(size if place is None else size + PAGE))
    first = 0 if place is None else (place // LINE * LINE - owner.ctypes.data) % PAGE
    lent = owner[first : first + size]
    weakref.finalize(lent, _recycle, owner).atexit = False
    values = torch.from_numpy(lent).view(dtype).view(shape)
    if torch.are_deterministic_algorithms_enabled():  # a law of the ops: what was not written must show
        values.fill_(torch.nan)
    return values


def product(
    x: Float[Tensor, "T B F"], matrix: Float[Tensor, "H F"], bias: Float[Tensor, " H"] | None, dtype: torch.dtype
) -> Float[Tensor, "T B H"]:
    """Compute V x + b, as `torch.nn.functional.linear`, into a buffer; no gradient flows.

    >>> product(torch.ones(1, 1, 2), torch.ones(3, 2), None, torch.float64).tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    T, B, channels = x.shape
    values = new((T, B, len(matrix)), dtype)
    x, matrix = x.detach().to(dtype), matrix.detach().to(dtype)
    flat, rows = values.view(T * B, -1), x.reshape(T * B, channels)
    if bias is None:
        torch.mm(rows, matrix.T, out=flat)
    else:
        torch.addmm(bias.detach().to(dtype), rows, matrix.T, out=flat)
    return values


def release() -> None:
    """Give all waiting memory back to the system.

    >>> release()
    """
    _free.clear()


def _rounded(size: int) -> int:
    """Round up to whole huge pages, or by at most a quarter, so that sizes near each other share their memory.

    What is rounded up costs nothing: a small page that is not touched is never given out.
    """
    grain = _HUGE_PAGE if size >= LARGE_BYTES else 1 << max(size.bit_length() - 3, 12)
    return -(-size // grain) * grain


def _take(size: int) -> np.ndarray:
    """Find waiting memory or make new; every step on the lists is one that threads cannot interrupt."""
    try:
        return _free[size].pop()
    except (KeyError, IndexError):
        return _allocate(size)


def _recycle(owner: np.ndarray) -> None:
    """Let memory wait for the next buffer of its size; make room for it from the other sizes first."""
    size = len(owner)
    if _kept() + size <= KEPT_BYTES or _evict(size):
        _free.setdefault(size, []).append(owner)


def _evict(size: int) -> bool:
    """Let go of memory of other sizes until there is room, and say whether there is."""
    for other in list(_free):
        while other != size and _kept() + size > KEPT_BYTES and _free.get(other):
            _free[other].pop()
    return _kept() + size <= KEPT_BYTES


def _kept() -> int:
    return sum(size * len(owners) for size, owners in list(_free.items()))


def _allocate(size: int) -> np.ndarray:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8).numpy()
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= LARGE_BYTES:
        with suppress(OSError):  # a system without huge pages refuses the advice, and small ones do as well
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)

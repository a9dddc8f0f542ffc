"""Run a kernel that lets go of the interpreter on several threads: torch's own where they can be had.

After each of its operators torch's OpenMP threads spin for some milliseconds, waiting for the next. Threads beside them
share the cores with that spinning, which doubled the time of a short scan; so the blocks are handed to the threads that
spin. They are called through GNU's OpenMP as it lies in torch's wheel; elsewhere, and in a forked child, where OpenMP
has lost its threads, a pool of Python's does the work.
"""

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

_Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def run_blocks(kernel: Callable[[int, int], None], count: int, block: int) -> None:
    """Call ``kernel(start, stop)`` for consecutive blocks of ``range(count)``, on torch's number of threads.

    A thread that is done with a block takes the next one; which thread runs which is not settled.

    >>> done = []
    >>> run_blocks(lambda start, stop: done.append((start, stop)), 5, 2)
    >>> sorted(done)
    [(0, 2), (2, 4), (4, 5)]
    """
    borders = [(start, min(start + block, count)) for start in range(0, count, block)]
    threads = min(torch.get_num_threads(), len(borders))
    if threads <= 1:
        for start, stop in borders:
            kernel(start, stop)
        return
    shared = _Blocks(kernel, borders)
    if _openmp is None:
        futures = [_pool(threads - 1).submit(shared.work) for _ in range(threads - 1)]
        shared.work()
        for future in futures:
            future.result()
    else:
        _openmp(_Work(shared.work), None, threads, 0)
    shared.finish()


def run_kernel(
    kernel: Callable[..., None], blocks: Callable[..., None], arguments: tuple[Any, ...], count: int, block: int
) -> None:
    """Call the compiled ``kernel(*arguments, start, stop)`` for blocks, as `run_blocks`, but begun from compiled code.

    That is ``blocks(entry, threads, count, block, *arguments)``, which is one line of `parallel_for`. Where
    OpenMP cannot be had, the blocks are handed out as in `run_blocks`.
    """
    threads = min(torch.get_num_threads(), -(-count // block))
    if threads <= 1 or _openmp is not None:
        blocks(_address, threads, count, block, *arguments)
    else:
        run_blocks(lambda start, stop: kernel(*arguments, start, stop), count, block)


class _Blocks:
    """Blocks that several threads take one after the other, and what went wrong."""

    def __init__(self, kernel: Callable[[int, int], None], borders: list[tuple[int, int]]) -> None:
        self.kernel, self.waiting, self.unfinished = kernel, deque(borders), len(borders)
        self.done: deque[None] = deque()
        self.errors: list[BaseException] = []

    def work(self, _: Any = None) -> None:
        """Take blocks until none waits; an error stops all, and is kept: OpenMP's threads could not raise it."""
        try:
            while self.waiting:
                try:
                    start, stop = self.waiting.popleft()
                except IndexError:  # another thread was faster
                    return
                self.kernel(start, stop)
                self.done.append(None)
        except BaseException as error:  # raised again by `finish`
            self.errors.append(error)
            self.waiting.clear()

    def finish(self) -> None:
        """Raise what went wrong; an interrupt between two blocks can leave some undone without a trace of its own."""
        if self.errors:
            raise self.errors[0]
        if len(self.done) != self.unfinished:
            raise KeyboardInterrupt


def _find_openmp() -> Any:
    """Return OpenMP's entry point in the library that torch has loaded, or None."""
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            entry = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_NOW).GOMP_parallel
        except (OSError, AttributeError):  # there, but another one is in use
            continue
        entry.argtypes, entry.restype = [_Work, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
        return entry
    return None


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="sostenuto")
        return _pools[threads]


def _forget() -> None:
    """Start over in a forked child, which has none of the parent's threads: an unlocked lock, no pools, no OpenMP."""
    global _lock, _openmp
    _lock, _openmp = threading.Lock(), None
    _pools.clear()


_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}
_openmp = _find_openmp()
_address = 0 if _openmp is None else ctypes.cast(_openmp, ctypes.c_void_p).value or 0

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

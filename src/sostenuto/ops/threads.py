"""Run a kernel that lets go of the interpreter on several threads: as many as torch uses."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def run_blocks(kernel: Callable[[int, int], None], count: int, block: int) -> None:
    """Call ``kernel(start, stop)`` for consecutive blocks of ``range(count)``, on torch's number of threads.

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
    futures = [_pool(threads - 1).submit(_run_all, kernel, borders[i::threads]) for i in range(1, threads)]
    _run_all(kernel, borders[::threads])
    for future in futures:
        future.result()


def _run_all(kernel: Callable[[int, int], None], borders: list[tuple[int, int]]) -> None:
    for start, stop in borders:
        kernel(start, stop)


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="sostenuto")
        return _pools[threads]


def _forget() -> None:
    """Start over in a forked child, which has none of the parent's threads: an unlocked lock and no pools."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

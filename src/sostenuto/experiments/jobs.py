"""Several processes on one experiment: each takes cells that no other has begun."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sostenuto.checks import check_count, require

_GRACE = 60.0
"""Seconds in which a process that reached the time limit may save where it is."""


@contextmanager
def alongside(jobs: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> Iterator[None]:
    """Run ``work(*arguments)`` in ``jobs - 1`` further processes for as long as the block lasts.

    A block that ends with its work done ends the others, which have nothing left to do; one that ends otherwise (time
    limit, error) first leaves them time to reach the same end.
    """
    check_count("jobs", jobs)
    hint = "leave jobs at 1"
    require(
        jobs == 1 or os.name == "posix", "expected a system with file locks for several jobs", f"got {os.name}", hint
    )
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=work, args=arguments, daemon=True) for _ in range(jobs - 1)]
    for other in others:
        other.start()
    grace = 0.0
    try:
        yield
    except Exception:
        grace = _GRACE
        raise
    finally:
        for other in others:
            other.join(grace)
            if other.is_alive():
                other.terminate()
                other.join()

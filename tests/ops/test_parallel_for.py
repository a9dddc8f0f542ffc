"""Blocks that compiled code gives out: each runs once, and an error in one is not lost."""

import numpy as np
import pytest
from numba import njit

from sostenuto.ops._cpu.parallel_for import parallel_for
from sostenuto.ops._cpu.threads import run_kernel


@njit(nogil=True)
def count_up(seen, bad, start, stop):
    if start <= bad < stop:
        raise ValueError("bad")
    for i in range(start, stop):
        seen[i] += i


@njit(nogil=True)
def count_up_blocks(entry, number, count, block, seen, bad):
    parallel_for(count_up, entry, number, count, block, (seen, bad))


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("count", "block"), [(1, 4), (5, 2), (100, 7)])
def test_every_block_runs_once(count, block):
    seen = np.zeros(count, np.int64)
    run_kernel(count_up, count_up_blocks, (seen, -1), count, block)
    assert seen.tolist() == list(range(count))


def test_an_error_in_one_block_is_raised(two_threads):
    expected, message = (ValueError, "bad") if two_threads == "a pool" else (RuntimeError, "a kernel failed")
    with pytest.raises(expected, match=message):
        run_kernel(count_up, count_up_blocks, (np.zeros(9, np.int64), 4), 9, 2)

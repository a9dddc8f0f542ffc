"""What a product asks for on its way: every line of the rows on the list once, and the product stays what it is."""

import numpy as np
import pytest
from numba import njit

from sostenuto.ops._cpu import prefetch
from sostenuto.ops._cpu.panel_product import VECTOR_BYTES, multiply, multiply_rows, pack_into
from sostenuto.ops._cpu.prefetch import (
    LEAST_BYTES,
    LEAST_DEPTH,
    MOST_BYTES,
    new_prefetch_list,
    next_lines,
    worth_prefetching,
)
from sostenuto.ops._cpu.workspace import LINE


@njit
def add_prefetch(rows, region, address, stride, width, count):
    prefetch.add_prefetch(rows, region, address, stride, width, count)


def parts_of(rows, most):
    found = []
    while (part := next_lines(rows, most))[1] > 0:
        found.append(part)
    return found


@pytest.mark.parametrize(("width", "count", "most"), [(LINE, 1, 1), (256, 3, 128), (5 * LINE + 8, 2, 3), (40, 4, 2)])
def test_every_line_is_asked_for_once(width, count, most):
    rows, stride, address = new_prefetch_list(2), 1000 * LINE, 1 << 20
    add_prefetch(rows, 1, address, stride, width, count)
    parts = parts_of(rows, most)
    assert max(lines for _, lines in parts) <= most
    asked = [begin + LINE * line for begin, lines in parts for line in range(lines)]
    assert asked == [address + row * stride + at for row in range(count) for at in range(0, width, LINE)]
    assert next_lines(rows, most) == (0, 0)


def test_regions_come_one_after_the_other_and_large_ones_not_at_all():
    rows = new_prefetch_list(3)
    add_prefetch(rows, 0, 1 << 20, LINE, LINE, 2)
    add_prefetch(rows, 1, 1 << 21, MOST_BYTES, MOST_BYTES, 2)
    add_prefetch(rows, 2, 1 << 22, LINE, LINE, 1)
    assert [begin for begin, _ in parts_of(rows, 9)] == [1 << 20, (1 << 20) + LINE, 1 << 22]


def test_little_is_not_asked_for():
    rows = new_prefetch_list(1)
    assert len(worth_prefetching(rows, LEAST_BYTES, LEAST_DEPTH)) == 1
    for size, depth in ((LEAST_BYTES - 1, LEAST_DEPTH), (LEAST_BYTES, LEAST_DEPTH - 1)):
        none = worth_prefetching(rows, size, depth)
        add_prefetch(none, 0, 1 << 20, LINE, LINE, 1)
        assert next_lines(none, 1) == (0, 0)
    assert next_lines(rows, 1) == (0, 0)


@njit
def product(a, b, packed, c, ahead, by_rows):
    size, zero = a.itemsize, a.dtype.type(0)
    if by_rows:
        multiply_rows(zero, a.ctypes.data, a.shape[1] * size, size, a.shape[0], b.ctypes.data, b.shape[1] * size,
                      c.ctypes.data, c.shape[1] * size, a.shape[1], False, ahead)  # fmt: skip
    else:
        multiply(zero, a.ctypes.data, a.shape[1] * size, size, a.shape[0], packed.ctypes.data, b.shape[0],
                 c.ctypes.data, c.shape[1] * size, a.shape[1], False, ahead)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize(("rows", "depth", "vectors"), [(1, 16, 4), (9, 20, 4), (16, 128, 9), (6, 33, 3)])
def test_a_product_that_asks_is_the_same_product(dtype, by_rows, rows, depth, vectors):
    rng, columns = np.random.default_rng(0), vectors * VECTOR_BYTES // np.dtype(dtype).itemsize
    a, b = rng.standard_normal((rows, depth)).astype(dtype), rng.standard_normal((depth, columns)).astype(dtype)
    packed, needed = np.zeros(depth * columns, dtype), np.zeros(1 << 12)
    pack_into(b, packed)
    ahead = new_prefetch_list(1)
    add_prefetch(ahead, 0, needed.ctypes.data, 1 << 12, 1 << 12, 8)
    plain, asking = np.full((rows, columns), np.nan, dtype), np.full((rows, columns), np.nan, dtype)
    product(a, b, packed, plain, None, by_rows)
    product(a, b, packed, asking, ahead, by_rows)
    assert np.array_equal(plain, asking)
    np.testing.assert_allclose(asking, a @ b, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12)
    assert ahead[0, 3] < 8 or ahead[0, 4] > 0

"""Loops over tiles, column by column: what is shared, carried, read, written, and where narrow rows end."""

import numpy as np
import pytest
from numba import njit

from sostenuto.ops._cpu.column_loop import column_loop, row_sums
from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops._cpu.vector_loop import address


@column_loop(narrow_read=1, narrow_written=1)
def _running_sum(shared, carried, read, single):
    (weight,), (total,), (x, wide), (mean,) = shared, carried, read, single
    total = total + x * weight - mean
    return (total,), (total, wide + x)


@row_sums(2)
def _two_sums(shared, narrow, single):
    (weight,), (x,), (mean,) = shared, narrow, single
    return x * weight - mean, x


@njit(**OPTIONS)
def _run(x, wide, weight, mean, total, written, widened):
    zero, size = x.dtype.type(0), x.itemsize
    length, row = weight.size * size, x.shape[1] * size
    _running_sum(
        zero, length, x.shape[1], x.shape[0], (address(weight),), (address(total),),
        ((address(x), address(wide)), (row, length)), ((address(mean),), (size,)),
        ((address(written), address(widened)), (row, length)),
    )  # fmt: skip
    return _two_sums(zero, length, x.shape[1], (address(weight),), (address(x),), (mean[0],))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-13)])
@pytest.mark.parametrize("units", [1, 16, 21])
def test_does_what_its_formula_says_and_writes_nothing_beyond_narrow_rows(units, dtype, tolerance):
    draw = np.random.default_rng(units)
    x, wide, weight, mean = (draw.standard_normal(shape).astype(dtype) for shape in ((5, units), (5, 32), (32,), (5,)))
    total, written, widened = np.zeros(32, dtype), np.full((6, units), np.nan, dtype), np.zeros((5, 32), dtype)
    sums = _run(x, wide, weight, mean, total, written[:5], widened)
    truth = (x * weight[:units] - mean[:, None]).cumsum(0)
    np.testing.assert_allclose(written[:5], truth, atol=tolerance)
    np.testing.assert_allclose(total[:units], truth[-1], atol=tolerance)
    np.testing.assert_allclose(widened[:, :units], wide[:, :units] + x, atol=tolerance)
    np.testing.assert_allclose(widened[:, units:], wide[:, units:], atol=tolerance)  # beyond the end x is read as 0
    assert np.isnan(written[5]).all()
    np.testing.assert_allclose(sums, [truth[0].sum(), x[0].sum()], atol=tolerance)

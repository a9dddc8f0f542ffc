import numpy as np
import pytest
from numba import njit

from sostenuto.ops._cpu.tanh import tanh, tanh_with_slope

BOUNDS = {np.float32: (3e-7, 5e-7), np.float64: (1e-15, 1e-15)}
WIDER = {np.float32: np.float64, np.float64: np.longdouble}


@njit(error_model="numpy", fastmath={"contract"})
def both(x, value, again, slope):
    for i in range(x.shape[0]):
        value[i] = tanh(x[i])
        again[i], slope[i] = tanh_with_slope(x[i])


def run(x):
    value, again, slope = (np.empty_like(x) for _ in range(3))
    both(x, value, again, slope)
    return value, again, slope


def points(dtype):
    small = np.geomspace(1e-30, 1, 200_001)
    return np.concatenate([np.linspace(-25, 25, 400_001), small, -small]).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_relative_errors(dtype):
    x = points(dtype)
    x = x[x != 0]
    value, again, slope = run(x)
    wide = x.astype(WIDER[dtype])
    truth = np.tanh(wide)
    for got in (value, again):
        assert np.abs(got / truth - 1).max() < BOUNDS[dtype][0]
        assert np.abs(got).max() <= 1
    inside = np.abs(x) < (9.9 if dtype is np.float32 else 19.9)
    assert np.abs(slope * np.cosh(wide) ** 2 - 1)[inside].max() < BOUNDS[dtype][1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends(dtype):
    value, again, slope = run(np.array([0, -0.0, np.inf, -np.inf, 1e30, -1e30, np.nan], dtype=dtype))
    for got in (value, again):
        np.testing.assert_array_equal(got, np.array([0, 0, 1, -1, 1, -1, np.nan], dtype=dtype))
    assert slope[0] == 1
    assert ((slope[2:6] > 0) & (slope[2:6] < 1e-8)).all()
    assert np.isnan(slope[6])


def test_odd():
    x = points(np.float32)
    np.testing.assert_array_equal(run(x)[0], -run(-x)[0])

"""One table of nonlinearities: what it says of each holds, and a name outside it is refused by every backend."""

import math

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.ops._cpu.activation import activate_tile, slope_into
from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops.activation import ACTIVATIONS, SLOPES, TABLE, activate
from sostenuto.ops.dense import dense_scan


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("drive", [None, 0.4, 3.0])
def test_secants_have_the_slopes_of_the_table(name, drive):
    (low, high), entry = SLOPES[name], TABLE[name]
    reach = 8.0 if drive is None else drive
    if drive is not None and entry.least_slope is not None:
        low = entry.least_slope(drive)
    points = torch.linspace(-reach, reach, 161, dtype=torch.float64)
    values = activate(points, name)
    rise, run = values[:, None] - values, points[:, None] - points
    slopes = (rise / run)[run != 0]
    assert float(slopes.min()) >= low - 1e-12
    assert float(slopes.max()) <= high + 1e-12
    if entry.largest_value is not None:
        assert float(values.abs().max()) <= entry.largest_value


def test_least_slopes_do_not_overflow():
    least = [entry.least_slope(1e9) for entry in TABLE.values() if entry.least_slope is not None]
    assert all(0 <= slope < 1e-200 for slope in least)
    assert all(math.isfinite(slope) for slope in least)


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError, match=r"expected activation to be one of 'tanh'.*got 'swish'"):
        activate(torch.zeros(2), "swish")
    state, zero = torch.eye(2), torch.zeros(1, 2)
    with pytest.raises(InputError, match="got 'swish'"):
        dense_scan(torch.zeros(3, 1, 2), zero, state, state, state, activation="swish")


def test_a_code_without_a_loop_gives_nan():
    from numba import njit

    @njit(**{**OPTIONS, "cache": False})
    def run(code, values, out):
        activate_tile(code, values.reshape(1, -1), values, values, out, 1)
        slope_into(code, values, values)

    values, out = np.ones(3), np.zeros(3)
    run(len(ACTIVATIONS), values, out)
    assert np.isnan(out).all()
    assert np.isnan(values).all()

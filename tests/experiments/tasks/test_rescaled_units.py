"""The worst that moving the weights of linear units can do, against what can be computed by hand."""

import numpy as np
import pytest

from sostenuto.experiments.tasks.rescaled_units import LinearUnits, worst_errors

LAGS = np.concatenate([[0.0], np.geomspace(0.01, 1e4, 400)])
UNITS = LinearUnits(np.array([-1.0, -0.5]), np.array([1.0, 0.25]), np.array([1.0, 0.1]))


def memory(move=(0.0, 0.0), readout=(0.0, 0.0)):
    return UNITS.terms(LAGS, np.array(move)) @ (UNITS.readout + np.array(readout))


def test_no_change_of_the_same_size_does_worse_at_small_radii():
    """Random changes within the radius stay below what was found, up to its being a lower bound."""
    beta, target = 0.05, memory()
    still, (weights,) = worst_errors(UNITS, LAGS, target, [beta], readout=False)
    _, (both,) = worst_errors(UNITS, LAGS, target, [beta], readout=True)
    assert still == 0
    rng = np.random.default_rng(0)
    for _ in range(200):
        move, readout = (beta * one / np.linalg.norm(one) for one in rng.normal(size=(2, 2)))
        assert np.abs(memory(move) - target).max() <= 1.02 * weights
        assert np.abs(memory(move, readout) - target).max() <= 1.02 * both
    assert both >= beta * np.sqrt(2)


def test_a_weight_past_zero_ruins_everything():
    beyond, within = 0.51, 0.49
    _, errors = worst_errors(UNITS, LAGS, memory(), [within, beyond, 3.0], readout=False)
    assert errors[0] < 1 < 100 < errors[1]
    assert errors[2] == np.inf
    assert errors == sorted(errors)


def test_a_unit_that_is_not_read_does_no_harm_until_the_readout_moves():
    unread = LinearUnits(np.array([-1.0, -0.1]), np.array([1.0, 0.0]), np.ones(2))
    target = np.exp(-LAGS)
    _, (kept,) = worst_errors(unread, LAGS, target, [0.2], readout=False)
    _, (moved,) = worst_errors(unread, LAGS, target, [0.2], readout=True)
    assert kept == pytest.approx(np.abs(np.exp(-0.8 * LAGS) - target).max())
    assert moved > 1e6

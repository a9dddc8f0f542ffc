import math

import numpy as np
import pytest

from sostenuto.checks import InputError
from sostenuto.data.tasks.pendulum import energy, pendulum, trajectories
from sostenuto.data.tasks.runge_kutta import integrate


def test_an_undamped_pendulum_keeps_its_energy() -> None:
    path = trajectories(np.array([[2.4, 0.0], [0.3, 0.1], [3.1, 0.0]]), 0.1, 500)
    levels = energy(path)
    np.testing.assert_allclose(levels, levels[:, :1].repeat(501, axis=1), rtol=1e-8)


def test_damping_loses_energy_at_the_rate_it_should() -> None:
    path = trajectories(np.array([[1.0, 0.0]]), 0.01, 1000, damping=0.3)[0]
    lost = -np.diff(energy(path)) / 0.01
    squared = path[:, 1] ** 2
    np.testing.assert_allclose(lost, 0.3 * (squared[1:] + squared[:-1]) / 2, atol=1e-5)


def test_small_swings_are_harmonic_and_large_ones_have_the_elliptic_period() -> None:
    times = 0.1 * np.arange(101)
    small = trajectories(np.array([[1e-4, 0.0]]), 0.1, 100)[0, :, 0]
    np.testing.assert_allclose(small, 1e-4 * np.cos(times), atol=1e-11)
    # T = 2π / agm(1, cos(θ₀/2)), Gauss.
    mean, root = 1.0, math.cos(1.2)
    for _ in range(6):
        mean, root = (mean + root) / 2, math.sqrt(mean * root)
    period = 2 * math.pi / mean
    path = trajectories(np.array([[2.4, 0.0]]), period / 100, 100)[0]
    np.testing.assert_allclose(path[-1], path[0], atol=1e-7)


def test_inputs_are_noisy_and_targets_are_not() -> None:
    clean = pendulum(num_train=50, num_validation=0, num_test=0).train
    noisy = pendulum(num_train=50, num_validation=0, num_test=0, noise=0.1).train
    assert clean.targets is not None
    assert noisy.targets is not None
    np.testing.assert_array_equal(np.stack(list(clean.targets)), np.stack(list(noisy.targets)))
    added = np.stack(list(noisy.sequences)) - np.stack(list(clean.sequences))
    assert added.std() == pytest.approx(0.1, rel=0.03)


def test_runge_kutta_is_of_order_four() -> None:
    errors = []
    for steps in (20, 40, 80):
        end = integrate(lambda x: x * np.cos(x), np.array([0.5]), 2.0 / steps, steps)[-1, 0]
        fine = integrate(lambda x: x * np.cos(x), np.array([0.5]), 2.0 / 2000, 2000)[-1, 0]
        errors.append(abs(end - fine))
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert (np.abs(orders - 4) < 0.2).all()


def test_a_bad_step_is_refused() -> None:
    with pytest.raises(InputError, match="expected step_size to be a finite number above 0, got 0"):
        pendulum(step_size=0)

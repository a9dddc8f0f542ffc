import numpy as np
import pytest

from sostenuto.checks import InputError
from sostenuto.data.tasks.lorenz96 import lorenz96, trajectories, vector_field


def test_the_field_matches_the_equation_written_out() -> None:
    x = np.random.default_rng(0).normal(size=5)
    expected = [(x[(i + 1) % 5] - x[(i - 2) % 5]) * x[(i - 1) % 5] - x[i] + 8.0 for i in range(5)]
    np.testing.assert_allclose(vector_field(x, 8.0), expected, rtol=1e-14)


def test_the_constant_state_is_a_fixed_point() -> None:
    path = trajectories(np.full((1, 5), 8.0), 0.01, 500, forcing=8.0)
    np.testing.assert_array_equal(path, np.full((1, 501, 5), 8.0))


def test_the_mean_energy_obeys_its_balance() -> None:
    """The quadratic terms keep energy: d/dt Σx²/2 = −Σx² + F·Σx."""
    x = np.random.default_rng(1).normal(size=(7, 6))
    np.testing.assert_allclose((x * vector_field(x, 8.0)).sum(-1), -(x**2).sum(-1) + 8.0 * x.sum(-1), atol=1e-12)


@pytest.mark.parametrize(("forcing", "chaotic"), [(0.9, False), (8.0, True)])
def test_forcing_eight_is_chaotic_and_a_small_one_is_calm(forcing: float, chaotic: bool) -> None:
    start = np.full((2, 5), forcing)
    start[:, 0] += 0.3
    start[1, 1] += 1e-8
    path = trajectories(start, 0.01, 3000, forcing=forcing)
    apart = np.abs(path[0] - path[1]).max(axis=-1)
    assert (apart[-500:].max() > 1.0) if chaotic else (apart.max() < 1e-7)


@pytest.mark.parametrize("forcing", [0.5, 0.9])
@pytest.mark.parametrize("mode", [1, 2])
def test_small_waves_grow_at_the_rate_of_the_linear_theory(forcing: float, mode: int) -> None:
    """Around x = F a wave of angle θ has the eigenvalue −1 + F(e^{iθ} − e^{−2iθ})."""
    angle = 2 * np.pi * mode / 5
    start = forcing + 1e-6 * np.cos(angle * np.arange(5))[None]
    path = trajectories(start, 0.01, 400, forcing=forcing)[0] - forcing
    size = np.abs(path @ np.exp(-1j * angle * np.arange(5)))
    rate = np.log(size[-1] / size[0]) / 4.0
    assert rate == pytest.approx(-1 + forcing * (np.cos(angle) - np.cos(2 * angle)), abs=1e-4)


def test_targets_are_the_states_to_come_and_the_washout_is_dropped() -> None:
    sizes = {"num_train": 3, "num_validation": 0, "num_test": 0, "num_steps": 60}
    plain, later = lorenz96(**sizes, horizon=7).train, lorenz96(**sizes, horizon=7, washout=20).train
    assert plain.targets is not None
    np.testing.assert_array_equal(plain.sequences[1][7:], plain.targets[1][:-7])
    np.testing.assert_array_equal(plain.sequences[2][20:], later.sequences[2][:40])


def test_a_step_that_overflows_is_refused() -> None:
    with (
        np.errstate(all="ignore"),
        pytest.raises(InputError, match="expected a finite path, got overflow; use a smaller"),
    ):
        lorenz96(num_train=2, step_size=1.0, num_steps=200)

from typing import Any

import numpy as np
import pytest

from sostenuto.checks import InputError
from sostenuto.data.tasks.linear_functional import convolve, linear_functional, memory_function


@pytest.mark.parametrize(
    ("options", "rho"),
    [
        ({}, lambda t: 0.9**t),
        ({"memory": "polynomial"}, lambda t: (t + 1) ** -1.1),
        ({"memory": "polynomial", "exponent": 1.5, "step_size": 0.1}, lambda t: (t + 1) ** -1.5),
        ({"memory": lambda t: np.cos(t) / (1 + t**2)}, lambda t: np.cos(t) / (1 + t**2)),
    ],
)
def test_targets_are_the_convolution_summed_directly(options: dict[str, Any], rho: Any) -> None:
    data = linear_functional(num_train=3, num_validation=0, num_test=0, num_steps=40, **options).train
    step = options.get("step_size", 1.0)
    assert data.targets is not None
    for x, y in zip(data.sequences, data.targets, strict=True):
        direct = [sum(step * rho(step * s) * x[t - s, 0] for s in range(t + 1)) for t in range(40)]
        np.testing.assert_allclose(y[:, 0], direct, atol=1e-12)


def test_an_impulse_shows_the_memory() -> None:
    impulse = np.zeros((1, 100))
    impulse[0, 0] = 1.0
    weights = memory_function("exponential", np.arange(100.0))
    np.testing.assert_allclose(convolve(impulse, weights)[0], 0.9 ** np.arange(100), atol=1e-14)


def test_an_exponential_memory_is_a_one_state_recurrence() -> None:
    data = linear_functional(num_train=2, num_validation=0, num_test=0, num_steps=300).train
    assert data.targets is not None
    state = 0.0
    for x, y in zip(data.sequences[1][:, 0], data.targets[1][:, 0], strict=True):
        state = 0.9 * state + x
        assert y == pytest.approx(state, abs=1e-11)


def test_an_unknown_or_broken_memory_is_refused() -> None:
    with pytest.raises(InputError, match="expected memory to be one of 'exponential', 'polynomial', got 'long'"):
        memory_function("long", np.arange(3.0))
    with pytest.raises(InputError, match="expected memory to give 100 finite numbers"):
        linear_functional(memory=lambda t: t[:3])

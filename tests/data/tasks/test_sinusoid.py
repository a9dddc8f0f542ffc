import math

import numpy as np
import pytest

from sostenuto.checks import InputError
from sostenuto.data.tasks.sinusoid import sinusoid


def test_windows_come_from_one_period_of_a_sine() -> None:
    data = sinusoid(num_test=500, noise=0.0).test
    assert data is not None
    assert set(map(len, data.sequences)) == set(range(10, 21))
    for window, target in zip(data.sequences, np.asarray(data.targets)[:, 0, 0], strict=True):
        slope = math.cos(math.pi / 1000) * (window[-1, 0] - window[-2, 0])
        # Three points of a sine: x₊ = 2cos(2π/1000)·x − x₋.
        assert target == pytest.approx(2 * math.cos(2 * math.pi / 1000) * window[-1, 0] - window[-2, 0], abs=1e-9)
        assert abs(slope) < 2 * math.pi / 1000


def test_the_noise_has_its_level_and_belongs_to_the_series() -> None:
    clean, noisy = sinusoid(seed=2, noise=0.0).test, sinusoid(seed=2, noise=0.05).test
    assert clean is not None
    assert noisy is not None
    assert [len(s) for s in clean.sequences] == [len(s) for s in noisy.sequences]
    added = np.concatenate([b - a for a, b in zip(clean.sequences, noisy.sequences, strict=True)])
    assert added.std() == pytest.approx(0.05, rel=0.1)
    assert len(np.unique(np.concatenate(list(noisy.sequences)))) <= 1000


def test_more_windows_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="expected at most 10835 windows, got 20020; ask for fewer"):
        sinusoid(num_test=20000)

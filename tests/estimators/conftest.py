"""Easy problems of a size that trains in a fraction of a second."""

import numpy as np
import pytest


@pytest.fixture
def sinusoids():
    """Slow and fast sinusoids of random phase with some noise, (60, 24), and their names."""
    rng = np.random.default_rng(0)
    names = np.array(["slow", "fast"] * 30)
    frequency = np.where(names == "slow", 1.0, 3.0)[:, None]
    phase = rng.uniform(0, 2 * np.pi, (60, 1))
    values = np.sin(2 * np.pi * frequency * np.linspace(0, 1, 24) + phase)
    return values + 0.1 * rng.normal(size=values.shape), names


@pytest.fixture
def ragged():
    """Two channels of 3 to 9 steps around −1 or 1, and which of both, as whole numbers 7 and −2."""
    rng = np.random.default_rng(1)
    labels = np.array([7, -2] * 15)
    return [rng.normal(np.sign(label), 0.5, (rng.integers(3, 10), 2)) for label in labels], labels

"""What the report says of a kernel: alignment and sensitivity."""

import numpy as np
import pytest

from sostenuto.estimators.rntk.summary import alignment, kernel_summary, sensitivities, step_sensitivity
from sostenuto.kernels import RecurrentNTK


def test_sensitivity_is_that_of_the_exact_derivative():
    generator = np.random.default_rng(0)
    one, other = generator.normal(size=(7, 2)), generator.normal(size=(5, 2))
    for kernel in (RecurrentNTK(sigma_b=0.1), RecurrentNTK(2, sigma_w=1.3, sigma_h=0.2)):
        found = step_sensitivity(kernel, one, other)
        np.testing.assert_allclose(found / found.max(), kernel.sensitivity(one, other), atol=1e-5)


def test_the_flattest_sigma_is_the_papers_for_a_rectifier():
    """Section 3.4: smaller σ_w lean to the last steps, larger ones to the first, √2 to neither."""
    generator = np.random.default_rng(0)
    sequences = list(generator.normal(size=(20, 60, 1)))
    summary = kernel_summary(RecurrentNTK(), sequences, np.arange(20) % 2)
    assert 1.35 < summary.suggestion < 1.48
    sigmas, curves = sensitivities(RecurrentNTK(), sequences)
    assert curves[0][-10:].mean() > 3 * curves[0][:10].mean()
    assert curves[-1][:10].mean() > 3 * curves[-1][-10:].mean()
    assert sigmas == sorted(sigmas)
    assert summary.sigmas[3] == summary.sigma_w == pytest.approx(2**0.5)
    assert sorted(summary.eigenvalues, reverse=True) == list(summary.eigenvalues)
    assert summary.groups == (0,) * 10 + (1,) * 10


def test_numbers_and_unequal_lengths():
    generator = np.random.default_rng(0)
    sequences = [generator.normal(size=(length, 1)) for length in (3, 9, 5, 1)]
    targets = np.array([[3.0], [1.0], [2.0], [4.0]])
    summary = kernel_summary(RecurrentNTK(sigma_b=0.1), sequences, None, targets)
    assert summary.groups == ()
    assert np.isfinite(summary.sensitivities).all()
    assert -1 <= summary.alignment <= 1


def test_alignment_is_a_cosine():
    labels = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    assert alignment(labels @ labels.T, labels) == pytest.approx(1.0)
    assert alignment(-labels @ labels.T, labels) == pytest.approx(-1.0)
    assert alignment(np.ones((4, 4)), labels) == 0.0

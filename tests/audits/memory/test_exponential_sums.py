from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg

from sostenuto.audits import fit_exponential_sum, perturbed_sum_error
from sostenuto.checks import InputError

LAGS = np.arange(1, 101)
POWER = (LAGS + 1.0) ** -1.1


def test_sums_of_exponentials_are_found_exactly():
    memory = 0.7 * 0.9**LAGS - 0.3 * 0.5**LAGS
    found = fit_exponential_sum(LAGS, memory, 2)
    np.testing.assert_allclose(found.rates, -np.log([0.9, 0.5]), rtol=1e-5)
    np.testing.assert_allclose(found.weights, [0.7, -0.3], rtol=1e-4)
    assert found.largest < 1e-8


def test_the_error_falls_with_the_width_and_a_power_needs_many():
    errors = [fit_exponential_sum(LAGS, POWER, terms).error for terms in range(1, 7)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(errors))
    assert errors[0] > 1e-2
    assert errors[3] < 1e-3
    assert fit_exponential_sum(LAGS, 0.9**LAGS, 1).error < 1e-9


def test_the_numbers_are_those_of_the_matrices():
    found = fit_exponential_sum(LAGS, POWER, 3)
    matrix, entering, reading = found.matrices()
    told = np.array([reading @ scipy.linalg.expm(matrix * lag) @ entering for lag in LAGS])
    np.testing.assert_allclose(found.at(LAGS), told, rtol=1e-9, atol=1e-12)
    off = np.abs(told - POWER)
    assert found.error == pytest.approx(np.sqrt(np.mean(off**2)))
    assert found.largest == pytest.approx(off.max())
    assert found.total == pytest.approx(off.sum())


def test_given_rates_are_a_linear_regression():
    """The paper's way: a polynomial in e^{−t} on a grid of rates; no other weights do better."""
    rates = (0.05, 0.1, 0.4)
    found = fit_exponential_sum(LAGS, POWER, 3, rates=rates)
    assert found.rates == rates
    basis = np.exp(-LAGS[:, None] * np.array(rates))
    np.testing.assert_allclose(basis.T @ (found.at(LAGS) - POWER), 0, atol=1e-9)
    assert fit_exponential_sum(LAGS, POWER, 3).error < found.error


def test_perturbation_curves_start_at_the_fit_and_explode():
    betas = (0.0, *(5e-4 * 2.0 ** np.arange(0, 21, 5)))
    exponential = fit_exponential_sum(LAGS, 0.9**LAGS, 1)
    power = fit_exponential_sum(LAGS, POWER, 4)
    first = perturbed_sum_error(exponential, LAGS, 0.9**LAGS, betas, draws=4)
    second = perturbed_sum_error(power, LAGS, POWER, betas, draws=4)
    assert first == perturbed_sum_error(exponential, LAGS, 0.9**LAGS, betas, draws=4)
    assert first != perturbed_sum_error(exponential, LAGS, 0.9**LAGS, betas, draws=4, seed=1)
    assert first[0] == pytest.approx(exponential.total, abs=1e-9)
    assert second[0] == pytest.approx(power.total, rel=1e-6)
    assert first[0] < first[1] < first[2]
    assert min(first[-1], second[-1]) > 1e6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": 0}, "terms"),
        ({"terms": 2, "rates": (1.0,)}, "expected 2 rates above 0"),
        ({"terms": 1, "rates": (-1.0,)}, "expected 1 rates above 0"),
        ({"terms": 1, "lags": LAGS[::-1]}, "expected increasing lags"),
        ({"terms": 1, "memory": POWER[:5]}, "expected as many lags as values"),
        ({"terms": 1, "memory": np.full(100, np.nan)}, "expected finite lags and memory"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        fit_exponential_sum(**{"lags": LAGS, "memory": POWER} | options)


def test_bad_betas_are_refused():
    with pytest.raises(InputError, match="expected finite betas of at least 0"):
        perturbed_sum_error(fit_exponential_sum(LAGS, POWER, 1), LAGS, POWER, (-1.0,))

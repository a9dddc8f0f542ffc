import numpy as np
import pytest
from sklearn.metrics.pairwise import polynomial_kernel

from sostenuto.checks import InputError
from sostenuto.kernels import Polynomial
from tests.laws.kernel_laws import KernelLaws, sample


class TestPolynomial(KernelLaws):
    kernels = (Polynomial(degree=1, offset=0.5), Polynomial())


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_is_scikit_learns_on_flattened_sequences(degree):
    x, y = np.stack(sample(6, 6, 6)), np.stack(sample(6, 6, seed=1))
    expected = polynomial_kernel(x.reshape(3, -1), y.reshape(2, -1), degree=degree, gamma=1.0, coef0=0.3)
    np.testing.assert_allclose(Polynomial(degree, 0.3)(x, y), expected, rtol=1e-10)


def test_degree_is_a_whole_number():
    with pytest.raises(InputError, match="expected degree to be a whole number of at least 1, got 0"):
        Polynomial(degree=0)
    assert Polynomial(offset=0.0).n_dims == 0

"""What every kernel must do. A kernel's test inherits `KernelLaws` and names the kernels to try."""

# ruff: noqa: N802, N803, N806 (X, Y and K are the names of the contract)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from sostenuto.checks import InputError
from sostenuto.kernels import SequenceKernel, as_objects

EXACT = {"rtol": 1e-12, "atol": 1e-14}
DIFFERENCE = 1e-5

values = st.floats(-1e3, 1e3)


@st.composite
def ragged(draw, channels):
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    return [draw(arrays(np.float64, (length, channels), elements=values)) for length in lengths]


@st.composite
def ragged_pairs(draw):
    channels = draw(st.integers(1, 3))
    return draw(ragged(channels)), draw(ragged(channels))


def sample(*lengths, channels=2, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(length, channels)) for length in lengths]


def assert_is_gram(K, n):
    """A kernel matrix is float64, finite, symmetric, and has no eigenvalue below rounding."""
    assert isinstance(K, np.ndarray)
    assert K.dtype == np.float64
    assert K.shape == (n, n)
    assert np.isfinite(K).all()
    np.testing.assert_allclose(K, K.T, **EXACT)
    least = np.linalg.eigvalsh((K + K.T) / 2).min()
    assert least >= -1e-12 * n * max(np.abs(K).max(), 1e-300), f"eigenvalue {least}"


class KernelLaws:
    """List ``kernels``, instances of one class with different options; at least one has a parameter to fit."""

    kernels: tuple[SequenceKernel, ...]

    def pytest_generate_tests(self, metafunc):
        if "kernel" in metafunc.fixturenames:
            metafunc.parametrize("kernel", self.kernels, ids=str)

    @pytest.fixture
    def X(self):
        return sample(5, 3, 8, 5, 1)

    @pytest.fixture
    def Y(self):
        return sample(9, 2, 5, seed=1)

    def test_is_a_gram_matrix(self, kernel, X):
        assert_is_gram(kernel(X), len(X))

    def test_any_sequences_give_a_gram_matrix(self, kernel):
        @given(pair=ragged_pairs())
        def check(pair):
            X, Y = pair
            K = kernel(X)
            assert_is_gram(K, len(X))
            np.testing.assert_allclose(kernel(X, Y), kernel(Y, X).T, **EXACT)
            np.testing.assert_allclose(kernel.diag(X), np.diag(K), **EXACT)

        check()

    def test_one_argument_is_twice_the_same(self, kernel, X):
        np.testing.assert_allclose(kernel(X, X), kernel(X), **EXACT)
        np.testing.assert_allclose(kernel(X, [x.copy() for x in X]), kernel(X), **EXACT)

    def test_reversed_views_are_their_copies(self, kernel, X):
        backwards = [x[::-1] for x in X]
        copies = [x.copy() for x in backwards]
        np.testing.assert_array_equal(kernel(backwards), kernel(copies))
        np.testing.assert_array_equal(kernel(np.ones((3, 4))[:, ::-1]), kernel(np.ones((3, 4))))
        np.testing.assert_array_equal(kernel.diag(backwards), kernel.diag(copies))

    def test_arguments_change_places(self, kernel, X, Y):
        assert kernel(X, Y).shape == (len(X), len(Y))
        np.testing.assert_allclose(kernel(X, Y), kernel(Y, X).T, **EXACT)

    def test_diag_is_the_diagonal(self, kernel, X):
        assert kernel.diag(X).dtype == np.float64
        np.testing.assert_allclose(kernel.diag(X), np.diag(kernel(X)), **EXACT)

    def test_order_of_sequences_is_the_order_of_rows(self, kernel, X, Y):
        order = [3, 1, 4, 0, 2]
        shuffled = [X[i] for i in order]
        np.testing.assert_allclose(kernel(shuffled), kernel(X)[np.ix_(order, order)], **EXACT)
        np.testing.assert_allclose(kernel(shuffled, Y), kernel(X, Y)[order], **EXACT)

    def test_ragged_is_one_by_one(self, kernel, X, Y):
        """An entry depends on its two sequences alone, whatever else is in the batch."""
        K = kernel(X, Y)
        for i, x in enumerate(X):
            np.testing.assert_allclose(kernel.diag([x]), kernel.diag(X)[i : i + 1], **EXACT)
            for j, y in enumerate(Y):
                np.testing.assert_allclose(kernel([x], [y])[0, 0], K[i, j], **EXACT)

    def test_an_array_is_the_list_of_its_rows(self, kernel):
        X = np.stack(sample(6, 6, 6))
        np.testing.assert_allclose(kernel(X), kernel(list(X)), **EXACT)
        np.testing.assert_allclose(kernel(as_objects(X)), kernel(X), **EXACT)

    def test_two_axes_are_one_channel(self, kernel):
        X = np.stack(sample(6, 6, 6, channels=1))
        np.testing.assert_allclose(kernel(X[:, :, 0]), kernel(X), **EXACT)
        np.testing.assert_allclose(kernel([x[:, 0] for x in X]), kernel(X), **EXACT)
        np.testing.assert_allclose(kernel.diag(X[:, :, 0]), kernel.diag(X), **EXACT)

    def test_computes_in_float64_whatever_comes(self, kernel):
        X = np.round(np.stack(sample(6, 6, 6)), 2).astype(np.float32)
        np.testing.assert_allclose(kernel(X), kernel(X.astype(np.float64)), **EXACT)
        np.testing.assert_allclose(kernel(np.arange(12).reshape(3, 4)), kernel(np.arange(12.0).reshape(3, 4)), **EXACT)

    def test_leaves_its_inputs_alone(self, kernel, X):
        before = [x.copy() for x in X]
        K = kernel(X)
        K += 1.0
        kernel.diag(X)[:] = 7.0
        for x, copied in zip(X, before, strict=True):
            np.testing.assert_array_equal(x, copied)

    def test_gradient_is_the_derivative(self, kernel, X):
        K, gradient = kernel(X, eval_gradient=True)
        np.testing.assert_allclose(K, kernel(X), **EXACT)
        assert gradient.shape == (len(X), len(X), kernel.n_dims)
        assert gradient.dtype == np.float64
        for index in range(kernel.n_dims):
            shift = DIFFERENCE * np.eye(kernel.n_dims)[index]
            above, below = (kernel.clone_with_theta(kernel.theta + side * shift)(X) for side in (1, -1))
            np.testing.assert_allclose(gradient[:, :, index], (above - below) / (2 * DIFFERENCE), rtol=1e-6, atol=1e-8)

    def test_gradient_takes_no_second_argument(self, kernel, X, Y):
        with pytest.raises(InputError, match="expected Y=None"):
            kernel(X, Y, eval_gradient=True)

    def test_clone_is_equal_and_apart(self, kernel, X):
        other = clone(kernel)
        assert other == kernel
        assert other is not kernel
        assert other.get_params().keys() == kernel.get_params().keys()
        assert repr(other) == repr(kernel)
        np.testing.assert_array_equal(other(X), kernel(X))
        if kernel.n_dims:
            other.theta = other.theta + 0.1
            assert other != kernel

    def test_theta_lies_within_its_bounds(self, kernel):
        assert kernel.bounds.shape == ((kernel.n_dims, 2) if kernel.n_dims else (0,))
        if kernel.n_dims:
            low, high = kernel.bounds.T
            assert ((low <= kernel.theta) & (kernel.theta <= high)).all()
            moved = kernel.clone_with_theta((low + high) / 2)
            np.testing.assert_allclose(moved.theta, (low + high) / 2)

    def test_fixed_parameters_leave_theta(self, kernel, X):
        fixed = clone(kernel).set_params(**{f"{name}_bounds": "fixed" for name in kernel.parameters})
        assert fixed.n_dims == 0
        assert fixed(X, eval_gradient=True)[1].shape == (len(X), len(X), 0)
        np.testing.assert_array_equal(fixed(X), kernel(X))

    def test_bad_parameters_are_refused(self, kernel, X):
        for name in kernel.parameters:
            zero, low = ((), "at least 0") if name in kernel.may_be_zero else ((0.0,), "above 0")
            for value in (*zero, -1.0, float("nan"), float("inf")):
                with pytest.raises(InputError, match=f"expected {name} to be a finite number {low}"):
                    clone(kernel).set_params(**{name: value})(X)
                with pytest.raises(InputError, match=f"expected {name} to be"):
                    type(kernel)(**{**kernel.get_params(), name: value})
            for bounds in ((2.0, 1.0), (0.0, 1.0), "free"):
                with pytest.raises(InputError, match=f"expected {name}_bounds to be 'fixed' or"):
                    type(kernel)(**{**kernel.get_params(), f"{name}_bounds": bounds})

    def test_sums_products_and_powers_are_kernels(self, kernel, X, Y):
        K, cross = kernel(X), kernel(X, Y)
        for combined, expected, expected_cross in (
            (kernel + kernel, K + K, 2 * cross),
            (kernel * kernel, K * K, cross**2),
            (kernel**2, K**2, cross**2),
            (2.0 * kernel + 3.0, 2 * K + 3, 2 * cross + 3),
        ):
            assert_is_gram(combined(X), len(X))
            np.testing.assert_allclose(combined(X), expected, rtol=1e-10)
            np.testing.assert_allclose(combined(X, Y), expected_cross, rtol=1e-10)
            np.testing.assert_allclose(combined.diag(X), np.diag(combined(X)), rtol=1e-10)
            assert combined(X, eval_gradient=True)[1].shape[2] == combined.n_dims
            assert clone(combined) == combined
            assert combined.is_stationary() == kernel.is_stationary()
            assert not combined.requires_vector_input

    def test_fits_a_gaussian_process(self, kernel):
        X = np.stack(sample(4, 4, 4, 4, 4, 4, channels=1))[:, :, 0]
        y = X.sum(axis=1)
        inputs = (X, as_objects(X), as_objects(sample(5, 3, 8, 5, 1, 2)))
        for each in inputs:
            process = GaussianProcessRegressor(ConstantKernel(1.0, "fixed") * kernel, alpha=1e-6, optimizer=None)
            mean, deviation = process.fit(each, y).predict(each, return_std=True)
            assert mean.shape == deviation.shape == (6,)
            assert np.isfinite(mean).all()
            assert np.abs(mean - y).max() < np.abs(y).max()
            assert set(GaussianProcessClassifier(kernel, optimizer=None).fit(each, y > 0).predict(each)) <= {
                True,
                False,
            }

    @pytest.mark.filterwarnings("ignore:The optimal value found:sklearn.exceptions.ConvergenceWarning")
    def test_marginal_likelihood_rises_in_a_fit(self, kernel):
        X, y = as_objects(sample(5, 3, 8, 5, 1, 2)), np.arange(6.0)
        process = GaussianProcessRegressor(kernel + WhiteKernel(0.1, "fixed"))
        process.fit(X, y)
        start = process.log_marginal_likelihood((kernel + WhiteKernel(0.1, "fixed")).theta)
        assert process.log_marginal_likelihood() >= start - 1e-9

    def test_joins_a_kernel_on_vectors(self, kernel):
        X = np.stack(sample(4, 4, 4, channels=1))[:, :, 0]
        combined = kernel + Matern()
        assert combined.requires_vector_input
        np.testing.assert_allclose(combined(X), kernel(X) + Matern()(X))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({2: np.zeros((0, 2))}, "sequence 2: expected at least one step"),
            ({1: np.array([[1.0, np.nan]])}, "sequence 1: expected no missing values, got NaN; fill them in"),
            ({3: np.array([[1.0, -np.inf]])}, "sequence 3: expected finite values"),
            ({4: np.zeros((3, 1))}, "sequence 4: expected 2 channels as in sequence 0, got 1"),
            ({0: np.zeros((3, 2, 2))}, "sequence 0: expected an array of 1 or 2 axes, got 3"),
            ({2: np.array([["a", "b"]])}, "sequence 2: expected numbers"),
        ],
        ids=["empty", "missing", "infinite", "channels", "axes", "words"],
    )
    def test_bad_sequences_are_refused_by_index(self, kernel, X, Y, change, message):
        bad = [change.get(index, x) for index, x in enumerate(X)]
        for call in (lambda: kernel(bad), lambda: kernel.diag(bad), lambda: kernel(bad, eval_gradient=True)):
            with pytest.raises(InputError, match=f"^X: {message}"):
                call()
        with pytest.raises(InputError, match=f"^Y: {message}"):
            kernel(Y, bad)

    @pytest.mark.parametrize("bad", [[], np.zeros((0, 3)), np.zeros(3), np.zeros((2, 3, 1, 1)), "words", 3.0])
    def test_what_is_not_sequences_is_refused(self, kernel, bad):
        with pytest.raises(InputError, match=r"^X: expected"):
            kernel(bad)

    def test_channels_of_both_arguments_must_agree(self, kernel, X):
        with pytest.raises(InputError, match="Y: expected 2 channels as in X, got 3"):
            kernel(X, sample(4, channels=3))

# ruff: noqa: N806 (X and Y are the names of the contract)

import subprocess
import sys

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as vector_kernels

import sostenuto as so
from sostenuto.checks import InputError
from sostenuto.kernels import RBF, as_objects
from tests.laws.kernel_laws import KernelLaws, sample


class TestRBF(KernelLaws):
    kernels = (RBF(), RBF(length_scale=3.0), RBF(0.2, length_scale_bounds=(0.1, 1.0)))


@pytest.mark.parametrize("length_scale", [0.5, 4.0])
def test_is_scikit_learns_on_flattened_sequences(length_scale):
    X, Y = np.stack(sample(6, 6, 6, 6)), np.stack(sample(6, 6, seed=1))
    ours, theirs = RBF(length_scale), vector_kernels.RBF(length_scale)
    flat, other = X.reshape(4, -1), Y.reshape(2, -1)
    np.testing.assert_allclose(ours(X, Y), theirs(flat, other), rtol=1e-12)
    for got, expected in zip(ours(X, eval_gradient=True), theirs(flat, eval_gradient=True), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(ours.theta, theirs.theta)
    np.testing.assert_array_equal(ours.bounds, theirs.bounds)


def test_fits_the_length_scale_that_scikit_learn_finds():
    X = np.random.default_rng(0).normal(size=(30, 5))
    y = np.sin(X.sum(axis=1))
    kernels = (RBF(), vector_kernels.RBF())
    found = [GaussianProcessRegressor(kernel, alpha=1e-2).fit(X, y).kernel_.length_scale for kernel in kernels]
    assert found[0] == pytest.approx(found[1], rel=1e-3)
    assert found[0] != pytest.approx(1.0, rel=1e-2)


def test_a_shorter_sequence_is_followed_by_zeros():
    short, long = np.array([[1.0, 2.0]]), np.array([[1.0, 1.0], [3.0, 0.0], [0.0, 2.0]])
    squared = 0 + 1 + 9 + 0 + 0 + 4
    assert RBF(2.0)([short], [long])[0, 0] == pytest.approx(np.exp(-squared / 8), rel=1e-14)
    assert RBF()([short], [np.array([[1.0, 2.0], [0.0, 0.0]])])[0, 0] == 1.0


def test_close_sequences_far_from_zero_keep_their_distance():
    X = 1e6 + np.array([[0.0, 0.0], [1e-3, 0.0]])
    assert RBF(1e-3)(X)[0, 1] == pytest.approx(np.exp(-0.5), rel=1e-6)


def test_huge_values_stay_finite_with_their_gradient():
    X = np.array([[1e200, -1e200], [-1e308, 1e308], [0.0, 0.0]])
    for result in RBF(1e-5)(X, eval_gradient=True):
        assert np.isfinite(result).all()
    np.testing.assert_array_equal(RBF()(X), np.eye(3))


def test_objects_travel_and_give_their_values_back():
    sequences = sample(3, 2)
    objects = as_objects(sequences)
    assert objects.dtype == object
    assert repr(objects[1]) == "SequenceObject(2, 2)"
    assert np.asarray(objects[1]) is objects[1].values
    np.testing.assert_array_equal(objects[1], sequences[1])
    copied = np.array(objects[1], copy=True)
    copied[:] = 0
    np.testing.assert_array_equal(objects[1], sequences[1])
    with pytest.raises(InputError, match="sequences: sequence 1: expected at least one step"):
        as_objects([np.zeros((2, 1)), np.zeros((0, 1))])


def test_scikit_learn_comes_with_the_first_kernel_only():
    program = (
        "import sys, sostenuto.kernels as k; print('sklearn' in sys.modules); k.RBF; print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_names_are_listed():
    assert {"RBF", "SequenceKernel", "as_objects"} <= set(dir(so.kernels))
    with pytest.raises(AttributeError, match=r"public names are: .*RBF"):
        _ = so.kernels.Fourier

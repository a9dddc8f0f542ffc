"""Landmark features: exact on landmarks, close elsewhere, stable where landmarks repeat, streaming."""

# ruff: noqa: N802, N803, N806 (X and K are the names of the contract)

import numpy as np
import pytest

from sostenuto.checks import InputError
from sostenuto.kernels import RBF
from sostenuto.kernels.nystroem import inverse_root, nystroem
from tests.laws.kernel_laws import sample

KERNEL = RBF(3.0)


@pytest.fixture
def X():
    return sample(*np.random.default_rng(1).integers(2, 7, 60))


@pytest.mark.parametrize("choice", ["random", "greedy"])
def test_they_are_exact_on_landmarks(X, choice):
    found = nystroem(KERNEL, X, 20, choice=choice, seed=3)
    assert len(set(found.indices.tolist())) == 20
    features = found.transform(X)
    on = features[found.indices]
    np.testing.assert_allclose(on @ on.T, KERNEL(found.landmarks), atol=1e-10)
    np.testing.assert_allclose(features @ on.T, KERNEL(X, found.landmarks), atol=1e-10)


def test_all_sequences_as_landmarks_give_the_whole_matrix(X):
    features = nystroem(KERNEL, X, 1000).transform(X)
    assert features.shape == (60, 60)
    np.testing.assert_allclose(features @ features.T, KERNEL(X), atol=1e-10)


def test_they_never_exceed_the_kernel(X):
    """K − ΦΦᵀ is a Schur complement, so positive semi-definite."""
    features = nystroem(KERNEL, X, 10).transform(X)
    assert np.linalg.eigvalsh(KERNEL(X) - features @ features.T).min() > -1e-10


def test_a_greedy_choice_finds_what_is_rare():
    """Of 300 sequences 3 are unlike all others; even draws of 8 miss them most of the time."""
    X = np.concatenate([1e-3 * np.random.default_rng(0).normal(size=(297, 4)), 10 * np.eye(4)[:3]])
    kernel = RBF(1.0)

    def error(choice, seed):
        features = nystroem(kernel, X, 30, choice=choice, seed=seed).transform(X)
        return np.trace(kernel(X) - features @ features.T)

    assert all(error("greedy", seed) < 1e-3 for seed in range(5))
    assert sum(error("random", seed) > 0.5 for seed in range(5)) >= 3


def test_repeated_landmarks_do_no_harm(X):
    found = nystroem(KERNEL, [X[0]] * 30 + [X[1]] * 30, 12, choice="greedy")
    assert found.rank <= 2
    features = found.transform(X)
    assert np.isfinite(features).all()
    assert np.abs(found.whitening).max() < 1e3
    cut, rank = inverse_root(np.ones((5, 5)))
    assert rank == 1
    np.testing.assert_allclose(cut @ np.ones((5, 5)) @ cut, np.full((5, 5), 0.2), atol=1e-12)


def test_chunks_do_not_change_them_and_seeds_repeat(X):
    first = nystroem(KERNEL, X, 10, choice="greedy", seed=7)
    np.testing.assert_allclose(first.transform(X, chunk=7), first.transform(X), rtol=1e-13)
    again = nystroem(KERNEL, X, 10, choice="greedy", seed=7)
    np.testing.assert_array_equal(first.indices, again.indices)
    assert not np.array_equal(first.indices, nystroem(KERNEL, X, 10, choice="greedy", seed=8).indices)


def test_values_of_the_kernel_grow_as_n_times_m(X):
    pairs = []

    class Counting(RBF):
        def gram(self, left, right):
            pairs.append(len(left) * len(right))
            return super().gram(left, right)

    for choice in ("random", "greedy"):
        pairs.clear()
        nystroem(Counting(), X * 20, 10, choice=choice).transform(X * 20)
        assert sum(pairs) <= 1200 * 10 + 10 * 100 + 100


def test_combined_kernels_too(X):
    combined = 2.0 * KERNEL + RBF(0.5)
    found = nystroem(combined, X, 60, choice="greedy")
    np.testing.assert_allclose(found.transform(X) @ found.transform(X).T, combined(X), atol=1e-9)


def test_bad_input_is_refused(X):
    with pytest.raises(InputError, match="expected choice to be one of 'random', 'greedy'"):
        nystroem(KERNEL, X, 4, choice="best")
    with pytest.raises(InputError, match="expected count to be a whole number of at least 1"):
        nystroem(KERNEL, X, 0)
    with pytest.raises(InputError, match="X: expected 2 channels as in the landmarks, got 3"):
        nystroem(KERNEL, X, 4).transform(sample(4, channels=3))

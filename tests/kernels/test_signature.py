# ruff: noqa: N806 (X, Y and K are the names of the contract)

import numpy as np
import pytest

import sostenuto as so
from sostenuto.checks import InputError
from sostenuto.kernels import Signature
from tests.laws.kernel_laws import KernelLaws, sample


class TestSignature(KernelLaws):
    kernels = (
        Signature(level=3, scale=0.2),
        Signature(level=3, normalization="none", normalize=True, method="dynamic", basepoint=True, scale=1e-3),
        Signature(level=2, time_augmentation=False, scale=0.3),
    )


class TestUntruncated(KernelLaws):
    kernels = (Signature(level=None, scale=1e-3, normalize=True, scale_bounds=(1e-4, 1e-1)),)

    @pytest.fixture(autouse=True)
    def _needs_pysiglib(self):
        pytest.importorskip("pysiglib")


@pytest.mark.parametrize("method", ["dynamic", "explicit"])
@pytest.mark.parametrize("normalization", ["factorial", "none"])
@pytest.mark.parametrize("basepoint", [False, True])
def test_is_the_inner_product_of_the_papers_signatures(method, normalization, basepoint):
    X, Y = sample(5, 3, 8, 1), sample(9, 2, seed=1)
    kernel = Signature(4, normalization, scale=0.3, time_scale=0.25, method=method, basepoint=basepoint)
    options = {"normalization": normalization, "basepoint": basepoint, "total_variation": 0.5}
    left, right = (so.theory.signature([0.3 * x for x in side], 4, **options).flat() for side in (X, Y))
    np.testing.assert_allclose(kernel(X, Y), left @ right.T, rtol=1e-12)


@pytest.mark.parametrize("options", [{}, {"normalize": True}, {"time_augmentation": False}, {"normalization": "none"}])
def test_both_methods_agree_with_their_gradients(options):
    X = sample(5, 3, 8, 1)
    both = [
        Signature(3, scale=0.5, method=method, **options)(X, eval_gradient=True) for method in ("dynamic", "explicit")
    ]
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_a_high_level_is_the_untruncated_kernel():
    pytest.importorskip("pysiglib")
    X = sample(5, 3, 8)
    np.testing.assert_allclose(
        Signature(20, "none", scale=0.1, method="dynamic")(X), Signature(None, scale=0.1)(X), rtol=1e-12
    )


def test_speed_is_seen_through_time_only():
    X = sample(6)
    slow = [np.concatenate([X[0][:3], X[0][2:3], X[0][2:]])]
    still = Signature(3, time_augmentation=False)
    np.testing.assert_allclose(still(X, slow), still(X), rtol=1e-12)
    assert abs(Signature(3, time_scale=1.0)(X, slow) - Signature(3, time_scale=1.0)(X))[0, 0] > 1e-3


def test_many_channels_go_without_tensors():
    X = sample(6, 4, channels=50)
    kernel = Signature(5, scale=0.02)
    assert kernel.method_for(50) == "dynamic"
    assert kernel.method_for(1) == "explicit"
    assert Signature(None).method_for(1) == "goursat"
    assert np.isfinite(kernel(X)).all()


def test_the_choice_of_method_depends_on_channels_and_level_alone():
    assert [Signature(10).method_for(1), Signature(11).method_for(1)] == ["explicit", "dynamic"]
    assert Signature(11, time_augmentation=False).method_for(1) == "explicit"


def test_theta_has_time_where_time_is_a_channel():
    assert [h.name for h in Signature(2).hyperparameters] == ["scale", "time_scale"]
    assert [h.name for h in Signature(2, time_augmentation=False).hyperparameters] == ["scale"]


def test_the_tail_is_below_its_bound():
    """Paths of total variation below 1: what level N leaves out is at most q^(N+1)/(1 − q)."""
    X = sample(6, 5, 9)
    found = so.theory.scale_paths(X, 0.5)
    high, low = (Signature(level, scale=found.scale, method="dynamic")(X) for level in (24, 3))
    q = 0.75**2
    assert (np.abs(high - low) <= q**4 / (1 - q)).all()
    assert np.abs(high - low).max() > 1e-5
    assert (np.diag(high) <= 16.0).all()


@pytest.mark.parametrize("method", ["dynamic", "explicit"])
def test_an_overflow_is_refused(method):
    X = [1e60 * x for x in sample(5, 3)]
    kernel = Signature(3, method=method)
    for call in (lambda: kernel(X), lambda: kernel.diag(X), lambda: kernel(X, eval_gradient=True)):
        with pytest.raises(InputError, match=r"got an overflow at level 3 .* give a smaller scale or a lower level"):
            call()


def test_a_loss_of_all_digits_is_refused():
    there_and_back = [np.array([[0.0], [1e6], [0.0], [-1e6], [0.0]])]
    with pytest.raises(InputError, match=r"expected K\(x, x\) of at least 1, got .* give a smaller scale"):
        Signature(4, method="dynamic", time_augmentation=False, scale=1 / 3).diag(there_and_back)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 0}, "expected level to be a whole number of at least 1"),
        ({"normalization": "k"}, "expected normalization to be one of 'factorial', 'none', None"),
        ({"method": "fast"}, "expected method to be one of"),
        (
            {"level": None, "normalization": "factorial"},
            "expected a level with normalization='factorial', got level=None",
        ),
        ({"level": None, "method": "dynamic"}, "expected method='auto' with level=None"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(InputError, match=message):
        Signature(**options)


def test_runs_on_the_gram_engine():
    X = sample(*range(2, 12))
    kernel = Signature(3, scale=0.3)
    np.testing.assert_allclose(np.asarray(so.kernels.gram(kernel, X, progress=False)), kernel(X), rtol=1e-12)

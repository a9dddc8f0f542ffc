"""The base class alone: a kernel with a parameter of several numbers, and one fixed beside a free one."""

# ruff: noqa: N806 (X and K are the names of the contract)

from typing import Any

import numpy as np
import pytest

from sostenuto.checks import InputError
from sostenuto.kernels import SequenceKernel
from tests.laws.kernel_laws import KernelLaws, sample


class MeanPolynomial(SequenceKernel):
    """k(x, y) = offset + Σ_p weights_p · ⟨mean x, mean y⟩^p, bounded by a squashing of the means."""

    parameters = ("weights", "offset")

    def __init__(self, weights: Any = 1.0, offset=0.5, weights_bounds=(1e-3, 1e3), offset_bounds=(1e-3, 1e3), tag="a"):
        self.weights, self.offset, self.tag = weights, offset, tag
        self.weights_bounds, self.offset_bounds = weights_bounds, offset_bounds
        self.check_parameters()

    def _powers(self, left, right):
        means = [np.stack([np.tanh(x).mean(axis=0) for x in side]) for side in (left, right)]
        inner = np.einsum("ic,jc->ij", *means)
        return np.stack([inner**p for p in range(1, 1 + np.size(self.weights))], axis=2)

    def gram(self, left, right):
        return self.offset + self._powers(left, right) @ np.ravel(self.weights)

    def gradients(self, sequences, names):
        powers = self._powers(sequences, sequences)
        found = {"weights": powers * np.ravel(self.weights), "offset": np.full(powers.shape[:2], float(self.offset))}
        return self.gram(sequences, sequences), {name: found[name] for name in names}

    def diagonal(self, sequences):
        return np.diag(self.gram(sequences, sequences)).copy()


class TestManyParameters(KernelLaws):
    kernels = (
        MeanPolynomial(),
        MeanPolynomial(weights=(1.0, 0.5, 2.0)),
        MeanPolynomial(weights=np.array([0.1, 0.2]), offset_bounds="fixed"),
        MeanPolynomial(weights=(1.0, 2.0), weights_bounds="fixed"),
    )


def test_theta_follows_the_order_of_the_parameters():
    kernel = MeanPolynomial(weights=(1.0, 2.0), offset=3.0)
    np.testing.assert_allclose(np.exp(kernel.theta), [1.0, 2.0, 3.0])
    kernel.theta = np.log([4.0, 5.0, 6.0])
    np.testing.assert_allclose(kernel.weights, [4.0, 5.0])
    assert kernel.offset == pytest.approx(6.0)
    assert repr(kernel) == "MeanPolynomial(weights=[4, 5], offset=6, tag='a')"


def test_one_of_several_bad_numbers_is_refused():
    with pytest.raises(InputError, match=r"expected weights to be a finite number above 0, got -2\.0"):
        MeanPolynomial(weights=(1.0, -2.0))


@pytest.mark.parametrize("bounds", [("a", "b"), (1.0, 2.0, 3.0), (float("nan"), 1.0), None, (1.0, float("inf"))])
def test_odd_bounds_are_refused(bounds):
    with pytest.raises(InputError, match="expected offset_bounds to be 'fixed' or"):
        MeanPolynomial(offset_bounds=bounds)


def test_only_free_parameters_are_differentiated():
    asked = []

    class Watching(MeanPolynomial):
        def gradients(self, sequences, names):
            asked.append(names)
            return super().gradients(sequences, names)

    X = sample(3, 4)
    Watching(weights=(1.0, 2.0), weights_bounds="fixed")(X, eval_gradient=True)
    Watching(offset_bounds="fixed")(X, eval_gradient=True)
    assert asked == [["offset"], ["weights"]]

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.constraints import SpectralNorm
from tests.laws.constraint_laws import ConstraintLaws


class TestSpectralNorm(ConstraintLaws):
    cases = {"within": SpectralNorm(100.0), "beyond": SpectralNorm(0.3)}


class TestRectangularSpectralNorm(TestSpectralNorm):
    shape = (3, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bound_is_never_exceeded(dtype):
    constraint = SpectralNorm(0.7)
    for number in range(500):
        size = 1 + number % 40
        free = 10.0 ** (number % 7 - 3) * torch.randn(size, 1 + number % 13, dtype=dtype)
        assert torch.linalg.matrix_norm(constraint(free).double(), 2) <= 0.7


def test_a_matrix_within_the_bound_is_left_alone():
    free = 0.01 * torch.randn(4, 4)
    assert torch.equal(SpectralNorm(1.0)(free), free)


def test_equal_singular_values_have_a_finite_gradient():
    free = (3 * torch.eye(4)).requires_grad_()
    (gradient,) = torch.autograd.grad(SpectralNorm(1.0)(free).sum(), free)
    assert torch.isfinite(gradient).all()


def test_refuses_what_it_cannot_reach():
    with pytest.raises(InputError, match=r"at most 1\.0"):
        SpectralNorm(1.0).right_inverse(2 * torch.eye(3))

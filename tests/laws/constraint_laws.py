"""What every constraint must do. A test inherits `ConstraintLaws` and lists some: each law runs over all of them."""

import copy

import pytest
import torch
from torch.nn.utils import parametrize

N = 5


class ConstraintLaws:
    """Set ``cases`` (constraints by name) and, for weights that are not square matrices, ``shape``."""

    cases: dict
    shape = (N, N)

    def free(self, constraint, dtype=torch.float64):
        return torch.randn(self.shape, dtype=dtype)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_round_trip(self, constraint, dtype):
        for _ in range(5):
            weight = constraint(self.free(constraint, dtype))
            assert weight.dtype == dtype
            again = constraint(constraint.right_inverse(weight))
            tolerance = 2e-5 if dtype == torch.float32 else 1e-9
            torch.testing.assert_close(again, weight, rtol=tolerance, atol=tolerance)

    def test_gradients(self, constraint):
        free = self.free(constraint).requires_grad_()
        assert torch.autograd.gradcheck(constraint, (free,))

    def test_gradients_at_zero(self, constraint):
        free = torch.zeros_like(self.free(constraint), requires_grad=True)
        (gradient,) = torch.autograd.grad((constraint(free) * self.free(constraint)).sum(), free)
        assert torch.isfinite(gradient).all()

    def test_second_derivatives(self, constraint):
        free = self.free(constraint).requires_grad_()
        assert torch.autograd.gradgradcheck(constraint, (free,), atol=1e-4)

    def test_as_a_parametrization(self, constraint):
        def module():
            made = torch.nn.Module()
            made.weight = torch.nn.Parameter(constraint(self.free(constraint)).detach())
            return made

        one, other = module(), module()
        before = one.weight.detach().clone()
        for each in (one, other):
            parametrize.register_parametrization(each, "weight", copy.deepcopy(constraint))
        torch.testing.assert_close(one.weight, before, rtol=1e-9, atol=1e-9)
        assert list(one.state_dict()) == ["parametrizations.weight.original"]
        other.load_state_dict(one.state_dict())
        torch.testing.assert_close(other.weight, one.weight, rtol=0, atol=0)

    def test_repr(self, constraint):
        assert "=" in repr(constraint)

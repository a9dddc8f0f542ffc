import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.constraints import SymmetricSkew
from tests.laws.constraint_laws import ConstraintLaws


class TestSymmetricSkew(ConstraintLaws):
    cases = {f"{beta},{gamma}": SymmetricSkew(beta, gamma) for beta in (0.0, 0.5, 0.75, 1.0) for gamma in (0.0, 0.1)}


def test_is_the_papers_sum():
    m = torch.randn(6, 6, dtype=torch.float64)
    expected = 0.3 * (m + m.T) + 0.7 * (m - m.T) - 0.2 * torch.eye(6)
    torch.testing.assert_close(SymmetricSkew(0.7, 0.2)(m), expected)


def test_eigenvalue_bounds_hold_and_the_printed_ones_fail():
    generator, printed_fails = torch.Generator().manual_seed(1), 0
    for number in range(2000):
        size = 1 + number % 12
        beta, gamma = 0.5 + 0.5 * float(torch.rand((), generator=generator)), 0.3
        m = torch.randn(size, size, generator=generator, dtype=torch.float64)
        constraint = SymmetricSkew(beta, gamma)
        real = torch.linalg.eigvals(constraint(m)).real
        low, high = constraint.eigenvalue_bounds(m)
        assert low - 1e-9 <= real.min()
        assert real.max() <= high + 1e-9
        # Eq. (10) as printed bounds Re λ − γ by the same numbers.
        printed_fails += bool(real.min() - gamma < low - 1e-9)
    assert printed_fails > 200


def test_full_skew_has_the_real_parts_minus_gamma():
    a = SymmetricSkew(1.0, 0.2)(torch.randn(7, 7, dtype=torch.float64))
    torch.testing.assert_close(a + a.T, -0.4 * torch.eye(7, dtype=torch.float64))
    torch.testing.assert_close(torch.linalg.eigvals(a).real, torch.full((7,), -0.2, dtype=torch.float64))


@pytest.mark.parametrize(("beta", "message"), [(1.0, "skew matrix less"), (0.0, "symmetric matrix")])
def test_refuses_what_it_cannot_reach(beta, message):
    with pytest.raises(InputError, match=message):
        SymmetricSkew(beta, 0.1).right_inverse(torch.randn(3, 3))


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="beta"):
        SymmetricSkew(1.2)
    with pytest.raises(InputError, match="gamma"):
        SymmetricSkew(0.7, -0.1)

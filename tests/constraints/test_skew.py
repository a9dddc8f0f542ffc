import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.constraints import Skew, SymmetricSkew
from tests.laws.constraint_laws import ConstraintLaws


class TestSkew(ConstraintLaws):
    cases = {"0": Skew(), "0.1": Skew(0.1)}


def test_is_the_end_of_the_symmetric_skew_family():
    m = torch.randn(4, 4, dtype=torch.float64)
    torch.testing.assert_close(Skew(0.3)(m), SymmetricSkew(1.0, 0.3)(m))


def test_refuses_what_it_cannot_reach():
    with pytest.raises(InputError, match=r"skew matrix less 0\.1"):
        Skew(0.1).right_inverse(torch.eye(3))

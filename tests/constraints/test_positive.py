import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sostenuto.checks import InputError
from sostenuto.constraints import Positive
from tests.laws.constraint_laws import ConstraintLaws


class TestPositive(ConstraintLaws):
    cases = {"softplus": Positive(), "exp": Positive("exp")}
    shape = (5,)


@given(st.floats(-1e30, 1e30), st.sampled_from(["softplus", "exp"]), st.sampled_from([torch.float32, torch.float64]))
def test_every_free_value_gives_a_finite_positive_weight(free, name, dtype):
    weight = Positive(name)(torch.tensor([free], dtype=dtype))
    assert weight > 0
    assert torch.isfinite(weight)


def test_refuses_what_it_cannot_reach():
    with pytest.raises(InputError, match="above 0"):
        Positive().right_inverse(torch.tensor([0.0]))
    with pytest.raises(InputError, match="map"):
        Positive("square")

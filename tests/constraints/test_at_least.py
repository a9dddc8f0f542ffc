import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sostenuto.checks import InputError
from sostenuto.constraints.at_least import AtLeast


@given(st.floats(-10, 10), st.floats(1e-6, 50))
def test_right_inverse(floor, above):
    bounded, weight = AtLeast(floor), torch.tensor([floor + above], dtype=torch.float64)
    torch.testing.assert_close(bounded(bounded.right_inverse(weight)), weight, rtol=1e-8, atol=1e-8)


@given(st.floats(-1e4, 1e4))
def test_every_free_value_is_allowed(free):
    assert AtLeast(-2.0)(torch.tensor([free])).item() >= -2.0


def test_refuses_what_it_cannot_reach():
    with pytest.raises(InputError, match=r"above -1\.0"):
        AtLeast(-1.0).right_inverse(torch.tensor([-3.0]))

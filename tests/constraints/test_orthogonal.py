import math

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.constraints import Orthogonal
from sostenuto.constraints.orthogonal import rotation_blocks
from tests.laws.constraint_laws import ConstraintLaws


class TestOrthogonal(ConstraintLaws):
    cases = {"exp": Orthogonal("exp"), "cayley": Orthogonal("cayley")}


class TestEvenOrthogonal(TestOrthogonal):
    shape = (4, 4)


@pytest.mark.parametrize("name", ["exp", "cayley"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_is_a_rotation(name, dtype, tolerance):
    for scale in (0.1, 1.0, 10.0):
        weight = Orthogonal(name)(scale * torch.randn(6, 6, dtype=dtype))
        torch.testing.assert_close(weight @ weight.T, torch.eye(6, dtype=dtype), rtol=0, atol=tolerance)
        assert torch.linalg.det(weight) > 0


@pytest.mark.parametrize(
    "angles", [(0.0, 0.0), (math.pi, math.pi), (math.pi, 0.5), (0.5, 0.5), (3.0, -3.0), (1e-9, 2.0)]
)
def test_half_turns_and_repeated_angles_come_back(angles):
    basis = Orthogonal("exp")(torch.randn(5, 5, dtype=torch.float64))
    free = rotation_blocks(torch.tensor(angles, dtype=torch.float64), 5)
    weight = basis @ Orthogonal("exp")(free) @ basis.T
    constraint = Orthogonal("exp")
    torch.testing.assert_close(constraint(constraint.right_inverse(weight)), weight, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["exp", "cayley"])
def test_blocks_turn_by_their_angles(name):
    angles = torch.tensor([0.3, 1.2], dtype=torch.float64)
    found = torch.linalg.eigvals(Orthogonal(name)(rotation_blocks(angles, 5, name))).angle().abs().sort().values
    expected = torch.tensor([0.0, 0.3, 0.3, 1.2, 1.2], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_refuses_what_it_cannot_reach():
    with pytest.raises(InputError, match="orthogonal matrix"):
        Orthogonal().right_inverse(2 * torch.eye(3))
    with pytest.raises(InputError, match="reflection"):
        Orthogonal("exp").right_inverse(torch.diag(torch.tensor([-1.0, 1.0, 1.0])))
    with pytest.raises(InputError, match="eigenvalue −1"):
        Orthogonal("cayley").right_inverse(torch.diag(torch.tensor([-1.0, -1.0, 1.0])))


@pytest.mark.parametrize("size", [8, 130])
@pytest.mark.parametrize("name", ["exp", "cayley"])
def test_float32_is_float64_rounded(name, size):
    free = torch.randn(size, size)
    constraint = Orthogonal(name)
    missed = (constraint(free).double() - constraint(free.double())).abs().max()
    assert missed <= torch.finfo(torch.float32).eps / 2
    assert constraint(free.bfloat16()).dtype == torch.bfloat16

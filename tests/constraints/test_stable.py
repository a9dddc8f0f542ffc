import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.constraints import Stable
from sostenuto.constraints.stable import FORMS, REPARAMETRIZATIONS
from tests.laws.constraint_laws import ConstraintLaws

CONSTRAINED = [name for name in REPARAMETRIZATIONS if name != "direct"]


class TestStableMatrix(ConstraintLaws):
    cases = {
        f"{form},{name}": Stable(form, name) for form in ("symmetric", "dissipative") for name in REPARAMETRIZATIONS
    }


class TestStableVector(ConstraintLaws):
    cases = {name: Stable("diagonal", name) for name in REPARAMETRIZATIONS}
    shape = (5,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize("form", FORMS)
def test_hurwitz_for_every_parameter(form, name, dtype):
    constraint = Stable(form, name)
    for size in range(1, 11):
        for scale in (1e-2, 1.0, 10.0, 100.0, 1000.0):
            shape = (40, size) if form == "diagonal" else (40, size, size)
            weight = constraint(scale * torch.randn(shape, dtype=dtype)).double()
            matrix = torch.diag_embed(weight) if form == "diagonal" else weight
            assert torch.linalg.eigvalsh(matrix + matrix.mT).max() <= -2e-3 * (1 - 1e-6)
            assert torch.linalg.eigvals(matrix).real.max() <= -1e-3 * (1 - 1e-6)


def test_the_printed_form_is_not_always_hurwitz():
    """Errata wang2024.4: −e^M of a rotation's generator turns eigenvalues over the imaginary axis; these do not."""
    generator = torch.tensor([[0.0, 2.0], [-2.0, 0.0]], dtype=torch.float64)
    assert torch.linalg.eigvals(-torch.linalg.matrix_exp(generator)).real.max() > 0.4
    for form in ("symmetric", "dissipative"):
        assert torch.linalg.eigvals(Stable(form, "exp")(generator)).real.max() < 0


def test_direct_is_not_constrained_and_says_so():
    constraint = Stable("symmetric", "direct")
    assert not constraint.is_constrained
    assert torch.linalg.eigvals(constraint(torch.eye(3))).real.max() == 1


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize("form", ["symmetric", "dissipative"])
def test_derivatives_where_eigenvalues_meet(form, name):
    for free in (torch.zeros(4, 4), torch.eye(4), torch.diag(torch.tensor([1.0, 1.0, 2.0, 1.0 + 1e-9]))):
        start = free.double().requires_grad_()
        assert torch.autograd.gradcheck(Stable(form, name), (start,))
        assert torch.autograd.gradgradcheck(Stable(form, name), (start,), atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_forward_mode_and_vmap():
    constraint = Stable("dissipative", "softplus")
    many = torch.randn(3, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(torch.vmap(constraint)(many), torch.stack([constraint(one) for one in many]))
    tangent = torch.randn(4, 4, dtype=torch.float64)
    _, forward = torch.func.jvp(constraint, (many[0],), (tangent,))
    small = 1e-6 * tangent
    measured = (constraint(many[0] + small) - constraint(many[0] - small)) / 2e-6
    torch.testing.assert_close(forward, measured, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("form", "name", "weight", "message"),
    [
        ("diagonal", "softplus", -torch.tensor([1e-4, 1.0]), "above the floor"),
        ("diagonal", "exp", -torch.tensor([200.0]), "at most 148"),
        ("symmetric", "inverse", -2 * torch.eye(2), "at most 1.001"),
        ("symmetric", "softplus", torch.tensor([[-1.0, 0.5], [0.0, -1.0]]), "symmetric"),
    ],
)
def test_refuses_what_it_cannot_reach(form, name, weight, message):
    with pytest.raises(InputError, match=message):
        Stable(form, name).right_inverse(weight)

# ruff: noqa: ARG005, N803, N806 (X is the name of the contract, f(h, x) that of a step)

import numpy as np
import pytest
import torch
from torch import nn

from sostenuto.audits import fixed_points
from sostenuto.checks import InputError
from tests.laws.audit_laws import AuditLaws
from tests.laws.recurrent import with_recurrence


class TestFixedPoints(AuditLaws):
    def ask(self, model, X, y, **options):
        with with_recurrence(model):
            return fixed_points(model, X, tries=8, **options)


def test_a_flip_flop_has_its_nine_points():
    """Two units that each have three points of rest: nine together, four of them attracting."""
    found = fixed_points(lambda h, x: torch.tanh(2 * h), start=[0.1, -0.1], steps=10, tries=200)
    root = 0.95750402407
    want = {(a, b) for a in (-root, 0.0, root) for b in (-root, 0.0, root)}
    assert {tuple(round(value, 6) + 0.0 for value in point.state) for point in found.points} == {
        tuple(round(value, 6) for value in state) for state in want
    }
    assert found.stable == 4
    assert all(point.residual < 1e-9 for point in found.points)
    assert found.converged == sum(point.starts for point in found.points)
    center = next(point for point in found.points if max(map(abs, point.state)) < 1e-6)
    assert center.eigenvalues_real == pytest.approx((2, 2))


def test_data_that_leave_the_state_at_zero_hide_no_point():
    found = fixed_points(lambda h, x: torch.tanh(2 * h + x), np.zeros((3, 20, 1)), start=[0.0])
    assert sorted(round(point.state[0], 6) + 0.0 for point in found.points) == [-0.957504, 0.0, 0.957504]


def test_a_linear_unit_rests_where_algebra_says():
    torch.manual_seed(0)
    layer = nn.RNN(2, 3, bias=True, dtype=torch.float64)
    x = torch.tensor([0.3, -0.2]).double()
    found = fixed_points(layer, torch.randn(2, 30, 2), input=x)
    assert len(found.points) == 1
    h = torch.tensor(found.points[0].state).double()
    moved = torch.tanh(layer.weight_hh_l0 @ h + layer.weight_ih_l0 @ x + layer.bias_hh_l0 + layer.bias_ih_l0)
    assert torch.allclose(moved, h, atol=1e-9)
    jacobian = torch.diag(1 - h**2) @ layer.weight_hh_l0
    assert found.points[0].radius == pytest.approx(torch.linalg.eigvals(jacobian).abs().max().item(), rel=1e-9)


@pytest.mark.parametrize("unit", [nn.LSTM, nn.GRU])
def test_long_runs_under_a_constant_input_end_at_a_point_found(unit):
    torch.manual_seed(1)
    layer, X = unit(1, 4, dtype=torch.float64), torch.randn(3, 20, 1).double()
    found = fixed_points(layer, X, tries=16)
    constant = X.mean().reshape(1, 1, 1).expand(4000, 1, 1)
    with torch.no_grad():
        _, end = layer(constant)
    state = torch.cat([part.flatten() for part in (end if isinstance(end, tuple) else (end,))])
    gaps = [float((torch.tensor(point.state).double() - state).norm()) for point in found.points if point.is_stable]
    assert min(gaps) < 1e-6


def test_none_is_found_where_there_is_none():
    found = fixed_points(lambda h, x: h + 1, start=[0.0], steps=5, tries=5)
    assert found.points == ()
    assert "no point of rest was found from 5 starts" in found.summary()


def test_a_wrong_input_is_refused():
    with pytest.raises(InputError, match=r"expected an input of shape \(1,\), got \(2,\)"):
        fixed_points(nn.GRU(1, 2), np.zeros((1, 5, 1)), input=[1.0, 2.0])

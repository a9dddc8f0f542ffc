import pytest
import torch
from torch import nn

from sostenuto.audits import linearized_gru
from sostenuto.checks import InputError
from sostenuto.nn import GRU


def resting_cell(seed, x, size=3):
    """A random cell whose candidate is 0 at h = 0 under ``x``: its input bias is chosen so."""
    torch.manual_seed(seed)
    cell = nn.GRUCell(2, size).double()
    with torch.no_grad():
        cell.weight_hh.mul_(3)
        gates = cell.weight_ih @ x + cell.bias_ih + cell.bias_hh
        reset = torch.sigmoid(gates[:size])
        cell.bias_ih[2 * size :] = -(cell.weight_ih @ x)[2 * size :] - reset * cell.bias_hh[2 * size :]
    return cell


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_jacobian_of_torchs_step_less_the_identity(seed):
    x = torch.tensor([0.7, -1.2], dtype=torch.float64)
    cell = resting_cell(seed, x)
    found = linearized_gru(cell, x)
    zero = torch.zeros(3, dtype=torch.float64)
    assert cell(x, zero).abs().max().item() < 1e-14
    jacobian = torch.autograd.functional.jacobian(lambda h: cell(x, h), zero)
    matrix = torch.tensor(found.matrix, dtype=torch.float64)
    torch.testing.assert_close(matrix, jacobian - torch.eye(3, dtype=torch.float64), rtol=1e-12, atol=1e-14)
    assert found.abscissa == pytest.approx(float(torch.linalg.eigvals(matrix).real.max()))
    assert found.radius == pytest.approx(float(torch.linalg.eigvals(jacobian).abs().max()))


def test_a_stable_rest_draws_states_in_and_an_unstable_one_repels_them():
    for scale, stable in ((1.0, True), (6.0, False)):
        cell = nn.GRUCell(1, 2, bias=False).double()
        with torch.no_grad():
            cell.weight_hh.copy_(torch.cat([torch.zeros(4, 2), scale * torch.eye(2)]))
        found = linearized_gru(cell)
        assert (found.abscissa < 0) == stable
        assert ("not stable" in found.summary()) != stable
        h = torch.full((1, 2), 1e-6, dtype=torch.float64)
        for _ in range(50):
            h = cell(torch.zeros(1, 1, dtype=torch.float64), h)
        assert (h.abs().max().item() < 1e-6) == stable


def test_a_candidate_that_is_not_zero_is_said():
    torch.manual_seed(0)
    found = linearized_gru(GRU(2, 3, num_layers=2), layer=1)
    assert found.reason.startswith("not applicable: a candidate of 0 at h = 0 fails (")
    assert found.reason in found.summary()
    assert found.matrix == ()
    assert found.candidate > 0


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="expected a layer below 1, got 1"):
        linearized_gru(nn.GRU(2, 3), layer=1)
    with pytest.raises(InputError, match=r"expected an input of 2 channels, got shape \(3,\)"):
        linearized_gru(nn.GRU(2, 3), torch.zeros(3))

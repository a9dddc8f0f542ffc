import pytest
import torch
from torch import nn

from sostenuto.audits import linearized_lstm
from sostenuto.checks import InputError
from sostenuto.nn import LSTM


def resting_cell(seed, x, size=3):
    """A random cell whose candidate is 0 at h = 0 under ``x``: its input bias is chosen so."""
    torch.manual_seed(seed)
    cell = nn.LSTMCell(2, size).double()
    with torch.no_grad():
        cell.weight_hh.mul_(3)
        part = slice(2 * size, 3 * size)
        cell.bias_ih[part] = -(cell.weight_ih @ x)[part] - cell.bias_hh[part]
    return cell


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_jacobian_of_torchs_step_less_the_identity(seed):
    x = torch.tensor([0.7, -1.2], dtype=torch.float64)
    cell = resting_cell(seed, x)
    found = linearized_lstm(cell, x)
    zero = torch.zeros(6, dtype=torch.float64)

    def step(state):
        return torch.cat(cell(x, (state[:3], state[3:])))

    assert step(zero).abs().max().item() < 1e-14
    jacobian = torch.autograd.functional.jacobian(step, zero)
    matrix = torch.tensor(found.matrix, dtype=torch.float64)
    torch.testing.assert_close(matrix, jacobian - torch.eye(6, dtype=torch.float64), rtol=1e-12, atol=1e-14)
    assert found.radius == pytest.approx(float(torch.linalg.eigvals(jacobian).abs().max()))


def test_a_stable_rest_draws_states_in_and_an_unstable_one_repels_them():
    for scale, stable in ((1.0, True), (8.0, False)):
        cell = nn.LSTMCell(1, 1, bias=False).double()
        with torch.no_grad():
            cell.weight_hh.copy_(torch.tensor([[0.0], [0.0], [scale], [0.0]]))
        found = linearized_lstm(cell)
        assert (found.radius < 1) == stable
        assert ("not stable" in found.summary()) != stable
        state = tuple(torch.full((1, 1), 1e-6, dtype=torch.float64) for _ in range(2))
        for _ in range(50):
            state = cell(torch.zeros(1, 1, dtype=torch.float64), state)
        assert (state[1].abs().item() < 1e-6) == stable


def test_what_cannot_be_linearized_is_said():
    torch.manual_seed(0)
    found = linearized_lstm(LSTM(2, 3, num_layers=2), layer=1)
    assert found.reason.startswith("not applicable: a candidate of 0 at h = 0 fails (")
    assert found.matrix == ()
    with pytest.raises(InputError, match="expected a layer below 1, got 1"):
        linearized_lstm(nn.LSTM(2, 3), layer=1)

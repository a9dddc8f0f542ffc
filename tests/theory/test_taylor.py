import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from sostenuto.benchmarks._random_models import random_path
from sostenuto.nn import ResidualGRU, ResidualLSTM
from sostenuto.theory.ode import ORDERS, discretize, solve
from sostenuto.theory.signature import signature
from sostenuto.theory.taylor import coefficients, taylor
from sostenuto.theory.tensor_field import rnn_field, tensor_field
from tests.theory.test_star_product import random_field


def fields():
    gated = [tensor_field(layer(2, 3)) for layer in (ResidualGRU, ResidualLSTM)]
    return [random_field(3, 2, name, seed=2) for name in ("tanh", "logistic", "identity")] + gated


def paths(count=3, steps=10, channels=2, length=0.5):
    return random_path(length, (count, steps, channels), torch.Generator().manual_seed(3))


def spiral(steps=100):
    time = torch.linspace(0, 4 * math.pi, steps, dtype=torch.float64)
    points = torch.stack([time.cos(), time.sin()], dim=-1) / (1 + 0.5 * time[:, None])
    return 0.5 * points / torch.cat([points[:1], points.diff(dim=0)]).norm(dim=1).sum()


@pytest.mark.parametrize("index", range(5))
def test_reference_solution_is_scipys(index):
    field, path = fields()[index], paths(1)[0]
    found, state, before = solve(field, path), np.zeros(field.state_size), torch.zeros(2, dtype=torch.float64)
    for j, point in enumerate(path):

        def rate(t, y, before=before, point=point):
            x = before + t * (point - before)
            return field.rate(torch.as_tensor(y), x).detach().numpy() / len(path)

        state = solve_ivp(rate, (0, 1), state, method="DOP853", rtol=1e-13, atol=1e-15).y[:, -1]
        before = point
        assert np.abs(state[: field.hidden_size] - found[j].numpy()).max() < 1e-12


def test_stiff_segments_are_halved():
    field = rnn_field(torch.full((1, 1), -400.0), torch.zeros(1, 1), torch.full((1,), 400.0), "identity")
    assert solve(field, torch.zeros(1, 1)).item() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("index", range(5))
def test_expansion_converges_to_the_solution(index):
    """The error falls exponentially in N: at least by 3 from one order to the next in the mean."""
    field, path = fields()[index], paths()
    if index < 3:
        field = rnn_field(field.recurrent / 3, field.input_map / 3, field.bias, field.activation.name)
    exact = solve(field, path)
    with torch.no_grad():
        errors = [float((taylor(field, path, n, prefixes=True) - exact).abs().max()) for n in range(1, 7)]
    slope = np.polyfit(range(1, 7), np.log(errors), 1)[0]
    assert slope < -math.log(3)
    assert errors[-1] < errors[0] * 3**-4


def test_error_grows_with_the_weights():
    """Figure 1b of fermanian2021: spirals, 2 units."""
    path, errors = spiral(), []
    base = random_field(2, 2, "tanh", seed=5)
    for size in (0.1, 0.3, 1.0):
        field = rnn_field(size * base.recurrent, size * base.input_map, base.bias)
        errors.append(float((taylor(field, path, 4) - solve(field, path)[-1]).norm()))
    assert errors[0] < errors[1] / 10 < errors[2] / 100


def test_linear_network_on_a_spiral_to_rounding():
    field = random_field(2, 2, "identity", seed=4)
    field = rnn_field(field.recurrent / 4, field.input_map, field.bias, "identity")
    assert (taylor(field, spiral(), 8) - solve(field, spiral())[-1]).abs().max() < 1e-8


@pytest.mark.parametrize("method", [name for name in ORDERS if name != "residual"])
def test_step_methods_have_their_order(method):
    field = random_field(3, 2, "tanh", seed=1)
    fine = torch.linspace(0, 1, 33, dtype=torch.float64)[1:, None] * torch.tensor([[0.3, -0.2]])
    errors = []
    for stride in (4, 2, 1):
        path = fine[stride - 1 :: stride]
        errors.append(float((discretize(field, path, method=method) - solve(field, path))[-1].norm()))
    found = math.log2(errors[0] / errors[2]) / 2
    assert abs(found - ORDERS[method]) < 0.35


def test_residual_steps_are_the_layers():
    layer = ResidualLSTM(2, 3, batch_first=True).double()
    path = paths()
    with torch.no_grad():
        assert torch.allclose(discretize(layer, path), layer(path)[0], rtol=0, atol=1e-14)


def test_prefixes_are_the_expansions_of_stopped_paths():
    field, path = fields()[0], paths(1)[0]
    with torch.no_grad():
        whole = taylor(field, path, 4, prefixes=True)
        # Stopped at j/T: the first j points keep their times when the duration is j/T.
        for j in (1, 4, 10):
            shorter = rnn_field(
                field.recurrent, field.input_map, field.bias, total_variation=0.5, duration=j / len(path)
            )
            assert torch.allclose(taylor(shorter, path[:j], 4), whole[j - 1], rtol=1e-12, atol=1e-15)


def test_ragged_and_single_paths():
    field, both = fields()[1], paths(2)
    ragged = [both[0], both[1, :6]]
    found = taylor(field, ragged, 3)
    assert torch.allclose(found[0], taylor(field, both[0], 3))
    assert torch.allclose(found[1], taylor(field, both[1, :6], 3))


def test_coefficients_read_the_signature():
    """Theorem 1: the output is ⟨α, S(X̄)⟩ in the paper's normalization."""
    field, path, readout = fields()[0], paths(1)[0], torch.randn(2, 3)
    levels = signature(path, 4, basepoint=True, total_variation=0.5)
    value = sum(
        (alpha.flatten(1) @ levels[k].flatten()) for k, alpha in enumerate(coefficients(field, 4, readout=readout), 1)
    )
    assert torch.allclose(value, readout.double() @ taylor(field, path, 4), rtol=1e-12, atol=1e-14)

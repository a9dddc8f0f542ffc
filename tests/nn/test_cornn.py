import pytest
import torch

from sostenuto.nn import CoRNN
from tests.laws.layer_laws import LayerLaws
from tests.nn.plain import assert_same, count

F64 = torch.float64
SETTINGS = {"step_size": 0.2, "gamma": 2.7, "epsilon": 4.7}


class TestCoRNN(LayerLaws):
    cls = CoRNN
    options = SETTINGS
    refused = ({"step_size": 0.0}, {"gamma": -1.0}, {"epsilon": -1.0}, {"damping": "x"})


class TestExplicitCoRNN(LayerLaws):
    cls = CoRNN
    options = {**SETTINGS, "damping": "explicit"}


@pytest.mark.parametrize("damping", ["implicit", "explicit"])
def test_equals_a_plain_loop(damping):
    """Rusch and Mishra 2021, eq. (3): the damping acts on the new z, or on the old one."""
    layer = CoRNN(3, 5, damping=damping, dtype=F64, **SETTINGS)

    def step(u, y, z):
        force = y @ layer.weight_hh_l0.T + z @ layer.weight_zh_l0.T + u @ layer.weight_ih_l0.T + layer.bias_ih_l0
        push = z + 0.2 * (torch.tanh(force) - 2.7 * y)
        z = push / (1 + 0.2 * 4.7) if damping == "implicit" else push - 0.2 * 4.7 * z
        return y + 0.2 * z, z

    start = torch.randn(2, 2, 5, dtype=F64)
    assert_same(layer, torch.randn(40, 2, 3, dtype=F64), step, *start, parts=2)
    assert layer.backend_used == "scan"


def test_equals_torchrecurrent():
    torchrecurrent = pytest.importorskip("torchrecurrent")
    """Theirs damps explicitly, and has three biases; two are zero here."""
    layer = CoRNN(3, 5, damping="explicit", dtype=F64, **SETTINGS)
    theirs = torchrecurrent.coRNN(3, 5, dt=0.2, gamma=2.7, epsilon=4.7, dtype=F64)
    cell = theirs.cells[0]
    with torch.no_grad():
        cell.weight_ih.copy_(layer.weight_ih_l0)
        cell.weight_hh.copy_(layer.weight_hh_l0)
        cell.weight_ch.copy_(layer.weight_zh_l0)
        cell.bias_ih.copy_(layer.bias_ih_l0)
        cell.bias_hh.zero_()
        cell.bias_ch.zero_()
    x = torch.randn(12, 2, 3, dtype=F64)
    torch.testing.assert_close(layer(x)[0], theirs(x)[0], rtol=1e-10, atol=1e-10)


def test_small_steps_follow_the_vector_field():
    layer = CoRNN(2, 3, step_size=1e-6, gamma=1.5, epsilon=0.5, dtype=F64)
    y, z, u = torch.randn(1, 1, 3, dtype=F64), torch.randn(1, 1, 3, dtype=F64), torch.randn(1, 2, dtype=F64)
    _, (after, velocity) = layer.step(u, (y, z))
    rate = torch.cat([after - y, velocity - z], dim=-1)[0] / 1e-6
    torch.testing.assert_close(rate, layer.vector_field(torch.cat([y, z], dim=-1)[0], u), rtol=1e-4, atol=1e-5)


def test_implicit_damping_stays_bounded_where_explicit_blows_up():
    x = torch.zeros(300, 1, 1, dtype=F64)
    start = torch.ones(1, 1, 4, dtype=F64), torch.ones(1, 1, 4, dtype=F64)
    stiff = {"step_size": 0.1, "gamma": 1.0, "epsilon": 50.0, "dtype": F64}
    assert CoRNN(1, 4, **stiff)(x, start)[0].abs().max() < 10
    assert not CoRNN(1, 4, damping="explicit", **stiff)(x, start)[0].abs().max() < 1e6


def test_parameters_and_their_start():
    n, d = 100, 3
    assert count(CoRNN(d, n)) == n * (d + 2 * n + 1)
    bound = (d + 2 * n) ** -0.5
    for parameter in CoRNN(d, n).parameters():
        assert parameter.abs().max() <= bound
    assert CoRNN(d, n).weight_zh_l0.abs().max() > 0.99 * bound


def test_certificates():
    pytest.importorskip("cvxpy", reason="the matrix inequality needs the certificates extra")
    layer = CoRNN(1, 4, step_size=0.05, gamma=1.0, epsilon=2.0)
    with torch.no_grad():
        layer.weight_hh_l0.mul_(0.01)
        layer.weight_zh_l0.mul_(0.01)
    assert layer.certificate("lure").holds
    assert layer.certificate("discrete").holds
    assert not CoRNN(1, 4, epsilon=0.0).certificate("lure").holds

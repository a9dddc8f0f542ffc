import pytest
import torch

from sostenuto.nn import AntisymmetricRNN
from tests.laws.layer_laws import LayerLaws
from tests.nn.plain import assert_same, count

F64 = torch.float64


class TestAntisymmetricRNN(LayerLaws):
    cls = AntisymmetricRNN
    options = {"step_size": 0.3, "gamma": 0.1}
    refused = ({"step_size": -1.0}, {"gamma": -0.1}, {"backend": "x"})


class TestGatedAntisymmetricRNN(LayerLaws):
    cls = AntisymmetricRNN
    options = {"step_size": 0.3, "gamma": 0.1, "gated": True}


@pytest.mark.parametrize("gated", [False, True])
def test_equals_a_plain_loop(gated):
    layer = AntisymmetricRNN(3, 5, step_size=0.2, gamma=0.3, gated=gated, dtype=F64)

    def step(u, h):
        m = layer.free_weight("weight_hh", 0, False)
        turned = h @ (m - m.T - 0.3 * torch.eye(5, dtype=F64)).T
        z = u @ layer.weight_ih_l0.T + layer.bias_ih_l0
        if not gated:
            return (h + 0.2 * torch.tanh(turned + z),)
        gate, value = z.chunk(2, dim=-1)
        return (h + 0.2 * torch.sigmoid(turned + gate) * torch.tanh(turned + value),)

    assert_same(layer, torch.randn(40, 2, 3, dtype=F64), step)
    assert layer.backend_used == ("steps" if gated else "scan")


@pytest.mark.parametrize("gated", [False, True])
def test_equals_torchrecurrent(gated):
    torchrecurrent = pytest.importorskip("torchrecurrent")
    """Theirs has a second bias, which is zero here; in the gated unit it enters the value but not the gate."""
    layer = AntisymmetricRNN(3, 5, step_size=0.2, gamma=0.3, gated=gated, dtype=F64)
    cls = torchrecurrent.GatedAntisymmetricRNN if gated else torchrecurrent.AntisymmetricRNN
    theirs = cls(3, 5, epsilon=0.2, gamma=0.3, dtype=F64)
    with torch.no_grad():
        layer.bias_ih_l0.normal_()
        cell = theirs.cells[0]
        cell.weight_ih.copy_(layer.weight_ih_l0)
        cell.weight_hh.copy_(layer.free_weight("weight_hh", 0, False))
        cell.bias_ih.copy_(layer.bias_ih_l0)
        cell.bias_hh.zero_()
    x = torch.randn(12, 2, 3, dtype=F64)
    torch.testing.assert_close(layer(x)[0], theirs(x)[0], rtol=1e-10, atol=1e-10)


def test_parameters_and_their_start():
    n, d = 100, 3
    assert count(AntisymmetricRNN(d, n)) == n * (d + n + 1)
    assert count(AntisymmetricRNN(d, n, gated=True)) == n * (2 * d + n + 2)
    weight = AntisymmetricRNN(d, n, gamma=0.2).weight_hh_l0
    torch.testing.assert_close(weight + weight.T, -0.4 * torch.eye(n))
    assert (weight.triu(1)).std().item() == pytest.approx((2 / n) ** 0.5 / 2**0.5, rel=0.05)


def test_certificates():
    assert AntisymmetricRNN(1, 6, gamma=0.1).certificate("settling").holds
    assert not AntisymmetricRNN(1, 6, gamma=0.0).certificate("settling").holds
    assert not AntisymmetricRNN(1, 6, gamma=0.1, step_size=1.0).certificate("discrete settling").holds
    assert AntisymmetricRNN(1, 6, gamma=0.1, step_size=1e-3).certificate("discrete settling").holds
    for kind in ("contraction", "lure", "discrete"):
        assert not AntisymmetricRNN(1, 6, gamma=0.1).certificate(kind).holds


@pytest.mark.parametrize("spread", [130**-0.5, 1.0])
def test_float32_misses_no_more_than_the_recurrence_amplifies(spread):
    layer = AntisymmetricRNN(3, 130)
    with torch.no_grad():
        layer.free_weight("weight_hh", 0, False).normal_(std=spread)
    plain, wide = AntisymmetricRNN(3, 130, backend="reference"), AntisymmetricRNN(3, 130, dtype=torch.float64)
    for other in (plain, wide):
        other.load_state_dict(layer.state_dict())
    x = torch.randn(400, 4, 3)
    nudged = x.double() * (1 + 6e-8 * torch.randn(x.shape).double().sign())
    with torch.no_grad():
        expected = wide(x.double())[0]
        kernel, reference, ulp = ((one - expected).abs().max() for one in (layer(x)[0], plain(x)[0], wide(nudged)[0]))
    assert kernel <= 3 * max(reference, ulp)  # 1e-3 is what one unit in the last place of the input becomes

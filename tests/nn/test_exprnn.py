import pytest
import torch
from torch.nn.utils import parametrize

from sostenuto.checks import InputError
from sostenuto.nn import ExpRNN
from tests.laws.layer_laws import LayerLaws
from tests.nn.plain import assert_same, count

F64 = torch.float64


class TestExpRNN(LayerLaws):
    cls = ExpRNN
    refused = ({"map": "log"}, {"initialization": "x"})
    continuous = False


class TestCayleyRNN(LayerLaws):
    cls = ExpRNN
    options = {"map": "cayley", "bias": False}
    continuous = False


@pytest.mark.parametrize("name", ["exp", "cayley"])
def test_equals_a_plain_loop(name):
    layer = ExpRNN(3, 5, map=name, dtype=F64)
    with torch.no_grad():
        layer.free_weight("weight_hh", 0, False).normal_()
    upper = layer.free_weight("weight_hh", 0, False).detach().triu(1)
    skew, eye = upper - upper.T, torch.eye(5, dtype=F64)
    weight = torch.matrix_exp(skew) if name == "exp" else torch.inverse(eye + skew) @ (eye - skew)

    def step(u, h):
        v = h @ weight.T + u @ layer.weight_ih_l0.T
        return (torch.where(v.abs() + layer.bias_ih_l0 > 0, v + v.sign() * layer.bias_ih_l0, 0),)

    assert_same(layer, torch.randn(40, 2, 3, dtype=F64), step)


@pytest.mark.parametrize("initialization", ["cayley", "henaff"])
@pytest.mark.parametrize("name", ["exp", "cayley"])
def test_starts_from_rotations_in_blocks(name, initialization):
    layer = ExpRNN(1, 41, map=name, initialization=initialization, dtype=F64)
    weight = layer.weight_hh_l0
    torch.testing.assert_close(weight @ weight.T, torch.eye(41, dtype=F64), rtol=0, atol=1e-11)
    assert weight[-1, -1] == 1
    angles = torch.linalg.eigvals(weight).angle().abs()
    most = {"henaff": torch.pi, "cayley": 1.0 if name == "exp" else torch.pi / 2}[initialization]
    assert 0.8 * most < angles.max() <= most


def test_a_linear_unit_keeps_the_norm():
    layer = ExpRNN(1, 6, bias=False, dtype=F64)
    start = torch.randn(1, 1, 6, dtype=F64)
    end = layer(torch.zeros(500, 1, 1, dtype=F64), start)[1]
    torch.testing.assert_close(end.norm(), start.norm(), rtol=1e-10, atol=0)


def test_parameters():
    assert count(ExpRNN(3, 10)) == 10 * (3 + 10 + 1)
    assert ExpRNN(3, 1)(torch.zeros(2, 1, 3))[0].shape == (2, 1, 1)


def test_certificates():
    layer = ExpRNN(1, 4)
    assert "orthogonal" in layer.certificate("discrete").reason
    assert "discrete map" in layer.certificate("contraction").reason
    with pytest.raises(InputError, match="kind"):
        layer.certificate("magic")


@pytest.mark.parametrize("name", ["exp", "cayley"])
def test_float32_is_as_near_float64_as_rounding_allows(name):
    layer, wide = ExpRNN(3, 130, map=name), ExpRNN(3, 130, map=name, dtype=F64)
    with torch.no_grad():
        layer.free_weight("weight_hh", 0, False).normal_()
    wide.load_state_dict(layer.state_dict())
    x = torch.randn(400, 4, 3)
    with torch.no_grad():
        expected = wide(x.double())[0]
        missed = (layer(x)[0].double() - expected).abs().max() / expected.abs().max()
    assert missed < 1e-5  # 4e-4 with the exponential in float32


def test_streaming_under_torchs_cache_makes_the_rotation_once(monkeypatch):
    layer, x, made = ExpRNN(2, 6), torch.randn(5, 3, 2), []
    constraint = layer.parametrizations["weight_hh_l0"][0]
    forward = constraint.forward
    monkeypatch.setattr(constraint, "forward", lambda free: made.append(1) or forward(free))
    expected, _ = layer(x)
    made.clear()
    state, outputs = None, []
    with parametrize.cached():
        for x_t in x:
            output, state = layer.step(x_t, state)
            outputs.append(output)
    assert len(made) == 1
    torch.testing.assert_close(torch.stack(outputs), expected)
    free = layer.free_weight("weight_hh", 0, False)
    streamed, whole = (torch.autograd.grad(one.sum(), free)[0] for one in (torch.stack(outputs), expected))
    torch.testing.assert_close(streamed, whole)

import math

import pytest
import torch

from sostenuto.nn import SRU
from tests.laws.layer_laws import LayerLaws
from tests.nn.plain import assert_same, count

F64 = torch.float64


class TestSRU(LayerLaws):
    cls = SRU
    continuous = False


class TestSRUWithoutHighway(LayerLaws):
    cls = SRU
    options = {"highway": False, "bias": False}
    continuous = False


@pytest.mark.parametrize("channels", [3, 5])
def test_equals_the_papers_equations(channels):
    """Lei et al. 2018, eqs. (1) to (4); with 3 channels the highway has a map of its own."""
    layer = SRU(channels, 5, highway_bias=-1.0, dtype=F64)
    start, scale = torch.randn(2, 5, dtype=F64), math.sqrt(1 + 2 * math.exp(-1.0))

    def step(u, _, c):
        value, forget, reset = (u @ layer.weight_ih_l0.T).chunk(3, dim=-1)
        own_forget, own_reset = layer.weight_hh_l0.chunk(2)
        bias_forget, bias_reset = layer.bias_ih_l0.chunk(2)
        f = torch.sigmoid(forget + own_forget * c + bias_forget)
        r = torch.sigmoid(reset + own_reset * c + bias_reset)
        c = f * c + (1 - f) * value
        through = u if channels == 5 else u @ layer.weight_skip_l0.T
        return r * c + (1 - r) * scale * through, c

    def check(x):
        output, last = [], (None, start)
        for u in x:
            last = step(u, *last)
            output.append(last[0])
        got, state = layer(x, start[None])
        torch.testing.assert_close(got, torch.stack(output), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(state[0], last[1], rtol=1e-10, atol=1e-10)

    torch.nn.init.normal_(layer.bias_ih_l0)
    check(torch.randn(30, 2, channels, dtype=F64))


def test_without_highway_it_gives_its_state():
    layer = SRU(3, 5, highway=False, dtype=F64)

    def step(u, c):
        value, forget = (u @ layer.weight_ih_l0.T).chunk(2, dim=-1)
        f = torch.sigmoid(forget + layer.weight_hh_l0 * c + layer.bias_ih_l0)
        return (f * c + (1 - f) * value,)

    assert_same(layer, torch.randn(30, 2, 3, dtype=F64), step)


def test_parameters_and_their_start():
    n, d = 10, 3
    assert count(SRU(d, n)) == n * (3 * d + 4) + n * d
    assert count(SRU(n, n)) == n * (3 * n + 4)
    assert count(SRU(d, n, highway=False)) == n * (2 * d + 2)
    layer = SRU(100, 200, highway_bias=-2.0)
    assert layer.weight_ih_l0[:200].std().item() == pytest.approx(0.1, rel=0.05)
    assert layer.weight_ih_l0[200:].std().item() == pytest.approx(0.1 * 0.5**0.5, rel=0.05)
    assert layer.bias_ih_l0.unique().tolist() == [-2.0, 0.0]


def test_there_is_no_certificate():
    assert "another form" in SRU(1, 2).certificate("discrete").reason

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from sostenuto.nn import ResidualRNN
from tests.laws.layer_laws import LayerLaws
from tests.nn.plain import SIGMAS, assert_same, count

F64 = torch.float64


class TestResidualRNN(LayerLaws):
    cls = ResidualRNN
    options = {"step_size": 0.3}
    refused = ({"step_size": 0.0}, {"activation": "gelu"})


class TestWholeSequenceResidualRNN(LayerLaws):
    """The default step 1/T, T being each sequence's own length."""

    cls = ResidualRNN
    streams = False


@pytest.mark.parametrize("activation", SIGMAS)
@pytest.mark.parametrize("size", [None, 0.2])
def test_equals_a_plain_loop(activation, size):
    layer = ResidualRNN(3, 5, activation=activation, step_size=size, dtype=F64)
    sigma = SIGMAS[activation]

    def step(u, h):
        z = u @ layer.weight_ih_l0.T + layer.bias_ih_l0
        return (h + (size or 1 / 40) * sigma(h @ layer.weight_hh_l0.T + z),)

    assert_same(layer, torch.randn(40, 2, 3, dtype=F64), step)
    assert layer.backend_used == "scan"


def test_which_way_packed_sequences_go():
    layer = ResidualRNN(2, 3, dtype=F64)
    layer(pack_sequence([torch.randn(4, 2, dtype=F64), torch.randn(4, 2, dtype=F64)]))
    assert layer.backend_used == "scan"
    layer(pack_sequence([torch.randn(4, 2, dtype=F64), torch.randn(3, 2, dtype=F64)]))
    assert layer.backend_used == "steps"
    fixed = ResidualRNN(2, 3, step_size=0.1, dtype=F64)
    fixed(pack_sequence([torch.randn(4, 2, dtype=F64), torch.randn(3, 2, dtype=F64)]))
    assert fixed.backend_used == "scan"


def test_parameters():
    assert count(ResidualRNN(3, 10)) == 10 * (3 + 10 + 1)
    assert count(ResidualRNN(3, 10, bias=False)) == 10 * (3 + 10)


def test_certificates():
    layer = ResidualRNN(1, 4)
    assert "1/T" in layer.certificate("discrete").reason
    with torch.no_grad():
        layer.weight_hh_l0.copy_(-torch.eye(4))
    assert layer.certificate("settling").holds
    assert "μ₂" in layer.certificate("contraction").reason

import torch

from sostenuto.nn import GRU, LSTM, RNN
from tests.laws.layer_laws import LayerLaws


class _TorchUnitLaws(LayerLaws):
    continuous = False
    variational_dropout = False
    autocasts = False
    ensembles = False


class TestLSTM(_TorchUnitLaws):
    cls = LSTM


class TestGRU(_TorchUnitLaws):
    cls = GRU


class TestRNN(_TorchUnitLaws):
    cls = RNN


def test_weights_are_interchangeable_with_torch():
    ours, theirs = LSTM(2, 3, num_layers=2), torch.nn.LSTM(2, 3, num_layers=2)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(4, 1, 2)
    torch.testing.assert_close(ours(x)[0], theirs(x)[0])

"""Recurrent layers, drop-in beside `torch.nn.LSTM`: one recurrence a file, one contract for all."""

from sostenuto.nn.base import RecurrentLayer
from sostenuto.nn.residual_units import ResidualGRU, ResidualLSTM
from sostenuto.nn.torch_units import GRU, LSTM, RNN
from sostenuto.nn.unicornn import UnICORNN

LAYERS = {
    "unicornn": UnICORNN,
    "lstm": LSTM,
    "gru": GRU,
    "rnn": RNN,
    "residual-gru": ResidualGRU,
    "residual-lstm": ResidualLSTM,
}
"""Layers by the name the command line and the estimators use."""

__all__ = ["GRU", "LAYERS", "LSTM", "RNN", "RecurrentLayer", "ResidualGRU", "ResidualLSTM", "UnICORNN"]

"""Recurrent layers, drop-in beside `torch.nn.LSTM`: one recurrence per file, one contract for all."""

from typing import TYPE_CHECKING, Any

from sostenuto.lazy import LazyTable, lazy_names

if TYPE_CHECKING:
    from sostenuto.nn.antisymmetric_rnn import AntisymmetricRNN
    from sostenuto.nn.base import RecurrentLayer
    from sostenuto.nn.cornn import CoRNN
    from sostenuto.nn.damped_oscillators import DampedOscillators
    from sostenuto.nn.exprnn import ExpRNN
    from sostenuto.nn.indrnn import IndRNN
    from sostenuto.nn.lipschitz_rnn import LipschitzRNN
    from sostenuto.nn.residual_rnn import ResidualRNN
    from sostenuto.nn.residual_units import ResidualGRU, ResidualLSTM
    from sostenuto.nn.sru import SRU
    from sostenuto.nn.stable_rnn import StableRNN
    from sostenuto.nn.stack import Stack
    from sostenuto.nn.torch_units import GRU, LSTM, RNN
    from sostenuto.nn.unicornn import UnICORNN

LAYERS: LazyTable[Any] = LazyTable(
    __name__,
    {
        "stack": "Stack",
        "damped": "DampedOscillators",
        "unicornn": "UnICORNN",
        "lipschitz": "LipschitzRNN",
        "antisymmetric": "AntisymmetricRNN",
        "cornn": "CoRNN",
        "residual": "ResidualRNN",
        "stable": "StableRNN",
        "exprnn": "ExpRNN",
        "indrnn": "IndRNN",
        "sru": "SRU",
        "lstm": "LSTM",
        "gru": "GRU",
        "rnn": "RNN",
        "residual-gru": "ResidualGRU",
        "residual-lstm": "ResidualLSTM",
    },
)
"""Layers by the name the command line and the estimators use; a block of a `Stack` takes all but itself and torch's."""

__all__ = [
    "GRU",
    "LAYERS",
    "LSTM",
    "RNN",
    "SRU",
    "AntisymmetricRNN",
    "CoRNN",
    "DampedOscillators",
    "ExpRNN",
    "IndRNN",
    "LipschitzRNN",
    "RecurrentLayer",
    "ResidualGRU",
    "ResidualLSTM",
    "ResidualRNN",
    "StableRNN",
    "Stack",
    "UnICORNN",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)

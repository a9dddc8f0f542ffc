"""torch's own LSTM, GRU and RNN under the shared contract."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from sostenuto.nn.base import Contract
from sostenuto.nn.sequences import check_input


class _TorchUnit(Contract):
    """Adds `step` and a clear word about time spans to a torch layer; weights and kernels stay torch's."""

    continuous = False

    def forward(
        self, input: Any, state: Any = None, *, timespans: Tensor | PackedSequence | None = None
    ) -> tuple[Any, Any]:
        """Call torch's layer; ``timespans`` has no meaning for a discrete map and is refused."""
        self.refuse_timespans(timespans)
        check_input(input, self.input_size, self.batch_first)
        return super().forward(input, state)  # pyright: ignore[reportAttributeAccessIssue]


class LSTM(_TorchUnit, torch.nn.LSTM):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`torch.nn.LSTM` with `step` for streaming; constructor, weights and state (h, c) are torch's.

    ``dropout`` is torch's too: drawn anew at every step, where this library's own layers keep one mask per sequence.

    >>> layer = LSTM(2, 4)
    >>> output, (h, c) = layer(torch.zeros(5, 3, 2))
    >>> one, (h, c) = layer.step(torch.zeros(3, 2), (h, c))
    >>> output.shape, one.shape
    (torch.Size([5, 3, 4]), torch.Size([3, 4]))
    """

    state_names = ("h", "c")


class GRU(_TorchUnit, torch.nn.GRU):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`torch.nn.GRU` with `step` for streaming; constructor, weights and state h are torch's."""


class RNN(_TorchUnit, torch.nn.RNN):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`torch.nn.RNN` (tanh or relu) with `step` for streaming; constructor, weights and state h are torch's."""

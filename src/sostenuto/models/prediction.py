"""Layer and read-out for each task: one class, one number, or a target at every step."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.choices import Readout
from sostenuto.models.base import SequenceModel, linear_head
from sostenuto.types import Lengths, Sequences, Timespans


class SequenceClassifier(SequenceModel):
    """Read a sequence, pool the states, return one score per class (logits).

    >>> import torch
    >>> from sostenuto.nn import UnICORNN
    >>> model = SequenceClassifier(UnICORNN(2, 8, batch_first=True), num_classes=3)
    >>> model(torch.zeros(4, 10, 2)).shape
    torch.Size([4, 3])
    """

    softmax = True

    def __init__(self, layer: Any, num_classes: int, readout: Readout = "last") -> None:
        super().__init__(layer)
        self.readout: Readout = readout
        self.head = linear_head(layer.output_size, num_classes)

    def forward(
        self, values: Sequences, lengths: Lengths | None = None, timespans: Timespans | None = None
    ) -> Float[Tensor, "batch class"]:
        """Return logits."""
        return self.head(self.pooled(values, lengths, timespans, self.readout))


class SequenceRegressor(SequenceModel):
    """Read a sequence, pool the states, return ``num_targets`` numbers.

    >>> import torch
    >>> from sostenuto.nn import GRU
    >>> SequenceRegressor(GRU(1, 4, batch_first=True))(torch.zeros(2, 5, 1)).shape
    torch.Size([2, 1])
    """

    def __init__(self, layer: Any, num_targets: int = 1, readout: Readout = "last") -> None:
        super().__init__(layer)
        self.readout: Readout = readout
        self.head = linear_head(layer.output_size, num_targets)

    def forward(
        self, values: Sequences, lengths: Lengths | None = None, timespans: Timespans | None = None
    ) -> Float[Tensor, "batch target"]:
        """Return predictions in the targets' (scaled) unit."""
        return self.head(self.pooled(values, lengths, timespans, self.readout))


class SequenceToSequence(SequenceModel):
    """Read a sequence and predict ``num_outputs`` numbers (or class scores) at every step.

    >>> import torch
    >>> from sostenuto.nn import LSTM
    >>> SequenceToSequence(LSTM(1, 4, batch_first=True), num_outputs=2)(torch.zeros(3, 5, 1)).shape
    torch.Size([3, 5, 2])
    """

    def __init__(self, layer: Any, num_outputs: int) -> None:
        super().__init__(layer)
        self.head = linear_head(layer.output_size, num_outputs)

    def forward(
        self, values: Sequences, lengths: Lengths | None = None, timespans: Timespans | None = None
    ) -> Float[Tensor, "batch time output"]:
        """Return a prediction for every step; past a sequence's own length it carries no meaning."""
        if self.streams(values, lengths):
            return torch.cat([self.head(states) for states in self.windows(values, timespans)], dim=1)
        return self.head(self.states(values, lengths, timespans))

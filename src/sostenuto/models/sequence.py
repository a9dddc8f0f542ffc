"""Sequence to sequence: a prediction at every step."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from sostenuto.models.base import SequenceModel, linear_head
from sostenuto.types import Lengths, Sequences, Timespans


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
        return self.head(self.states(values, lengths, timespans))

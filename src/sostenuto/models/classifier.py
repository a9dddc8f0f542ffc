"""One class per sequence."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from sostenuto.models.base import SequenceModel, linear_head
from sostenuto.models.readout import Readout
from sostenuto.types import Lengths, Sequences, Timespans


class SequenceClassifier(SequenceModel):
    """Read a sequence, pool the states, return one score per class (logits).

    >>> import torch
    >>> from sostenuto.nn import UnICORNN
    >>> model = SequenceClassifier(UnICORNN(2, 8, batch_first=True), num_classes=3)
    >>> model(torch.zeros(4, 10, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, layer: Any, num_classes: int, readout: Readout = "last") -> None:
        super().__init__(layer)
        self.readout: Readout = readout
        self.head = linear_head(layer.output_size, num_classes)

    def forward(
        self, values: Sequences, lengths: Lengths | None = None, timespans: Timespans | None = None
    ) -> Float[Tensor, "batch class"]:
        """Return logits."""
        return self.head(self.pooled(values, lengths, timespans, self.readout))

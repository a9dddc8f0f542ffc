"""One or several numbers per sequence."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from sostenuto.models.base import SequenceModel, linear_head
from sostenuto.models.readout import Readout
from sostenuto.types import Lengths, Sequences, Timespans


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

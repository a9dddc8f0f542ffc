"""Bring any module to the form audits ask of: (batch, time, channel) in, one tensor out, the batch first."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sostenuto.audits.model import forward_arguments
from sostenuto.checks import check_choice
from sostenuto.types import Lengths, Sequences

LAYOUTS = {"btc": (0, 1, 2), "tbc": (1, 0, 2), "bct": (0, 2, 1)}


class Adapted(nn.Module):
    """A module in audit form; see `adapt`."""

    def __init__(self, model: nn.Module, layout: str, output: Callable[[Any], Tensor] | None, lengths: str) -> None:
        super().__init__()
        self.model, self.layout, self.output, self.lengths = model, layout, output, lengths

    def forward(self, values: Sequences, lengths: Lengths | None = None) -> Any:
        """Ask the module in its own layout; take the scores out of what it returns, and put the batch first."""
        order = LAYOUTS[self.layout]
        options = {}
        if self.lengths:
            if lengths is None and forward_arguments(self.model)[self.lengths]:
                lengths = torch.full((len(values),), values.shape[1], device=values.device)
            options = {} if lengths is None else {self.lengths: lengths}
        output = self.model(values.permute(order), **options)
        if self.output is not None:
            output = self.output(output)
        elif isinstance(output, tuple):
            output = output[0]
        return output.permute(order) if isinstance(output, Tensor) and output.ndim == 3 else output


def adapt(
    model: nn.Module, *, layout: str = "btc", output: Callable[[Any], Tensor] | None = None, lengths: str = ""
) -> Adapted:
    """Wrap a module so that it can be audited; its weights are shared, not copied.

    Args:
        model: any module on sequences.
        layout: what it reads and returns: ``"btc"``, ``"tbc"`` (torch's recurrent layers by default) or ``"bct"``.
        output: takes the scores out of what it returns; the first entry of a tuple if left out.
        lengths: the name of its argument for lengths, if it has one.

    >>> import torch
    >>> adapt(nn.LSTM(2, 3), layout="tbc")(torch.zeros(5, 7, 2)).shape
    torch.Size([5, 7, 3])
    """
    check_choice("layout", layout, LAYOUTS)
    return Adapted(model, layout, output, lengths)

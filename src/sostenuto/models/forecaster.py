"""The next values of a series from a window of its past."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_count, require
from sostenuto.models.base import SequenceModel, linear_head, pool
from sostenuto.types import Lengths, Sequences, Timespans


class Forecaster(SequenceModel):
    """Predict the next ``horizon`` steps of ``num_channels`` channels, as a change from the last value seen.

    The read-out starts at no change, so that training starts from the previous value, which is hard to beat.
    ``relative=False`` predicts the values themselves. ``channels`` are the input channels that are predicted, the first
    ``num_channels`` unless others are named; covariates and indicators of missing values are read but not predicted.

    >>> from sostenuto.nn import UnICORNN
    >>> model = Forecaster(UnICORNN(2, 8, batch_first=True), num_channels=2, horizon=3)
    >>> model(torch.zeros(4, 10, 2)).shape
    torch.Size([4, 3, 2])
    """

    def __init__(
        self,
        layer: Any,
        num_channels: int,
        horizon: int = 1,
        *,
        relative: bool = True,
        channels: Sequence[int] | None = None,
    ) -> None:
        super().__init__(layer)
        check_count("horizon", horizon)
        self.num_channels, self.horizon, self.relative = num_channels, horizon, relative
        self.channels = list(range(num_channels) if channels is None else channels)
        got = f"got {self.channels}"
        require(len(self.channels) == num_channels, f"expected {num_channels} channels to predict", got)
        self.head = linear_head(layer.output_size, horizon * num_channels)
        if relative:
            torch.nn.init.zeros_(self.head.weight)

    def forward(
        self, values: Sequences, lengths: Lengths | None = None, timespans: Timespans | None = None
    ) -> Float[Tensor, "batch horizon target"]:
        """Return the forecast, nearest step first."""
        states = self.states(values, lengths, timespans, only_last=True)
        pooled = pool(states, lengths, "last", bidirectional=self.layer.bidirectional)
        forecast = self.head(pooled).unflatten(-1, (self.horizon, self.num_channels))
        if not self.relative:
            return forecast
        return forecast + pool(values, lengths, "last")[:, None, self.channels]

    @torch.no_grad()
    def generate(self, values: Sequences, steps: int) -> Float[Tensor, "batch step channel"]:
        """Forecast ``steps`` steps, feeding each forecast back as input."""
        check_count("steps", steps)
        width = values.shape[2]
        require(width == self.num_channels, f"expected {self.num_channels} channels to run freely", f"got {width}")
        past, made = values, values[:, :0]
        while made.shape[1] < steps:
            forecast = self(past)
            made = torch.cat([made, forecast], dim=1)
            past = torch.cat([past, forecast], dim=1)[:, -values.shape[1] :]
        return made[:, :steps]

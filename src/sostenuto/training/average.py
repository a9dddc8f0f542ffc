"""A moving average of the weights, evaluated and kept in their place."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """θ̄ ← decay·θ̄ + (1 − decay)·θ after every step, with the decay eased in so that early steps do not weigh on it.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(model, decay=0.9)
    >>> with average.in_place(model):
    ...     same = torch.equal(model.weight, average.tensors["weight"])
    >>> same
    True
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.tensors = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take one more step into the average."""
        self.steps += 1
        decay = min(self.decay, self.steps / (self.steps + 9))
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                self.tensors[name].lerp_(value.to(self.tensors[name].dtype), 1 - decay)
            else:
                self.tensors[name].copy_(value)

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """Evaluate the model with the averaged weights; the trained ones come back after."""
        trained = snapshot(model)
        model.load_state_dict(self.tensors)
        try:
            yield
        finally:
            model.load_state_dict(trained)


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """Copy the weights of ``model``."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}

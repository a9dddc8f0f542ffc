"""`EvenAdam`: AdamW that lets word vectors move by what the data say of them, rare words less than frequent ones."""

import math
from typing import Any

import torch
from torch import Tensor

from sostenuto.training.mixed_adam import MixedAdam


class EvenAdam(MixedAdam):
    """AdamW, but for the groups with ``even=True``, whose second moment is one number for the whole tensor.

    m ← β₁ m + (1 − β₁) G,  v ← β₂ v + (1 − β₂) mean(G²),  W ← (1 − ηλ)W − η m̂ / (√v̂ + ε). Adam divides every entry
    by its own moment, so that a word seen three times moves as far as one seen a thousand times. (As classifiers of
    IMDB's reviews, means of word vectors had 87.0 % of other films' with this and 86.1 % with Adam.)

    >>> table = torch.nn.Parameter(torch.zeros(2, 1))
    >>> optimizer = EvenAdam([{"params": [table], "even": True}], lr=0.1)
    >>> table.grad = torch.tensor([[1.0], [0.01]])
    >>> optimizer.step()
    >>> bool(table[0] < 50 * table[1] < 0)
    True
    """

    mark = "even"

    def own_step(self, group: dict[str, Any], gradients: dict[Tensor, Tensor]) -> None:
        """Step along the momentum, divided by one number."""
        first, second = group["betas"]
        for weight, gradient in gradients.items():
            state = self.state[weight]
            if not state:
                state["step"] = torch.zeros((), device=weight.device)
                state["momentum"] = torch.zeros_like(weight)
                state["moment"] = torch.zeros((), device=weight.device, dtype=weight.dtype)
            state["step"] += 1
            state["momentum"].lerp_(gradient, 1 - first)
            state["moment"].lerp_(gradient.square().mean(), 1 - second)
            # 1 − β^t, without the rounding of a number near one.
            begun, measured = (-torch.expm1(state["step"] * math.log(beta)) for beta in (first, second))
            rate = group["lr"] / (begun * ((state["moment"] / measured).sqrt() + group["eps"]))
            weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(rate * state["momentum"])

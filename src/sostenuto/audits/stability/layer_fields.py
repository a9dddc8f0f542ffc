"""One layer of a stack at a time: where its state lies in the flat one, and the Jacobian of its vector field there."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sostenuto.audits.model import still_copy
from sostenuto.audits.stability.state_samples import StateSamples
from sostenuto.checks import InputError
from sostenuto.nn.base import Contract


def own_places(layer: Any, level: int) -> Int[Tensor, " own"]:
    """List the places of one layer's state, components side by side, in the flat state of the stack.

    >>> from sostenuto.nn import LSTM
    >>> own_places(LSTM(1, 2, num_layers=2), 1)
    tensor([2, 3, 6, 7])
    """
    parts, levels, hidden = len(layer.state_names), layer.num_layers, layer.hidden_size
    return torch.arange(parts * levels * hidden).reshape(parts, levels, hidden)[:, level].flatten()


def field_jacobians(layer: nn.Module | None, seen: StateSamples) -> dict[int, Float[Tensor, "point n n"]]:
    """Differentiate each layer's vector field at the states and inputs it met; empty for a discrete map.

    A layer reads the output of the one below, which is the first component of its state after the step.
    """
    if not isinstance(layer, Contract) or getattr(layer, "skip", None) is not None:
        return {}
    still: Any = still_copy(layer)
    found = {}
    for level in range(still.num_layers):
        h, x = seen.before[:, own_places(still, level)], seen.inputs
        if level > 0:
            x = seen.after[:, own_places(still, level - 1)][:, : still.hidden_size]
        try:
            found[level] = _jacobians(still, h, x, level)
        except InputError:
            return {}
    return found


def _jacobians(layer: Any, h: Tensor, x: Tensor, level: int) -> Tensor:
    count, size = h.shape
    copies = h.repeat_interleave(size, 0).requires_grad_()
    with torch.enable_grad():
        moved = layer.vector_field(copies, x.repeat_interleave(size, 0), layer=level)
        picked = moved.unflatten(0, (count, size)).diagonal(dim1=1, dim2=2).sum()
    return torch.autograd.grad(picked, copies)[0].unflatten(0, (count, size))

"""How much of what a model answers goes through its recurrent layer: of a layer that is not heard nothing is told."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import nn

from sostenuto.report.numbers import percent
from sostenuto.types import Sequences

LEAST = 0.5
"""A layer that carries less than this share of the input's effect does not speak for the model."""


def share_carried(
    layer: nn.Module, ask: Callable[[Sequences], Float[np.ndarray, "batch ..."]], values: Sequences
) -> float:
    """Give the change of the answers where the layer alone reads other sequences, as a share of that where all does.

    The layer's outputs for the sequences in another order are kept, and put in the place of its own.

    Args:
        layer: a part of the model that ``ask`` asks.
        ask: gives the answers to sequences.
        values: sequences that differ from each other; answers to them that are no number tell nothing.

    >>> import torch
    >>> layer = nn.Linear(1, 1)
    >>> x = torch.randn(4, 5, 1)
    >>> share_carried(layer, lambda x: (0 * layer(x) + x).detach().numpy(), x)
    0.0
    """
    outputs: list[Any] = []
    own = ask(values)
    handle = layer.register_forward_hook(lambda module, given, output: outputs.append(output))  # noqa: ARG005
    try:
        other = ask(values.roll(1, 0))
    finally:
        handle.remove()
    if not outputs:
        return 1.0  # a layer that is asked one step at a time, or not at all, is refused elsewhere
    handle = layer.register_forward_hook(lambda module, given, output: outputs.pop(0))  # noqa: ARG005
    try:
        mixed = ask(values)
    finally:
        handle.remove()
    finite = np.isfinite(own) & np.isfinite(other) & np.isfinite(mixed)
    own, other, mixed = (np.where(finite, one, 0.0) for one in (own, other, mixed))
    whole = float(np.square(other - own).sum())
    return float(np.sqrt(np.square(mixed - own).sum() / whole)) if whole > 0 else 1.0


def bypassed(layer: nn.Module, share: float) -> str:
    """Say why a layer's state does not speak for the model; empty where it does.

    >>> bypassed(nn.GRU(1, 1), 0.03)
    'not applicable: it follows the state of GRU, which carries 3.0\u202f% of what the input changes in the answers.'
    """
    if share >= LEAST:
        return ""
    name = type(layer).__name__
    return (
        f"not applicable: it follows the state of {name}, which carries {percent(share)} of what the input changes in "
        "the answers."
    )

"""What is found when a recurrence is run backwards from its final state, and how far to trust it."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import require
from sostenuto.nn.sequences import LayerInput


class Reconstruction(NamedTuple):
    """What `UnICORNN.inverse` found.

    ``state`` is the initial (y, z) in the form the layer takes. ``drift`` says for each layer how far running forwards
    from it misses the state given, relative to that layer's largest value: rounding if small, a lost past if not.
    ``trajectory`` has for each layer (y, z) after every step, in the form of the input; None unless asked for.
    """

    state: tuple[Tensor, Tensor]
    drift: tuple[float, ...]
    trajectory: tuple[tuple[LayerInput, LayerInput], ...] | None


def drift_of(
    again: tuple[Float[Tensor, "layer *rest"], ...],
    given: tuple[Float[Tensor, "layer *rest"], ...],
    tolerance: float | None = None,
) -> tuple[float, ...]:
    """Compare a state reached again with the one given: for each layer, the worst component's relative difference.

    A difference is relative to the largest value of its component in its layer; past ``tolerance`` it is an error.

    >>> drift_of((torch.tensor([[2.0, 4.0]]),), (torch.tensor([[1.0, 4.0]]),))
    (0.25,)
    """
    drift = tuple(_worst(parts) for parts in zip(*again, *given, strict=True))
    if tolerance is not None:
        most = max(drift)
        got = f"got {most:.1e} in layer {drift.index(most)}"
        require(most <= tolerance, f"expected a drift of at most {tolerance}", got, "use float64 or fewer steps")
    return drift


def _worst(parts: tuple[Tensor, ...]) -> float:
    """Give the largest relative difference; one that is not finite counts as infinite."""
    half = len(parts) // 2
    floor = torch.finfo(parts[0].dtype).tiny
    pairs = zip(parts[:half], parts[half:], strict=True)
    errors = [float((one - other).abs().max() / other.abs().max().clamp(min=floor)) for one, other in pairs]
    return max(error if error == error else float("inf") for error in errors)

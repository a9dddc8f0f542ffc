"""How long a time span UnICORNN can read in one step without its oscillators diverging."""

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.unicornn import UnICORNN

MARGIN = 0.4
"""Share of the limit that is used. Uneven steps amplify an oscillation even inside the limit: with exponential gaps by
10²² in 1000 steps at a share of 0.9, by at most 5 at 0.4."""


@torch.no_grad()
def longest_stable_span(layer: UnICORNN) -> Float[Tensor, ""]:
    """Give the longest time span that all units of ``layer`` read stably, with its weights as they are.

    A step of h = timespan · Δt · σ̂(c) of y″ = −(α + w)y, the steepest that tanh(w y) can be, is stable where
    h²·(α + max(w, 0)) < 4 (symplectic Euler); the span is `MARGIN` of where equality holds for the fastest unit.

    >>> layer = UnICORNN(1, 4, step_size=0.5, stiffness=3.0)
    >>> _ = torch.nn.init.zeros_(layer.time_scale_l0), torch.nn.init.ones_(layer.weight_hh_l0)
    >>> round(longest_stable_span(layer).item(), 6)
    1.6
    """
    spans = []
    for index in range(layer.num_layers):
        for reverse in (False, True)[: layer.num_directions]:
            stiffest = layer.stiffness + layer.weight("weight_hh", index, reverse).clamp(min=0)
            spans.append(2 / (layer.effective_step(index, reverse=reverse) * stiffest.sqrt()))
    return MARGIN * torch.stack(spans).min()

"""From states at every step to one vector per sequence: last, mean or max, lengths respected."""

from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_choice
from sostenuto.choices import Readout
from sostenuto.types import Lengths


def pool(
    states: Float[Tensor, "batch time feature"],
    lengths: Lengths | None,
    readout: Readout,
    *,
    bidirectional: bool = False,
) -> Float[Tensor, "batch feature"]:
    """Reduce ``states`` over the true steps of each sequence.

    ``"last"`` takes the state where each pass ends: the last step forwards and, for a bidirectional layer, the first
    step of the second half of the features, which has read the sequence backwards.

    >>> states = torch.tensor([[[1.0], [5.0], [9.0]]])
    >>> [pool(states, torch.tensor([2]), how).item() for how in ("last", "mean", "max")]
    [5.0, 3.0, 5.0]
    """
    check_choice("readout", readout, get_args(Readout))
    if readout == "last":
        return _last(states, lengths, bidirectional)
    from sostenuto.ops.oscillator import time_max

    if lengths is None:
        return states.mean(1) if readout == "mean" else time_max(states)
    outside = torch.arange(states.shape[1], device=states.device)[None, :, None] >= lengths[:, None, None]
    if readout == "mean":
        return states.masked_fill(outside, 0.0).sum(1) / lengths[:, None]
    return time_max(states.masked_fill(outside, -torch.inf))


def _last(states: Tensor, lengths: Tensor | None, bidirectional: bool) -> Tensor:
    if lengths is None:
        last = states[:, -1]
    else:
        index = (lengths - 1)[:, None, None].expand(-1, 1, states.shape[2])
        last = states.gather(1, index)[:, 0]
    if not bidirectional:
        return last
    half = states.shape[2] // 2
    return torch.cat([last[:, :half], states[:, 0, half:]], dim=-1)

"""Sequences of unequal length in one block: where each one ends, and runs that never enter the padding."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

Run = Callable[[Float[Tensor, "T B G"], Float[Tensor, "B S"]], Float[Tensor, "T B S"]]


def states_at_ends(states: Float[Tensor, "T B S"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S"]:
    """Take every sequence's state at its own last step; what lies beyond it gets no gradient.

    >>> states_at_ends(torch.arange(6.0).reshape(3, 2, 1), torch.tensor([1, 3])).flatten().tolist()
    [0.0, 5.0]
    """
    index = (lengths - 1)[None, :, None].expand(1, -1, states.shape[-1])
    return states.gather(0, index)[0]


def run_ragged(
    run: Run, drive: Float[Tensor, "T B G"], start: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "T B S"], Float[Tensor, "B S"]]:
    """Run a scan over a padded block, and return its states, and each sequence's at its own end.

    The scan goes on into the padding, where nothing reads it. Only where it overflows there (and a zero gradient times
    infinity would be NaN) is it done again stretch by stretch, with the sequences that are still running.
    """
    states = run(drive, start)
    if bool(torch.isfinite(states).all()):
        return states, states_at_ends(states, lengths)
    return run_by_stretches(run, drive, start, lengths)


def run_by_stretches(
    run: Run, drive: Float[Tensor, "T B G"], start: Float[Tensor, "B S"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "T B S"], Float[Tensor, "B S"]]:
    """Run a scan from one sequence's end to the next, never into the padding, which is left zero.

    >>> add = lambda drive, start: start + drive.cumsum(0)
    >>> states, ends = run_by_stretches(add, torch.ones(3, 2, 1), torch.zeros(2, 1), torch.tensor([1, 3]))
    >>> states[..., 0].tolist(), ends.flatten().tolist()
    ([[1.0, 1.0], [0.0, 2.0], [0.0, 3.0]], [1.0, 3.0])
    """
    order = torch.argsort(lengths, descending=True, stable=True)
    falling = lengths[order].tolist()
    drive, now = drive.index_select(1, order), start.index_select(0, order)
    begin, pieces, ends = 0, [], []
    for stop in sorted(set(falling)):
        running = sum(length >= stop for length in falling)
        piece = run(drive[begin:stop, :running], now)
        pieces.append(F.pad(piece, (0, 0, 0, len(falling) - running)))
        still = sum(length > stop for length in falling)
        ends.append(piece[-1, still:])
        begin, now = stop, piece[-1, :still]
    pieces.append(drive.new_zeros(drive.shape[0] - begin, *start.shape, dtype=start.dtype))
    back = torch.argsort(order)
    return torch.cat(pieces).index_select(1, back), torch.cat(ends[::-1]).index_select(0, back)

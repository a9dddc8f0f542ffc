"""States that a recurrence passes on its way through the data, with the inputs met there."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.audits.stability.recurrence_trace import RecurrenceTrace
from sostenuto.checks import InputError


@dataclass(frozen=True, eq=False)
class StateSamples:
    """States before a step, the input read in it, and the states after it; one row each."""

    before: Float[Tensor, "point state"]
    inputs: Float[Tensor, "point channel"]
    after: Float[Tensor, "point state"]


def sample_states(trace: RecurrenceTrace, most: int, *, batch_size: int = 64) -> StateSamples:
    """Let the recurrence read its data and keep at most ``most`` steps, spread evenly over sequences and time."""
    count = len(trace.inputs)
    rows = torch.linspace(0, count - 1, min(count, most)).round().long().unique()
    each = max(1, most // len(rows))
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    with torch.no_grad():
        for part in rows.split(batch_size):
            kept.extend(_walk(trace, part, each))
    before, inputs, after = (torch.cat(column)[:most] for column in zip(*kept, strict=True))
    if not bool(after.isfinite().all()):
        raise InputError(
            "expected finite states along the data, got overflow; use a smaller step or shorter sequences."
        )
    return StateSamples(before, inputs, after)


def _walk(trace: RecurrenceTrace, rows: Tensor, each: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    h, lengths, inputs = trace.starts[rows], trace.lengths[rows], trace.inputs[rows]
    # The step numbers kept of each sequence: the first, the last and those between.
    places = (torch.linspace(0, 1, each)[None] * (lengths[:, None] - 1)).round().long()
    kept = []
    for step in range(int(lengths.max())):
        moved = trace.map.advance(h, inputs[:, step])
        chosen = (places == step).any(1)
        if bool(chosen.any()):
            kept.append((h[chosen], inputs[chosen, step], moved[chosen]))
        h = torch.where((lengths > step)[:, None], moved, h)
    return kept

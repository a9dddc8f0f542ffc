"""Sequences of several lengths as groups of one length each, and which of them are equal by value."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

Series = Float64[Tensor, "_ channel"]


def by_length(sequences: Sequence[Series]) -> dict[int, list[int]]:
    """List the indices of the sequences of each length.

    >>> by_length([torch.zeros(2, 1, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64)])
    {2: [0], 3: [1]}
    """
    groups: dict[int, list[int]] = {}
    for index, sequence in enumerate(sequences):
        groups.setdefault(len(sequence), []).append(index)
    return groups


def identities(*sides: Sequence[Series]) -> list[Tensor]:
    """Give a number to each distinct sequence of several lists: equal numbers mean equal length and values.

    >>> one, two = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    >>> [numbers.tolist() for numbers in identities([one, two], [two])]
    [[0, 1], [1]]
    """
    known: dict[bytes, int] = {}

    def number(sequence: Series) -> int:
        # Adding 0 turns −0 into 0, which has the same value but other bytes.
        return known.setdefault((sequence.detach().cpu() + 0.0).contiguous().numpy().tobytes(), len(known))

    return [torch.tensor([number(sequence) for sequence in side]) for side in sides]


def same(left: Tensor, right: Tensor) -> Bool[Tensor, "row column"]:
    """Say which pairs have the same number."""
    return left[:, None] == right[None, :]

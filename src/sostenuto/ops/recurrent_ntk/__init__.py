"""The GP kernel and the neural tangent kernel of an infinitely wide RNN: check, choose a backend, apply."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from sostenuto.checks import check_choice
from sostenuto.ops.recurrent_ntk.duals import Dual, dual_of
from sostenuto.ops.recurrent_ntk.profile import Profile, profile
from sostenuto.ops.recurrent_ntk.ragged import Series, by_length, identities, same
from sostenuto.ops.recurrent_ntk.reference import pairs_reference, pooling_weights
from sostenuto.ops.recurrent_ntk.scales import Scales

__all__ = ["KINDS", "POOLINGS", "Scaled", "Scales", "recurrent_ntk", "recurrent_ntk_diagonal"]

KINDS = ("ntk", "nngp")
POOLINGS = ("last", "mean")
Activation = str | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Scaled:
    """A matrix beyond float64: entry (i, j) is values_ij · exp(rows_i + columns_j)."""

    values: Float64[Tensor, "row column"]
    rows: Float64[Tensor, " row"]
    columns: Float64[Tensor, " column"]


def recurrent_ntk(
    left: Sequence[Series],
    right: Sequence[Series] | None,
    scales: Scales,
    *,
    activation: Activation = "relu",
    kind: str = "ntk",
    pooling: str = "last",
) -> Scaled:
    """Return Θ(x, y), or the GP kernel 𝒦(x, y), for every pair of sequences of any lengths.

    Reference: paper 004, Theorem 1 and eqs. (11)–(19), corrected as in docs/errata.md (004.1–004.4). ``right=None`` means
    ``left`` again. The units of a rectifier's kernel are kept as logarithms, so that no length and no σ overflows.

    >>> x = [torch.tensor([[1.0], [-1.0]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)]
    >>> recurrent_ntk(x, None, Scales.of(w=1.0)).values.shape
    torch.Size([2, 2])
    """
    check_choice("kind", kind, KINDS)
    check_choice("pooling", pooling, POOLINGS)
    dual = dual_of(activation)
    other = left if right is None else right
    numbers = identities(left, other)
    rows = _groups(left, scales, dual)
    columns = rows if right is None else _groups(other, scales, dual)
    values = torch.zeros(len(left), len(other), dtype=torch.float64)
    for first, one in rows:
        for second, two in columns:
            equal = same(numbers[0][first], numbers[1][second])
            block = pairs_reference(one, two, equal, dual, kind=kind, pooling=pooling)
            values = values.index_put((first[:, None], second[None, :]), block)
    return Scaled(values, _units(rows, len(left), pooling), _units(columns, len(other), pooling))


def recurrent_ntk_diagonal(
    sequences: Sequence[Series],
    scales: Scales,
    *,
    activation: Activation = "relu",
    kind: str = "ntk",
    pooling: str = "last",
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"]]:
    """Return k(x, x) of every sequence as a number and the logarithm of its unit: k = number · exp(2 · logarithm)."""
    check_choice("kind", kind, KINDS)
    check_choice("pooling", pooling, POOLINGS)
    dual = dual_of(activation)
    groups = _groups(sequences, scales, dual)
    values = torch.zeros(len(sequences), dtype=torch.float64)
    for indices, group in groups:
        if pooling == "last":
            own = (group.nngp if kind == "nngp" else group.ntk)[:, -1]
        else:
            own = torch.stack([_alone(group, n, dual, kind) for n in range(len(indices))])
        values = values.index_put((indices,), own)
    return values, _units(groups, len(sequences), pooling)


def _alone(group: Profile, n: int, dual: Dual, kind: str) -> Tensor:
    """Return the mean-pooled k(x, x) of one sequence: all its diagonals."""
    one = group.select(n)
    return pairs_reference(one, one, torch.ones(1, 1, dtype=torch.bool), dual, kind=kind, pooling="mean")[0, 0]


def _groups(sequences: Sequence[Series], scales: Scales, dual: Dual) -> list[tuple[Tensor, Profile]]:
    return [
        (torch.tensor(indices), profile(torch.stack([sequences[i] for i in indices]), scales, dual))
        for indices in by_length(sequences).values()
    ]


def _units(groups: list[tuple[Tensor, Profile]], count: int, pooling: str) -> Tensor:
    units = torch.zeros(count, dtype=torch.float64)
    for indices, group in groups:
        units = units.index_put((indices,), group.log_unit[:, -1] if pooling == "last" else pooling_weights(group)[1])
    return units

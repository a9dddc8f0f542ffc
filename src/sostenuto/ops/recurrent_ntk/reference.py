"""What the recurrent NTK means, in plain torch: a loop over time on normalized covariances, for autograd too."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from sostenuto.ops.recurrent_ntk.duals import Correlation, Dual, Moments
from sostenuto.ops.recurrent_ntk.profile import LayerProfile, Profile

Pairs = Float64[Tensor, "row column"]


@dataclass(frozen=True)
class State:
    """A, the loss αα′ − A, which vanishes for equal sequences, and p = A′Θ of one layer."""

    value: Pairs
    loss: Pairs
    tangent: Pairs


def pairs_reference(
    left: Profile, right: Profile, equal: Bool[Tensor, "row column"], dual: Dual, *, kind: str, pooling: str
) -> Pairs:
    """Return the kernel between two groups of sequences, each of one length, in units of exp(log_unit).

    With A the covariance of activations, A′ its slope and p = A′Θ, a step of layer ℓ is

        C = d_x d_y A_{t−1} + ⟨inputs⟩ + bias,   Θ = C + d_x d_y p_{t−1} + e_x e_y p^{ℓ−1}_t,

    along the diagonal t′ − t = T′ − T: gradients meet there alone, and the recursion of Σ stays on it. Mean pooling
    takes every diagonal. Reference: alemohammad2021, eqs. (11)–(19), with docs/errata.md,
    alemohammad2021.1–alemohammad2021.4.
    """
    if pooling == "last":
        steps = min(left.steps, right.steps)
        *_, (covariance, tangent) = _diagonal(left, right, left.steps - steps, right.steps - steps, equal, dual)
        return covariance if kind == "nngp" else covariance + tangent
    weights = [pooling_weights(side)[0] for side in (left, right)]
    total = torch.zeros(equal.shape, dtype=torch.float64)
    for offset in range(-(left.steps - 1), right.steps):
        i, j = max(-offset, 0), max(offset, 0)
        start = equal if offset == 0 else torch.zeros_like(equal)
        for step, (covariance, tangent) in enumerate(_diagonal(left, right, i, j, start, dual)):
            value = covariance if kind == "nngp" else covariance + tangent
            total = total + weights[0][:, i + step, None] * weights[1][None, :, j + step] * value
    return total


def pooling_weights(side: Profile) -> tuple[Float64[Tensor, "n time"], Float64[Tensor, " n"]]:
    """Split each step's share of a mean, unit_t / T, into a number of at most 1 / T and the largest's logarithm."""
    largest = side.log_unit.detach().amax(1)
    largest = torch.where(torch.isinf(largest), 0.0, largest)
    return torch.exp(side.log_unit - largest[:, None]) / side.steps, largest


def _diagonal(
    left: Profile, right: Profile, i: int, j: int, equal: Bool[Tensor, "row column"], dual: Dual
) -> Iterator[tuple[Pairs, Pairs]]:
    """Yield A and p of the top layer from steps i and j on, until one of the sequences ends."""
    nothing = torch.zeros(equal.shape, dtype=torch.float64)
    states = []
    for one, other in zip(left.layers, right.layers, strict=True):
        roots = one.before[:, i, None] * other.before[None, :, j]
        states.append(State(roots * equal, roots * ~equal, nothing))
    while i < left.steps and j < right.steps:
        below = None
        for index, (one, other) in enumerate(zip(left.layers, right.layers, strict=True)):
            below = states[index] = _step(one, other, i, j, states[index], below, dual)
        yield states[-1].value, states[-1].tangent
        i, j = i + 1, j + 1


def _step(
    left: LayerProfile, right: LayerProfile, i: int, j: int, state: State, below: State | None, dual: Dual
) -> State:
    """Move one layer by one step."""
    x, y = _at(left.moments, i, 1), _at(right.moments, j, 0)
    gap = (x.gap + y.gap) / 2
    carried, tangent = _carried(left, right, "recurrent", "before", i, j, state)
    if below is None:
        assert left.inputs is not None
        assert right.inputs is not None
        entering, more = _product(left.inputs[:, None, i], right.inputs[None, :, j]), torch.zeros_like(tangent)
    else:
        entering, more = _carried(left, right, "below", "below_root", i, j, below)
    bias = _product(left.bias[:, i, None, None], right.bias[None, :, j, None])
    cosine = carried.cosine + entering.cosine + bias.cosine
    delta = (carried.delta + entering.delta + bias.delta + gap).clamp(0, 2)
    at = Correlation(cosine, delta, (carried.epsilon + entering.epsilon + bias.epsilon + gap).clamp(0, 2))
    paired = dual.pair(at, x, y)
    return State(paired.value, paired.loss, paired.slope * (cosine + tangent + more))


def _product(one: Tensor, other: Tensor) -> Correlation:
    """Return what the product of two vectors adds to C, 1 − C and 1 + C."""
    return Correlation((one * other).sum(2), ((one - other) ** 2).sum(2) / 2, ((one + other) ** 2).sum(2) / 2)


def _carried(
    left: LayerProfile, right: LayerProfile, factor: str, root: str, i: int, j: int, state: State
) -> tuple[Correlation, Pairs]:
    """Return what a state adds to C, 1 − C, 1 + C and to Θ, the last three without a difference of near numbers."""
    d, f = getattr(left, factor)[:, i, None], getattr(right, factor)[None, :, j]
    a, c = getattr(left, root)[:, i, None], getattr(right, root)[None, :, j]
    apart = (d * a - f * c) ** 2 / 2 + d * f * state.loss
    along = ((d * a) ** 2 + (f * c) ** 2) / 2 + d * f * state.value
    return Correlation(d * f * state.value, apart, along), d * f * state.tangent


def _at(moments: Moments, step: int, axis: int) -> Moments:
    """Take one step of a group, as a column (axis 1) or a row (axis 0) of a matrix of pairs."""
    parts = (moments.inverse, moments.gap, moments.root, moments.slope, moments.unit)
    coefficients = None if moments.coefficients is None else moments.coefficients[:, step].unsqueeze(axis)
    inverse, gap, root, slope, unit = (part[:, step].unsqueeze(axis) for part in parts)
    return Moments(inverse, gap, root, slope, unit, coefficients)

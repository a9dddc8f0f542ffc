"""Every Σ and Π of one pair of sequences, unscaled, as the paper writes them: for study and as a second opinion."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from sostenuto.ops.recurrent_ntk.duals import Correlation, Dual, Moments
from sostenuto.ops.recurrent_ntk.ragged import Series
from sostenuto.ops.recurrent_ntk.scales import Scales

Table = Float64[Tensor, "layer first second"]


@dataclass(frozen=True)
class Covariances:
    """``sigma`` and ``pi`` at (layer, t, t′), 𝒦 of the read-out; the NTK is Σ Π·Σ + 𝒦 (alemohammad2021, eq. (11))."""

    sigma: Table
    pi: Table
    nngp: Float64[Tensor, ""]

    @property
    def ntk(self) -> Float64[Tensor, ""]:
        """Θ(x, y)."""
        return (self.sigma * self.pi).sum() + self.nngp


def covariances(x: Series, y: Series, scales: Scales, dual: Dual, *, pooling: str = "last") -> Covariances:
    """Return Σ and Π of alemohammad2021, eqs. (13)–(18), corrected (docs/errata.md, alemohammad2021.2–3)."""
    own = [_variances(side, scales, dual) for side in (x, y)]
    equal = x.shape == y.shape and torch.equal(x, y)
    sigma, covariance, slope = _forward(x, y, own[0], own[1], equal, scales, dual)
    share = torch.zeros(len(x), len(y), dtype=torch.float64)
    if pooling == "last":
        share[-1, -1] = 1.0
    else:
        share[:] = 1.0 / (len(x) * len(y))
    pi = torch.zeros_like(sigma)
    for layer in reversed(range(len(sigma))):
        top = layer + 1 == len(sigma)
        above = scales.v**2 * share if top else scales.u[layer + 1] ** 2 * pi[layer + 1]
        following = torch.zeros(len(y) + 1, dtype=torch.float64)
        for t in reversed(range(len(x))):
            pi[layer, t] = slope[layer, t] * (scales.w[layer] ** 2 * following[1:] + above[t])
            following = torch.cat([pi[layer, t], torch.zeros(1, dtype=torch.float64)])
    return Covariances(sigma, pi, scales.v**2 * (share * covariance[-1]).sum())


def _forward(
    x: Series, y: Series, one: list[Moments], other: list[Moments], equal: bool, scales: Scales, dual: Dual
) -> tuple[Table, Table, Table]:
    """Return Σ, V_φ[Σ] and V_φ′[Σ] of every layer at every (t, t′); 1 ∓ C are summed as in the reference."""
    tables = torch.zeros(4, len(one), len(x), len(y), dtype=torch.float64)
    sigma, covariance, slope, losses = tables
    shape = len(x), len(y)
    inputs = (
        (x[:, None] / math.sqrt(x.shape[1])).expand(*shape, -1),
        (y[None] / math.sqrt(x.shape[1])).expand(*shape, -1),
    )
    entering = _Part(*inputs, (inputs[0] * inputs[1]).sum(2), torch.zeros(shape, dtype=torch.float64))
    for layer, (left, right) in enumerate(zip(one, other, strict=True)):
        if layer > 0:
            sizes = one[layer - 1].unit * one[layer - 1].root, other[layer - 1].unit * other[layer - 1].root
            apart = sizes[0][:, None, None].expand(*shape, 1), sizes[1][None, :, None].expand(*shape, 1)
            entering = _Part(*apart, covariance[layer - 1], losses[layer - 1])
        w2, u2, b2, h = scales.w[layer] ** 2, scales.u[layer] ** 2, scales.b[layer] ** 2, scales.h[layer]
        ours, theirs = (torch.cat([h[None], (side.unit * side.root)[:-1]]) for side in (left, right))
        before, lost = torch.zeros(len(y), dtype=torch.float64), h * theirs
        before[0], lost[0] = h**2 * equal, h**2 * (not equal)
        for t in range(len(x)):
            parts: dict[str, Any] = {name: None if part is None else part[t] for name, part in vars(left).items()}
            at = Moments(**parts)
            carried = _Part(ours[t].expand(len(y), 1), theirs[:, None], before, lost)
            bias = torch.ones(len(y), 1, dtype=torch.float64)
            terms = (w2, carried), (u2, entering.row(t)), (b2, _Part(bias, bias, bias[:, 0], 0 * before))
            ends = [
                sum(factor * part.ends(at.inverse, right.inverse)[sign] for factor, part in terms) for sign in (0, 1)
            ]
            gap = (at.gap + right.gap) / 2
            row = w2 * before + u2 * entering.product[t] + b2
            correlation = Correlation(row * at.inverse * right.inverse, *((end + gap).clamp(0, 2) for end in ends))
            paired, units = dual.pair(correlation, at, right), at.unit * right.unit
            sigma[layer, t], covariance[layer, t], losses[layer, t] = row, units * paired.value, units * paired.loss
            slope[layer, t] = units * at.inverse * right.inverse * paired.slope
            nothing = torch.zeros(1, dtype=torch.float64)
            before = torch.cat([nothing, covariance[layer, t, :-1]])
            lost = torch.cat([(ours[t + 1] * h)[None] if t + 1 < len(x) else nothing, losses[layer, t, :-1]])
    return sigma, covariance, slope


@dataclass(frozen=True)
class _Part:
    """A contribution to Σ of pairs: the sides' vectors, their covariance, and what it lacks of their product."""

    left: Tensor
    right: Tensor
    product: Tensor
    loss: Tensor

    def row(self, t: int) -> "_Part":
        """Take one step of the left side."""
        return _Part(self.left[t], self.right[t], self.product[t], self.loss[t])

    def ends(self, r: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return what it adds to 1 − C and 1 + C under the normalizations r and s."""
        one, other = r * self.left, s[:, None] * self.right
        apart = ((one - other) ** 2).sum(1) / 2 + r * s * self.loss
        return apart, ((one + other) ** 2).sum(1) / 2 - r * s * self.loss


def _variances(x: Series, scales: Scales, dual: Dual) -> list[Moments]:
    """Return the moments of one sequence at every step, a record a layer."""
    entering = (x**2).sum(1) / x.shape[1]
    layers = []
    for w, u, b, h in zip(scales.w, scales.u, scales.b, scales.h, strict=True):
        before, derivatives = h**2, []
        for t in range(len(x)):
            moments = dual.moments((w**2 * before + u**2 * entering[t] + b**2)[None])
            before = (moments.unit * moments.root)[0] ** 2
            derivatives.append(moments)
        columns = {name: [getattr(moments, name) for moments in derivatives] for name in vars(derivatives[0])}
        parts: dict[str, Any] = {n: None if part[0] is None else torch.cat(part) for n, part in columns.items()}
        stacked = Moments(**parts)
        layers.append(stacked)
        entering = (stacked.unit * stacked.root) ** 2
    return layers

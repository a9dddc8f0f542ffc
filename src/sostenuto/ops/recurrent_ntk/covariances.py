"""Every Σ and Π of one pair of sequences, unscaled, as the paper writes them: for study and as a second opinion."""

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
    """``sigma`` and ``pi`` at (layer, t, t′), and 𝒦 of the read-out; the NTK is Σ Π·Σ + 𝒦 (paper 004, eq. (11))."""

    sigma: Table
    pi: Table
    nngp: Float64[Tensor, ""]

    @property
    def ntk(self) -> Float64[Tensor, ""]:
        """Θ(x, y)."""
        return (self.sigma * self.pi).sum() + self.nngp


def covariances(x: Series, y: Series, scales: Scales, dual: Dual, *, pooling: str = "last") -> Covariances:
    """Return Σ and Π of paper 004, eqs. (13)–(18), at every (ℓ, t, t′), as corrected in docs/errata.md, 004.2–3."""
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
    """Return Σ, V_φ[Σ] and V_φ′[Σ] of every layer at every (t, t′)."""
    tables = torch.zeros(3, len(one), len(x), len(y), dtype=torch.float64)
    sigma, covariance, slope = tables
    products = x @ y.mT / x.shape[1]
    for layer, (left, right) in enumerate(zip(one, other, strict=True)):
        entering = products if layer == 0 else covariance[layer - 1]
        before = torch.zeros(len(y), dtype=torch.float64)
        before[0] = scales.h[layer] ** 2 * equal
        for t in range(len(x)):
            row = scales.w[layer] ** 2 * before + scales.u[layer] ** 2 * entering[t] + scales.b[layer] ** 2
            parts: dict[str, Any] = {name: None if part is None else part[t] for name, part in vars(left).items()}
            at = Moments(**parts)
            c = (row * at.inverse * right.inverse).clamp(-1, 1)
            gap = (at.gap + right.gap) / 2
            paired = dual.pair(Correlation(c, torch.maximum(1 - c, gap), torch.maximum(1 + c, gap)), at, right)
            sigma[layer, t] = row
            covariance[layer, t] = at.unit * right.unit * paired.value
            slope[layer, t] = at.unit * right.unit * at.inverse * right.inverse * paired.slope
            before = torch.cat([torch.zeros(1, dtype=torch.float64), covariance[layer, t, :-1]])
    return sigma, covariance, slope


def _variances(x: Series, scales: Scales, dual: Dual) -> list[Moments]:
    """Return the moments of one sequence at every step, a record a layer."""
    entering = (x**2).sum(1) / x.shape[1]
    layers = []
    for w, u, b, h in zip(scales.w, scales.u, scales.b, scales.h, strict=True):
        before, found = h**2, []
        for t in range(len(x)):
            moments = dual.moments((w**2 * before + u**2 * entering[t] + b**2)[None])
            before = (moments.unit * moments.root)[0] ** 2
            found.append(moments)
        columns = {name: [getattr(moments, name) for moments in found] for name in vars(found[0])}
        parts: dict[str, Any] = {n: None if part[0] is None else torch.cat(part) for n, part in columns.items()}
        stacked = Moments(**parts)
        layers.append(stacked)
        entering = (stacked.unit * stacked.root) ** 2
    return layers

"""The dual of any activation: its kinks in closed form, the smooth rest by a Hermite series fitted to the variances."""

import math
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sostenuto.checks import require
from sostenuto.ops.recurrent_ntk.duals import Correlation, Moments, Paired, Values, safe_root
from sostenuto.ops.recurrent_ntk.hinges import (
    Hinges,
    derivative,
    find_hinges,
    hinge_coefficients,
    hinges_equal,
    hinges_pair,
)

FEWEST, MOST = 128, 2048
"""Terms of the series: doubled from the fewest until the error is below ``GOAL``."""
GOAL, LIMIT = 1e-12, 1e-4
"""Relative errors of A and A′: what is aimed at, and beyond what a kernel is refused."""
RANGE, POINTS = 13.0, 16
"""Averages run over |z| ≤ 13, where e^{−z²/4} falls to 1e-18, on panels of 16 Gauss–Legendre points."""


class Quadrature:
    """Any activation: φ = hinges + s, A(C) = E[hinges·hinges] + Σ_k (a_k a_k′ − r_k r_k′) C^k.

    Hinges J(x − κ)₊ carry the kinks of φ; their covariance has a closed form. a_k = s_k + r_k are Hermite's
    coefficients E[φ(√Σ z) He_k(z)] / √k!, those of s by quadrature and those r_k of the hinges in closed form. The
    slope is the derivative of the same sum. ``terms`` are kept; `error` bounds what is left out by Parseval's equation.

    >>> dual = Quadrature(torch.erf)
    >>> float(dual.error(torch.tensor([0.5], dtype=torch.float64))) < 1e-12
    True
    """

    scale_free = False
    start_root = 1.0

    def __init__(self, function: Callable[[Tensor], Tensor], terms: int = 128, hinges: Hinges | None = None) -> None:
        self.function, self.terms = function, terms
        self.hinges = find_hinges(function) if hinges is None else hinges

    def fitted(self, variances: Callable[["Quadrature"], Iterable[Tensor]]) -> "Quadrature":
        """Add terms until the error at the ``variances`` that a dual meets is below the goal; refuse what stays above.

        Returns:
            The same dual with as many terms as needed.
        """
        dual, rough = Quadrature(self.function, FEWEST, self.hinges), math.inf
        grid, errors = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        while rough > 0.01:
            # A hundredth more than was met: a rough dual is off by its own error.
            met = torch.cat([each.flatten() for each in variances(dual)])
            if len(met) == 0:
                return dual
            low, high = math.log10(float(met.min())), math.log10(1.01 * float(met.max()))
            grid = torch.logspace(low, high, 33, dtype=torch.float64)
            errors = dual.error(grid)
            rough, least = float(errors.max()), 2 * float(dual.rounding(grid).max())
            while float(errors.max()) > max(GOAL, least) and dual.terms < MOST:
                dual = Quadrature(self.function, 2 * dual.terms, self.hinges)
                errors = dual.error(grid)
            if dual.terms == MOST:
                break
        worst = float(errors.max())
        deviation = float(grid[errors.argmax()].sqrt())
        require(
            worst <= LIMIT,
            f"expected an activation whose averages converge to {LIMIT:g}",
            f"got a relative error of {worst:.2g} with {dual.terms} terms at a standard deviation of {deviation:.3g}",
            "scale the inputs or σ down, or take activation='erf' or 'relu'",
        )
        return dual

    @cached_property
    def rule(self) -> tuple[Tensor, Tensor]:
        """Return the nodes, and Hermite's normalized polynomials there times the nodes' probabilities."""
        points, weights = self._nodes(1)
        wave = np.exp(-(points**2) / 4)
        scaled = weights * wave / math.sqrt(2 * math.pi)
        rows, before, now = [], np.zeros_like(points), wave
        for k in range(self.terms):
            rows.append(now * scaled)
            before, now = now, (points * now - math.sqrt(k) * before) / math.sqrt(k + 1)
        return torch.from_numpy(points), torch.from_numpy(np.stack(rows))

    def moments(self, variance: Values) -> Moments:
        """Normalize by the standard deviation; the coefficients, s_k then r_k, hold the rest."""
        there = variance > 0
        deviation = torch.where(there, torch.sqrt(torch.where(there, variance, 1.0)), 0.0)
        inverse = torch.where(there, 1.0 / torch.where(there, deviation, 1.0), 0.0)
        points, weighted = self.rule
        smooth = self._smooth(deviation[..., None] * points) @ weighted.mT
        bent = torch.zeros_like(smooth)
        for place, jump in self.hinges.pairs:
            bent = bent + jump * deviation[..., None] * hinge_coefficients(place * inverse, self.terms)
        weight = smooth * (smooth + 2 * bent)
        square, slope = self._own_hinges(deviation, inverse)
        order = torch.arange(self.terms, dtype=torch.float64)
        root = safe_root(square + weight.sum(-1))
        slope = slope + (weight * order).sum(-1)
        return Moments(
            inverse, torch.zeros_like(root), root, slope, torch.ones_like(root), torch.stack([smooth, bent], -2)
        )

    def pair(self, at: Correlation, left: Moments, right: Moments) -> Paired:
        """Return A, the loss αα′ − A and the slope A′: the series by Horner's rule in C, and the hinges."""
        assert left.coefficients is not None
        assert right.coefficients is not None
        cosine = at.cosine.clamp(-1, 1)
        # The terms come first, so that a term of all pairs lies together.
        (s, r), (t, q) = (
            side.movedim(-1, 0).contiguous().unbind(-1) for side in (left.coefficients, right.coefficients)
        )
        value, slope = torch.zeros_like(cosine), torch.zeros_like(cosine)
        for k in reversed(range(self._counting(left, right))):
            slope = slope * cosine + value
            term = s[k] * (t[k] + q[k]) + r[k] * t[k] if self.hinges.places else s[k] * t[k]
            value = value * cosine + term
        ends = at.delta.clamp(0, 2), at.epsilon.clamp(0, 2)
        deviations = [torch.where(m.inverse > 0, 1 / m.inverse.clamp(min=1e-300), 0.0) for m in (left, right)]
        size = deviations[0] * deviations[1]
        for one, jump in self.hinges.pairs:
            for other, jump2 in self.hinges.pairs:
                h, k = torch.broadcast_tensors(one * left.inverse, other * right.inverse)
                both, corner = hinges_pair(h, k, *ends, (one < 0, other < 0))
                value, slope = value + jump * jump2 * size * both, slope + jump * jump2 * size * corner
        loss = left.root * right.root - value
        return Paired(value, loss.clamp(min=0) if self.hinges.places else loss, slope)

    def error(self, variance: Values) -> Values:
        """Bound the relative error of A and A′ of two sequences of these variances, at any C.

        By Parseval E[s²] − Σ s_k² is what the series of s leaves out, and E[s′²]Σ − Σ k s_k² what its derivative does,
        with the averages on twice as many panels; products with the hinges leave out at most √(product of both).

        >>> variances = torch.tensor([0.25, 1.0, 4.0], dtype=torch.float64)
        >>> Quadrature(torch.tanh).error(variances) < torch.tensor([1e-12, 1e-9, 1e-3])
        tensor([True, True, True])
        """
        moments = self.moments(variance)
        assert moments.coefficients is not None
        deviation = variance.sqrt()
        points, weights = (torch.from_numpy(part) for part in self._nodes(2))
        weights = weights * torch.exp(-(points**2) / 2) / math.sqrt(2 * math.pi)
        x = deviation[..., None] * points
        slopes = (derivative(self.function, x) - self.hinges.slope(x)) * deviation[..., None]
        smooth, bent = (part**2 for part in moments.coefficients.unbind(-2))
        order = torch.arange(self.terms, dtype=torch.float64)
        own = self._own_hinges(deviation, moments.inverse)
        worst = torch.zeros_like(variance)
        whole = moments.root**2, moments.slope
        for size, weight, hinge, total in zip(
            (self._smooth(x), slopes), (1 + 0 * order, order), own, whole, strict=True
        ):
            square = size**2 @ weights
            left = ((square - (smooth * weight).sum(-1)).abs() - 1e-14 * square).clamp(min=0)
            beside = (hinge - (bent * weight).sum(-1)).clamp(min=0)
            worst = torch.maximum(worst, (left + 2 * (left * beside).sqrt()) / total.abs().clamp(min=1e-300))
        return torch.nan_to_num(worst, nan=math.inf) + self.rounding(variance, moments)

    def rounding(self, variance: Values, moments: Moments | None = None) -> Values:
        """Return what rounding leaves of hinges, which cancel each other far from their places, and near C = ±1."""
        moments = self.moments(variance) if moments is None else moments
        size = sum(abs(jump) for jump in self.hinges.jumps) ** 2 * variance
        least = torch.minimum(moments.root**2, moments.slope.abs()).clamp(min=1e-300)
        return 1e-14 + 1e-15 * size / least + (2e-8 if self.hinges.places else 0.0)

    def _counting(self, left: Moments, right: Moments) -> int:
        """Count the terms that reach 1e-17 of a slope for any of these pairs."""
        sides = []
        for side in (left, right):
            assert side.coefficients is not None
            size = (
                side.coefficients.detach().abs().sum(-2) / side.slope.detach().abs().sqrt().clamp(min=1e-150)[..., None]
            )
            sides.append(size.reshape(-1, self.terms).amax(0))
        reached = (sides[0] * sides[1] * torch.arange(1, self.terms + 1) > 1e-17).nonzero()
        return int(reached.max()) + 1 if len(reached) else 1

    def _smooth(self, x: Values) -> Values:
        return self.function(x) - self.hinges(x)

    def _own_hinges(self, deviation: Values, inverse: Values) -> tuple[Values, Values]:
        """Return E[hinges²] and Σ·E[hinges′²]."""
        square, slope = torch.zeros_like(deviation), torch.zeros_like(deviation)
        for one, jump in self.hinges.pairs:
            for other, jump2 in self.hinges.pairs:
                both, tail = hinges_equal(min(one, other) * inverse, max(one, other) * inverse)
                square = square + jump * jump2 * deviation**2 * both
                slope = slope + jump * jump2 * deviation**2 * tail
        return square, slope

    def _nodes(self, finer: int) -> tuple[np.ndarray, np.ndarray]:
        """Return nodes and weights on panels that resolve He_k of the last term; 0 is an edge."""
        panels = 2 * finer * math.ceil(RANGE * max(math.sqrt(self.terms) / 8, 1.0))
        edges = np.linspace(-RANGE, RANGE, panels + 1)
        points, weights = np.polynomial.legendre.leggauss(POINTS)
        half = (edges[1:] - edges[:-1])[:, None] / 2
        return ((edges[1:] + edges[:-1])[:, None] / 2 + half * points).ravel(), (half * weights).ravel()

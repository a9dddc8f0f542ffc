"""The dual of an activation: what E[φ(z₁)φ(z₂)] of two correlated Gaussians does to their covariance.

Covariances are kept normalized, C = r_x r_y Σ, and beside C its distances from both ends, δ = 1 − C and ε = 1 + C: the
derivatives of arccos are infinite at the ends, so that a C rounded to 1 has half its digits in the kernel. C itself is
kept as well: of small inputs the error function's C is small, and 1 − δ has none of its digits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

Values = Float64[Tensor, "..."]


@dataclass(frozen=True)
class Moments:
    """What one sequence contributes at one step, to be kept for pairs.

    ``inverse`` is r, ``gap`` is 1 − r²Σ(x, x), ``root`` is α = √A(x, x) and ``slope`` is dA/dC there; the covariance of
    activations is A times the product of the two sequences' ``unit``; ``coefficients`` are Hermite's, of a quadrature.
    """

    inverse: Values
    gap: Values
    root: Values
    slope: Values
    unit: Values
    coefficients: Values | None = None


@dataclass(frozen=True)
class Correlation:
    """C of some pairs, δ = 1 − C and ε = 1 + C, each to its own digits."""

    cosine: Values
    delta: Values
    epsilon: Values


@dataclass(frozen=True)
class Paired:
    """A, the loss αα′ − A and the slope A′ = dA/dC of some pairs; A′Θ is what a tangent takes from them."""

    value: Values
    loss: Values
    slope: Values


class ReLU:
    """The rectifier: A(C) = (C(π − θ) + sin θ) / 2π and A′(C) = (π − θ) / 2π with C = cos θ (docs/errata.md, 004.1)."""

    scale_free = True
    start_root = math.sqrt(0.5)

    def moments(self, variance: Values) -> Moments:
        """Normalize by the standard deviation: C is the correlation, and the unit is √Σ."""
        there = variance > 0
        unit = torch.sqrt(torch.where(there, variance, 1.0))
        half = torch.full_like(unit, 0.5)
        nothing = torch.zeros_like(unit)
        inverse = torch.where(there, 1.0 / unit, 0.0)
        return Moments(inverse, nothing, half.sqrt(), half, torch.where(there, unit, 0.0))

    def pair(self, at: Correlation, left: Moments, right: Moments) -> Paired:
        """Return A, the loss αα′ − A and the slope A′; the two sequences' moments are constants."""
        del left, right
        theta, rest, sine = angle(at.delta, at.epsilon)
        loss = at.delta / 2 - (sine - theta * (at.epsilon - at.delta) / 2) / (2 * math.pi)
        return Paired(0.5 - loss, loss, rest / (2 * math.pi))


class Erf:
    """The error function: A(C) = (2/π) arcsin C with C = 2Σ / √((1+2Σ(x,x))(1+2Σ(y,y))) (docs/errata.md, 004.1)."""

    scale_free = False
    start_root = 1.0

    def moments(self, variance: Values) -> Moments:
        """Normalize by √((1 + 2Σ)/2)."""
        inverse = torch.sqrt(2.0 / (1.0 + 2.0 * variance))
        gap = inverse**2 / 2
        value, sine = self._arcsine(Correlation(inverse**2 * variance, gap, 2 - gap))
        return Moments(inverse, gap, safe_root(value), 2 / (math.pi * sine), torch.ones_like(inverse))

    def pair(self, at: Correlation, left: Moments, right: Moments) -> Paired:
        """Return A, the loss αα′ − A and the slope A′."""
        value, sine = self._arcsine(at)
        return Paired(value, left.root * right.root - value, 2 / (math.pi * sine))

    @staticmethod
    def _arcsine(at: Correlation) -> tuple[Values, Values]:
        """Return (2/π) arcsin C and √(1 − C²): from C where it is small, and from the nearer end where it is not."""
        small = at.cosine.abs() < 0.5
        inner = torch.where(small, at.cosine, 0.0)
        theta, _, sine = angle(torch.where(small, 1.0, at.delta), torch.where(small, 1.0, at.epsilon))
        value = torch.where(small, torch.asin(inner), math.pi / 2 - theta) * 2 / math.pi
        return value, torch.where(small, torch.sqrt(1 - inner**2), sine)


class Quadrature:
    """Any activation, by the Hermite series of φ(√Σ·z): A(C) = Σ_k a_k(x) a_k(y) C^k.

    The coefficients a_k = E[φ(√Σ z) He_k(z)] / √k! come from Gauss–Hermite quadrature with ``nodes`` nodes; ``terms``
    of them are kept. The slope is the series' derivative, so φ′ is not asked for, and φ = abs or a leaky rectifier are
    allowed, though their series converges slowly. `error` states what was lost.

    >>> dual = Quadrature(torch.erf)
    >>> variance = torch.tensor([0.5], dtype=torch.float64)
    >>> float(dual.error(variance)) < 1e-12
    True
    """

    scale_free = False
    start_root = 1.0

    def __init__(self, function: Callable[[Tensor], Tensor], nodes: int = 200, terms: int = 120) -> None:
        self.function, self.nodes, self.terms = function, nodes, terms

    @cached_property
    def rule(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the nodes, their probabilities, and Hermite's normalized polynomials there times the probabilities."""
        points, weights = np.polynomial.hermite_e.hermegauss(self.nodes)
        weights = weights / weights.sum()
        rows = [np.ones_like(points), points]
        for k in range(1, self.terms - 1):
            rows.append((points * rows[k] - math.sqrt(k) * rows[k - 1]) / math.sqrt(k + 1))
        weighted = np.stack(rows) * weights
        return torch.from_numpy(points), torch.from_numpy(weights), torch.from_numpy(weighted)

    def moments(self, variance: Values) -> Moments:
        """Normalize by the standard deviation; the coefficients hold the rest."""
        there = variance > 0
        deviation = torch.where(there, torch.sqrt(torch.where(there, variance, 1.0)), 0.0)
        inverse = torch.where(there, 1.0 / torch.where(there, deviation, 1.0), 0.0)
        points, _, weighted = self.rule
        coefficients = self.function(deviation[..., None] * points) @ weighted.mT
        squared = coefficients**2
        order = torch.arange(self.terms, dtype=torch.float64)
        root = safe_root(squared.sum(-1))
        zero, one = torch.zeros_like(root), torch.ones_like(root)
        return Moments(inverse, zero, root, (squared * order).sum(-1), one, coefficients)

    def pair(self, at: Correlation, left: Moments, right: Moments) -> Paired:
        """Return A, the loss αα′ − A and the slope A′, by Horner's rule in C."""
        assert left.coefficients is not None
        assert right.coefficients is not None
        cosine = at.cosine.clamp(-1, 1)
        value, slope = torch.zeros_like(cosine), torch.zeros_like(cosine)
        for k in reversed(range(self.terms)):
            slope = slope * cosine + value
            value = value * cosine + left.coefficients[..., k] * right.coefficients[..., k]
        return Paired(value, left.root * right.root - value, slope)

    def error(self, variance: Values) -> Values:
        """Estimate the relative error of A and of A′ at C = 1: 20 times the last tenth's weight, (k+1) a_k².

        So much is left out where the weight falls as k^−³ᐟ², as after a kink; smooth functions lose less.

        It grows with Σ, for the function then looks steeper.

        >>> variances = torch.tensor([0.25, 1.0, 4.0], dtype=torch.float64)
        >>> Quadrature(torch.tanh).error(variances) < torch.tensor([1e-20, 1e-9, 1e-3])
        tensor([True, True, True])
        """
        coefficients = self.moments(variance).coefficients
        assert coefficients is not None
        weight = coefficients**2 * torch.arange(1, self.terms + 1, dtype=torch.float64)
        tail = weight[..., -(self.terms // 10) :].sum(-1)
        return tail * 20 / weight.sum(-1).clamp(min=1e-300)


Dual = ReLU | Erf | Quadrature


def dual_of(activation: str | Callable[[Tensor], Tensor]) -> Dual:
    """Return the closed form of ``"relu"`` or ``"erf"``, or the quadrature of a function on tensors."""
    if isinstance(activation, str):
        return {"relu": ReLU, "erf": Erf}[activation]()
    return Quadrature(activation)


def safe_root(value: Values) -> Values:
    """Return √value, with the derivative 0 at 0 instead of infinity times zero."""
    there = value > 0
    return torch.where(there, torch.sqrt(torch.where(there, value, 1.0)), 0.0)


def angle(delta: Values, epsilon: Values) -> tuple[Values, Values, Values]:
    """Return θ, π − θ and sin θ for δ = 1 − cos θ and ε = 1 + cos θ, each to full relative accuracy."""
    low, high = safe_root(delta), safe_root(epsilon)
    return 2 * torch.atan2(low, high), 2 * torch.atan2(high, low), low * high

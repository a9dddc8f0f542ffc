"""The dual of an activation: what E[φ(z₁)φ(z₂)] of two correlated Gaussians does to their covariance.

Covariances are kept normalized, C = r_x r_y Σ, and beside C its distances from both ends, δ = 1 − C and ε = 1 + C: the
derivatives of arccos are infinite at the ends, so that a C rounded to 1 has half its digits in the kernel. C itself is
kept as well: of small inputs the error function's C is small, and 1 − δ has none of its digits.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float64
from torch import Tensor

Values = Float64[Tensor, "..."]


@dataclass(frozen=True)
class Moments:
    """What one sequence contributes at one step, to be kept for pairs.

    ``inverse`` is r, ``gap`` is 1 − r²Σ(x, x), ``root`` is α = √A(x, x) and ``slope`` is dA/dC there; the covariance of
    activations is A times the product of the two sequences' ``unit``; ``coefficients`` are a quadrature's.
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


@runtime_checkable
class Dual(Protocol):
    """What the recursions need of an activation."""

    scale_free: bool
    """Whether A(cΣ) = c·A(Σ), so that variances beyond float64 are kept as powers of 2."""
    start_root: float

    def moments(self, variance: Values) -> Moments:
        """Return what a sequence of this variance contributes."""
        ...

    def pair(self, at: Correlation, left: Moments, right: Moments) -> Paired:
        """Return A, the loss and the slope of pairs at C."""
        ...


class ReLU:
    """The rectifier: A(C) = (C(π − θ) + sin θ) / 2π and A′(C) = (π − θ) / 2π with C = cos θ (alemohammad2021.1)."""

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
    """The error function: A(C) = (2/π) arcsin C with C = 2Σ / √((1+2Σ(x,x))(1+2Σ(y,y)))."""

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


def safe_root(value: Values) -> Values:
    """Return √value, with the derivative 0 at 0 instead of infinity times zero."""
    there = value > 0
    return torch.where(there, torch.sqrt(torch.where(there, value, 1.0)), 0.0)


def angle(delta: Values, epsilon: Values) -> tuple[Values, Values, Values]:
    """Return θ, π − θ and sin θ for δ = 1 − cos θ and ε = 1 + cos θ, each to full relative accuracy."""
    low, high = safe_root(delta), safe_root(epsilon)
    return 2 * torch.atan2(low, high), 2 * torch.atan2(high, low), low * high

"""Hinges (z − h)₊ of a Gaussian z: their means, covariances and Hermite coefficients, and the kinks of a function.

A function with kinks has a Hermite series that converges slowly. Kinks are hinges, whose averages have closed forms.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

Values = Float64[Tensor, "..."]
MOST = 16
"""Kinks looked for; a function with more is left to its series."""
_NODES, _WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(24))


@dataclass(frozen=True)
class Hinges:
    """Σ_j jump_j·(x − place_j)₊, places rising."""

    places: tuple[float, ...]
    jumps: tuple[float, ...]

    def __call__(self, x: Values) -> Values:
        """Return the sum at x."""
        return sum((jump * (x - place).clamp(min=0) for place, jump in self.pairs), torch.zeros_like(x))

    def slope(self, x: Values) -> Values:
        """Return the derivative, 0 to the left of a place."""
        return sum((jump * (x > place).to(x.dtype) for place, jump in self.pairs), torch.zeros_like(x))

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """Each place with its jump."""
        return tuple(zip(self.places, self.jumps, strict=True))


def derivative(function: Callable[[Tensor], Tensor], x: Values) -> Values:
    """Return φ′ by autograd; 0 where the function has no graph."""
    with torch.enable_grad():
        point = x.detach().clone().requires_grad_()
        value = function(point)
        if not value.requires_grad:
            return torch.zeros_like(x)
        return torch.autograd.grad(value.sum(), point)[0]


def find_hinges(function: Callable[[Tensor], Tensor]) -> Hinges:
    """Find where φ′ jumps: intervals in which it changes are halved until only a jump is left.

    Places up to ±1490 are looked for, on 8000 intervals that are the finer the nearer they are to 0.

    >>> find_hinges(torch.nn.functional.hardtanh)
    Hinges(places=(-1.0, 1.0), jumps=(1.0, -1.0))
    >>> find_hinges(torch.tanh)
    Hinges(places=(), jumps=())
    """
    edges = torch.sinh(torch.linspace(-8, 8, 8002, dtype=torch.float64))
    low, high = edges[:-1], edges[1:]
    slopes = derivative(function, edges)
    left, right = slopes[:-1], slopes[1:]
    least = 1e-7 * slopes.abs().max().clamp(min=1e-300)
    for _ in range(70):
        changed = (right - left).abs() > least
        low, high, left, right = low[changed], high[changed], left[changed], right[changed]
        middle = (low + high) / 2
        slope = derivative(function, middle)
        first = (slope - left).abs() >= (right - slope).abs()
        low, left = torch.where(first, low, middle), torch.where(first, left, slope)
        high, right = torch.where(first, middle, high), torch.where(first, slope, right)
    places = torch.where(high.abs() < 1e-12, 0.0, high)
    reach = 1e-9 * (1 + places.abs())
    jumps = derivative(function, places + reach) - derivative(function, places - reach)
    real = jumps.abs() > 10 * least
    values: dict[float, float] = {}
    for place, jump in zip(places[real].tolist(), jumps[real].tolist(), strict=True):
        if not any(abs(place - other) < 1e-8 * (1 + abs(place)) for other in values):
            values[round(place, 14)] = jump
    return Hinges(tuple(values), tuple(values.values())) if len(values) <= MOST else Hinges((), ())


def density(x: Values) -> Values:
    """Return the normal density."""
    return torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def beyond(x: Values) -> Values:
    """Return P(z > x) of a normal z."""
    return torch.special.erfc(x / math.sqrt(2)) / 2


def hinge_coefficients(h: Values, terms: int) -> Values:
    """Return E[(z − h)₊ He_k(z)] / √k! for k < terms, on a last axis: p(h) He_{k−2}(h)/√k! from k = 2 on.

    >>> hinge_coefficients(torch.zeros(1, dtype=torch.float64), 3)[0] * (2 * math.pi) ** 0.5
    tensor([1.0000, 1.2533, 0.7071], dtype=torch.float64)
    """
    wave = torch.exp(-(h**2) / 4)
    scale = wave / math.sqrt(2 * math.pi)
    columns = [density(h) - h * beyond(h), beyond(h)]
    before, now = torch.zeros_like(h), wave
    for k in range(2, terms):
        columns.append(scale * now / math.sqrt(k * (k - 1)))
        before, now = now, (h * now - math.sqrt(k - 2) * before) / math.sqrt(k - 1)
    return torch.stack(columns[:terms], -1)


def hinges_equal(low: Values, high: Values) -> tuple[Values, Values]:
    """Return E[(z − low)₊(z − high)₊] and P(z > high) of one z, low ≤ high."""
    tail = beyond(high)
    return (1 + low * high) * tail - low * density(high), tail


def hinges_pair(
    h: Values, k: Values, delta: Values, epsilon: Values, signs: tuple[bool, bool]
) -> tuple[Values, Values]:
    """Return G = E[(x − h)₊(y − k)₊] and L = P(x > h, y > k) of normal x, y with correlation ρ = 1 − δ = ε − 1.

    L is Owen's, and G = (ρ + hk)L − k p(h)Q((k−ρh)/s) − h p(k)Q((h−ρk)/s) + s/2π·exp(−(h²+k²−2ρhk)/2s²), s² = δε.
    ``signs`` say which of h and k are negative.
    """
    sine = _root(delta * epsilon).clamp(min=1e-150)
    m_h, m_k = (k - h) + delta * h, (h - k) + delta * k
    corner = _corner(h, k, delta, epsilon, sine, signs)
    square = ((h - k) ** 2 + 2 * delta * h * k).clamp(min=0) / sine**2
    value = ((epsilon - delta) / 2 + h * k) * corner + sine / (2 * math.pi) * torch.exp(-square / 2)
    value = value - k * density(h) * beyond(m_h / sine) - h * density(k) * beyond(m_k / sine)
    return value, corner


def _corner(h: Values, k: Values, delta: Values, epsilon: Values, sine: Values, signs: tuple[bool, bool]) -> Values:
    """Return P(x > h, y > k), turned so that both thresholds are at least 0."""
    if signs == (True, True):
        return 1 - beyond(-h) - beyond(-k) + _corner(-h, -k, delta, epsilon, sine, (False, False))
    if signs[0]:
        return beyond(k) - _corner(-h, k, epsilon, delta, sine, (False, False))
    if signs[1]:
        return beyond(h) - _corner(h, -k, epsilon, delta, sine, (False, False))
    both = h.abs() + k.abs() > 0
    owen = _owen(h, (k - h) + delta * h, sine) + _owen(k, (h - k) + delta * k, sine)
    theta = 2 * torch.atan2(_root(delta), _root(epsilon))
    return torch.where(both, (beyond(h) + beyond(k)) / 2 - owen, 0.5 - theta / (2 * math.pi))


def _owen(h: Values, m: Values, sine: Values) -> Values:
    """Return Owen's T(h, m/(h·sine)) for h ≥ 0: the integral of exp(−h²/2cos²t)/2π over an angle of at most π/4."""
    size = m.abs()
    steep = size > h * sine
    outer = torch.where(steep, size / sine, h)
    above, below = torch.where(steep, h * sine, size), torch.where(steep, size, h * sine)
    angle = torch.atan(above / below.clamp(min=1e-300))
    t = angle[..., None] * (_NODES + 1) / 2
    small = angle / (4 * math.pi) * (torch.exp(-(outer[..., None] ** 2) / (2 * torch.cos(t) ** 2)) @ _WEIGHTS)
    tails = beyond(h), beyond(outer)
    large = (tails[0] + tails[1]) / 2 - tails[0] * tails[1] - small
    return torch.where(steep, large, small) * torch.sign(m)


def _root(value: Values) -> Values:
    there = value > 0
    return torch.where(there, torch.sqrt(torch.where(there, value, 1.0)), 0.0)

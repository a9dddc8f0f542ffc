"""Interval arithmetic on arrays: every operation is rounded outward, so an enclosure is never lost to rounding."""

from dataclasses import dataclass
from typing import Any, Union

import numpy as np

_ULPS = 8 * float(np.finfo(np.float64).eps)
"""How far numpy's elementary functions may be off, generously; + − × ÷ √ are correctly rounded and need one step."""

Values = Any
"""Arrays, or numpy's numbers."""
Enclosed = Union["Interval", np.ndarray, np.floating, float]


@dataclass(frozen=True, eq=False)
class Interval:
    """Arrays of numbers known to lie between ``low`` and ``high``.

    >>> third = Interval.of(1.0) / 3.0
    >>> bool(third.low < third.high), bool((third * 3.0).low <= 1.0 <= (third * 3.0).high)
    (True, True)
    """

    low: Values
    high: Values

    @staticmethod
    def of(value: Enclosed) -> "Interval":
        """Take a number as exact."""
        if isinstance(value, Interval):
            return value
        exact = np.asarray(value, dtype=np.float64)
        return Interval(exact, exact)

    def __add__(self, other: Enclosed) -> "Interval":
        """Add."""
        other = Interval.of(other)
        return _outward(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Enclosed) -> "Interval":
        """Subtract."""
        other = Interval.of(other)
        return _outward(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Enclosed) -> "Interval":
        """Multiply."""
        other = Interval.of(other)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return _outward(np.minimum.reduce(ends), np.maximum.reduce(ends))

    def __truediv__(self, other: Enclosed) -> "Interval":
        """Divide; by what may be zero gives the whole line."""
        other = Interval.of(other)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ends = [a / b for a in (self.low, self.high) for b in (other.low, other.high)]
            low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
        whole = (other.low <= 0) & (other.high >= 0)
        return _outward(np.where(whole, -np.inf, low), np.where(whole, np.inf, high))

    def square(self) -> "Interval":
        """Square, with no value below 0."""
        size = abs(self)
        return Interval(np.maximum(_outward(size.low**2, size.high**2).low, 0.0), np.nextafter(size.high**2, np.inf))

    def __abs__(self) -> "Interval":
        """Take the absolute value."""
        least = np.where((self.low <= 0) & (self.high >= 0), 0.0, np.minimum(np.abs(self.low), np.abs(self.high)))
        return Interval(least, np.maximum(np.abs(self.low), np.abs(self.high)))

    def sqrt(self) -> "Interval":
        """Take the root; what is below 0 by rounding counts as 0, and NaN stays."""
        return _floored(_outward(np.sqrt(np.maximum(self.low, 0.0)), np.sqrt(np.maximum(self.high, 0.0))), 0.0)

    def asinh(self) -> "Interval":
        """Take the inverse hyperbolic sine."""
        return _nearly(np.arcsinh(self.low), np.arcsinh(self.high))

    def exp(self) -> "Interval":
        """Take the exponential."""
        with np.errstate(over="ignore"):
            return _floored(_nearly(np.exp(self.low), np.exp(self.high)), 0.0)

    def log(self) -> "Interval":
        """Take the logarithm of numbers above 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return _nearly(np.log(self.low), np.log(self.high))


def hypot(one: Interval, other: Interval) -> Interval:
    """Return √(one² + other²)."""
    return (one.square() + other.square()).sqrt()


def _outward(low: Values, high: Values) -> Interval:
    return Interval(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))


def _nearly(low: Values, high: Values) -> Interval:
    return _outward(low - _ULPS * np.abs(low), high + _ULPS * np.abs(high))


def _floored(value: Interval, floor: float) -> Interval:
    return Interval(np.maximum(value.low, floor), value.high)


LN2 = Interval.of(2.0).log()
"""An enclosure of ln 2."""

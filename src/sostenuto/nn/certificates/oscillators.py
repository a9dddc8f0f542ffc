"""Two-sided growth of undamped oscillators: how much one step can stretch or shrink the difference of two states.

Two trajectories of a unit z ← z − h[tanh(wy + a) + αy], y ← y + hz that read the same input differ by Δ with
Δ⁺ = M(q)Δ, M = [[1 − h²q, h], [−hq, 1]]. The secant of tanh has a slope in [l, 1], so q lies between α + lw and α + w.
det M = 1, so in any norm what a step can shrink by is what it can stretch by. ``docs/memory.md`` has the proofs.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sostenuto.nn.certificates.interval import LN2, Interval, hypot

Units = Float[np.ndarray, " unit"]
_SPEEDS = 5
"""Norms tried for steps that vary: those of steps from 0 to the longest."""


@dataclass(frozen=True, eq=False)
class OscillatorGrowth:
    """|log ‖MΔ‖/‖Δ‖| ≤ ``rate`` for every input, in the norm (scale·y)² + (z − shear·y)² of each unit."""

    rate: Units
    scale: Units
    shear: Units

    def size(
        self, y: Float[np.ndarray, "*batch unit"], z: Float[np.ndarray, "*batch unit"]
    ) -> Float[np.ndarray, "*batch unit"]:
        """Return each unit's norm of a difference (y, z)."""
        return np.hypot(self.scale * y, z - self.shear * y)


def oscillator_growth(
    step: Interval | Units,
    weight: Units,
    stiffness: float | Units,
    *,
    spans: tuple[float, float] = (1.0, 1.0),
    drive: float | None = None,
) -> OscillatorGrowth:
    """Bound the growth and the decay of differences in one step, for every input, rounding included.

    For one step size the norm is N = q₀y² − hq₀yz + z², q₀ the middle of the curvatures, which M(q₀) keeps; M(q) is
    M(q₀) after a shear of size r = h|q − q₀|/√(q₀(1 − h²q₀/4)), so the rate is asinh(r/2). For steps between two the
    norms of several are tried: M is affine in q and in (h, h²), a point of the triangle between both ends and the
    corner their tangents meet in, and a norm is largest in corners. Where that gives nothing (saddles, large steps)
    the rate is 2·asinh(h√q̄/2) in q̄y² + z², q̄ = max(α, |α + w|). The least of all is taken.

    Args:
        step: h of each unit for a span of 1.
        weight: w.
        stiffness: α ≥ 0.
        spans: the least and the largest time span.
        drive: A, if |wy + a| ≤ A is known of both trajectories: then l = 1/cosh²A, else 0.

    >>> found = oscillator_growth(np.array([0.05]), np.array([0.5]), 1.0)
    >>> round(math.log(2) / found.rate[0])
    124
    """
    least = 0.0 if drive is None else _least_slope(drive)
    w, base = np.asarray(weight, dtype=np.float64), Interval.of(stiffness)
    ends = [base + Interval.of(w) * slope for slope in (least, 1.0)]
    curvature = Interval(
        np.minimum(ends[0].low, ends[1].low) + np.zeros_like(w),
        np.maximum(ends[0].high, ends[1].high) + np.zeros_like(w),
    )
    long = Interval.of(step) * spans[1]
    short = Interval.of(step) * spans[0]
    largest = np.maximum(np.abs(curvature.low), np.abs(curvature.high))
    largest = np.where(largest > 0, largest, 1.0)
    best = OscillatorGrowth(
        ((long * Interval.of(largest).sqrt() / 2.0).asinh() * 2.0).high, np.sqrt(largest), np.zeros_like(w)
    )
    if spans[0] == spans[1]:
        return _better(best, _fixed_step(long, curvature))
    for share in range(_SPEEDS):
        best = _better(best, _varying_step(short, long, curvature, long.high * share / (_SPEEDS - 1)))
    return best


def half_lives(rate: Units) -> Units:
    """Return ln 2/rate, rounded down: steps after which at least half of a difference is left.

    >>> half_lives(np.array([0.0, 0.1])).round(3)
    array([ inf, 6.931])
    """
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(rate > 0, np.nextafter(LN2.low / np.where(rate > 0, rate, 1.0), 0.0), np.inf)


def _fixed_step(step: Interval, curvature: Interval) -> OscillatorGrowth:
    """Use the norm that the map at the middle curvature keeps; the rate is infinite where there is none."""
    middle = Interval.of((curvature.low + curvature.high) / 2)
    turn = Interval.of(1.0) - step.square() * middle / 4.0
    squared = middle * turn
    known = (middle.low > 0) & (turn.low > 0)
    scale = Interval(np.where(known, squared.low, 1.0), np.where(known, squared.high, 1.0)).sqrt()
    away = np.maximum((Interval.of(curvature.high) - middle).high, (middle - curvature.low).high)
    rate = (step * away / (scale * 2.0)).asinh().high
    rate = np.where(known, rate, np.inf)
    return OscillatorGrowth(rate, (scale.low + scale.high) / 2, (step.high + step.low) / 2 * middle.low / 2)


def _varying_step(short: Interval, long: Interval, curvature: Interval, tuned: Units) -> OscillatorGrowth:
    """Bound the norm of M in the corners of all steps and curvatures, in the norm kept at the step ``tuned``."""
    middle = (curvature.low + curvature.high) / 2
    squared = middle * (1 - tuned**2 * middle / 4)
    known = squared > 0
    scale, shear = np.sqrt(np.where(known, squared, 1.0)), tuned * middle / 2
    low, high = Interval.of(short.low), Interval.of(long.high)
    corners = [(low, low.square()), (high, high.square()), ((low + high) / 2.0, low * high)]
    worst = np.zeros_like(middle)
    for h, square in corners:
        for q in (curvature.low, curvature.high):
            worst = np.maximum(worst, _operator_norm(h, square, q, scale, shear))
    rate = np.maximum(Interval.of(worst).log().high, 0.0)
    return OscillatorGrowth(np.where(known & np.isfinite(rate), rate, np.inf), scale, shear)


def _operator_norm(h: Interval, square: Interval, q: Units, scale: Units, shear: Units) -> Units:
    """Bound the norm of [[1 − h²q, h], [−hq, 1]] from above, in coordinates (scale·y, z − shear·y)."""
    one = Interval.of(1.0)
    yy, yz, zy = one - square * q, h, h * (-q)
    a, b = yy + yz * shear, yz * scale
    d = one - yz * shear
    c = (zy - yy * shear + d * shear) / scale
    both = hypot(a + d, b - c) + hypot(a - d, b + c)
    return (both / 2.0).high


def _better(one: OscillatorGrowth, other: OscillatorGrowth) -> OscillatorGrowth:
    """Take for each unit what says more."""
    use = other.rate < one.rate
    pairs = ((one.rate, other.rate), (one.scale, other.scale), (one.shear, other.shear))
    return OscillatorGrowth(*(np.where(use, second, first) for first, second in pairs))


def _least_slope(drive: float) -> float:
    """Return a lower bound of 1/cosh²A, of every secant of tanh between −A and A."""
    # A secant is a mean of slopes in between, and those fall with the distance from 0.
    return float(np.nextafter(1 / math.cosh(min(drive, 300.0)) ** 2 * (1 - 1e-14), 0.0))

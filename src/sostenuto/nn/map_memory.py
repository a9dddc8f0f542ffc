"""Memory certificates of maps h ← F h + Q σ(W h + V u + b): independent units exactly, dense ones on two sides."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.certificates import LevelDecay, MemoryCertificate, both_directions, remembering
from sostenuto.nn.certificates.interval import Interval
from sostenuto.nn.certificates.norms import spectral_norm
from sostenuto.nn.certificates.spans import SpanCurve
from sostenuto.nn.certificates.system import SectorSystem, sector_system
from sostenuto.nn.certificates.two_sided import Side, fastest, slow_field, slowest, unit_factors
from sostenuto.ops.activation import SLOPES, TABLE

INDEPENDENT = "each unit's own factor |f + q·w·k| over all slopes k"
DENSE = "[[FᵀXF − ρ²X, FᵀXQ − sWᵀΛ], [QᵀXF − sΛW, QᵀXQ + 2Λ]] ≽ 0 below, its mirror above"


@dataclass(frozen=True, eq=False)
class CertifiedMap:
    """One layer: F, W and Q, V, the name of σ, and how many of the states are its output."""

    linear: Float[Tensor, "S S"]
    weight: Float[Tensor, "H S"]
    gain: Float[Tensor, "S H"]
    entering: Float[Tensor, "H _"]
    activation: str
    output_size: int


class Ends(NamedTuple):
    """A layer's map in the shortest and in the longest time span, the same one where there is no other.

    ``curve`` has what lies between, where it is no line, for given slopes.
    """

    short: CertifiedMap
    long: CertifiedMap
    curve: Callable[[tuple[float, float]], SpanCurve] | None = None


def map_memory(
    maps: list[list[Ends]], spans: tuple[float, float], drive: float | None, *, passes: bool, clock: bool = False
) -> MemoryCertificate:
    """Certify a stack of maps, the lowest first, each in its one or two directions.

    Between the spans F and Q must move along a line (Euler's method) or a given curve, or every unit's factor be
    monotone. ``passes`` says whether a layer reads nothing but the output of the one below; ``clock`` whether steps are
    Euler's or exact, for which independent units have rates per unit of time.
    """
    by_level = [[_level(ends, spans, drive, clock) for ends in directions] for directions in maps]
    levels = [both_directions([level for level, _ in directions]) for directions in by_level]
    if not passes:
        levels = [levels[0], *(replace(level, entering=None) for level in levels[1:])]
    per_unit = np.concatenate([lives for _, lives in by_level[0]])
    exact = len(per_unit) > 0
    reasons = []
    if levels[0].fastest is None:
        reasons.append("some input may erase what is kept, as where a unit saturates or slopes make the map singular")
    if any(level.slowest is None or level.slowest <= 0 for level in levels):
        reasons.append("some input may hold it for ever, as where a unit saturates or is open")
    return remembering(
        levels,
        per_unit,
        norm="Euclidean" if exact else "√(ΔᵀXΔ) below, √(ΔᵀPΔ) above; distortion has the way to the Euclidean norm",
        checked=INDEPENDENT if exact else DENSE,
        reason="; ".join(reasons),
        spans=spans,
    )


def slope_range(activation: str, drive: float | None) -> tuple[float, float]:
    """Return the least and the largest slope of secants between −A and A; everywhere without ``drive``.

    >>> slope_range("hardtanh", 0.5), slope_range("relu", 1.0)
    ((1.0, 1.0), (0.0, 1.0))
    """
    low, high = SLOPES[activation]
    least = TABLE[activation].least_slope
    return (low if drive is None or least is None else least(drive)), high


def _level(
    ends: Ends, spans: tuple[float, float], drive: float | None, clock: bool
) -> tuple[LevelDecay, Float[np.ndarray, " unit"]]:
    short, long, curve = ends
    slopes = slope_range(long.activation, drive)
    if all(_is_diagonal(part) for part in (long.linear, long.weight, long.gain)):
        level, lives = _independent(short, long, slopes, drive)
        return (replace(level, clock=_clock(short, long, spans, slopes)) if clock else level), lives
    if curve is not None:
        return _along(curve(slopes), long, drive), np.zeros(0)
    system = sector_system(long.linear, long.weight, long.gain, slopes)
    above = slowest(system)
    if short is long:
        below = fastest(system)
        rate = None if below is None else below.rate
        cost = None if below is None else below.distortion
    else:
        step = spans[1]
        field = sector_system((long.linear - _eye(long.linear)) / step, long.weight, long.gain / step, slopes)
        rate, cost = slow_field(_widened(field), step), 1.0
        share = spans[0] / spans[1]
        if above is not None:
            above = Side(-math.log1p(share * math.expm1(-above.rate)) * (1 - 1e-12), above.metric, above.test)
    return _passing(long, rate, cost, above, drive, [short.linear, long.linear]), np.zeros(0)


def _along(curve: SpanCurve, long: CertifiedMap, drive: float | None) -> LevelDecay:
    """Take for all spans the norms of the one that decides: the longest remembers least, the shortest forgets least."""
    shortest, longest = curve.spans
    below, above = fastest(curve.at(longest)), slowest(curve.at(shortest))
    rate = cost = slow = None
    if below is not None and below.metric is not None and below.multipliers is not None:
        rate, cost = curve.fastest(below.metric, below.multipliers / longest), below.distortion
    if above is not None and above.metric is not None and above.multipliers is not None:
        slow = curve.slowest(above.metric, above.multipliers / shortest)
    if above is None or above.metric is None or slow is None:
        return LevelDecay(rate, None, distortion=(cost, None))
    return _passing(long, rate, cost, replace(above, rate=slow), drive, [], push=curve.push(above.metric))


def _independent(
    short: CertifiedMap, long: CertifiedMap, slopes: tuple[float, float], drive: float | None
) -> tuple[LevelDecay, Float[np.ndarray, " unit"]]:
    ends = [_factors(certified, slopes) for certified in (short, long)]
    factors = abs(Interval(np.minimum(ends[0].low, ends[1].low), np.maximum(ends[0].high, ends[1].high)))
    low, high = factors.low, factors.high
    decay = -Interval(low, high).log().low
    fastest_rate = float(decay.max())
    rate = -float(Interval.of(high).log().high.max())
    side = Side(min(rate, 700.0), None, "exact") if rate > 0 else None
    with np.errstate(divide="ignore", invalid="ignore"):
        lives = np.where(decay > 0, math.log(2) / decay * (1 - 1e-15), np.inf)
    fastest_known = fastest_rate if math.isfinite(fastest_rate) else None
    level = _passing(long, fastest_known, 1.0, side, drive, [short.linear, long.linear])
    return replace(level, slowest=min(rate, 700.0)), lives


def _factors(certified: CertifiedMap, slopes: tuple[float, float]) -> Interval:
    linear, gain, weight = (_numbers(part.diagonal()) for part in (certified.linear, certified.gain, certified.weight))
    return unit_factors(linear, gain, weight, slopes)


def _clock(
    short: CertifiedMap, long: CertifiedMap, spans: tuple[float, float], slopes: tuple[float, float]
) -> tuple[float | None, float | None]:
    """Return rates per unit of time of independent units, by Euler's steps or exact ones.

    A factor 1 + τc keeps −log(1 + τc)/τ per unit of time, which grows with the step τ as long as it is above 0: the
    longest forgets fastest, the shortest slowest. An exact step keeps the same in every span.
    """
    first, last = _factors(short, slopes), _factors(long, slopes)
    if not (last.low > 0).all():
        return None, None
    return float(-last.log().low.min() / spans[1]) * (1 + 1e-14), float(-first.log().high.max() / spans[0]) * (
        1 - 1e-14
    )


def _passing(
    long: CertifiedMap,
    rate: float | None,
    cost: float | None,
    above: Side | None,
    drive: float | None,
    linears: list[Tensor],
    push: float | None = None,
) -> LevelDecay:
    """Add what enters and leaves in the norm above, and how far states can be from 0.

    A state h reached from 0 obeys ‖h⁺‖ ≤ ‖Fh‖ + ‖Qσ‖ with |σ| ≤ A. Slopes between 0 and s contain F itself, which then
    shrinks as differences do. With slopes kept above 0 it may not, and is asked: ``linears`` are the F of all spans, or
    those between which it moves on a line. Linear units have a drive |Vu + b| ≤ A, and shrink as differences do.
    """
    if above is None:
        return LevelDecay(rate, None, distortion=(cost, None))
    gain, entering = _numbers(long.gain), _numbers(long.entering)
    read, turned = np.eye(long.output_size, len(gain)), [_numbers(linear) for linear in linears]
    slack = 1 + 1e-12
    if above.metric is not None:
        root = np.linalg.cholesky(above.metric).T
        gain, read = root @ gain, np.linalg.solve(root.T, read.T).T
        turned = [np.linalg.solve(root.T, (root @ linear).T).T for linear in turned]
        slack = 1 + 16 * len(root) * float(np.finfo(np.float64).eps) * (above.distortion or math.inf) ** 2
    if not math.isfinite(slack):
        return LevelDecay(rate, above.rate, distortion=(cost, None))
    largest = max(abs(slope) for slope in SLOPES[long.activation])
    moved = spectral_norm(gain) if push is None else push
    bound = TABLE[long.activation].largest_value
    value, reach, left = drive if bound is None else bound, None, -math.expm1(-above.rate)
    if long.activation != "identity" and slope_range(long.activation, drive)[0] > 0:
        left = 1 - max(map(spectral_norm, turned), default=1.0) * slack
    if value is not None and left > 0:
        width = math.sqrt(gain.shape[1]) * moved if above.metric is not None else float(np.linalg.norm(gain))
        reach = value * width * slack / left
    push = largest * moved * spectral_norm(entering) * slack
    return LevelDecay(rate, above.rate, push, spectral_norm(read) * slack, reach, (cost, above.distortion))


def _widened(field: SectorSystem) -> SectorSystem:
    """Count the rounding of (F − I)/τ."""
    size = float(np.linalg.norm(field.linear)) + 1.0
    rounding = field.rounding + 4 * float(np.finfo(np.float64).eps) * size
    return SectorSystem(field.linear, field.input, field.output, field.slope, rounding)


def _is_diagonal(matrix: Tensor) -> bool:
    return matrix.shape[0] == matrix.shape[1] and bool((matrix == matrix.diagonal().diag()).all())


def _eye(like: Tensor) -> Tensor:
    return like.new_ones(len(like)).diag()


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()

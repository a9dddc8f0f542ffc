"""The families of laws that are fitted to the tail of a memory function.

With t the lag::

    exponential   Σ_k C_k e^(−β_k t) cos(ω_k t + φ_k)                the slowest β is the rate
    stretched     e^(−(β(t + s))^γ) [A cos ωt + B sin ωt]            β is the rate; γ < 1, or above 1: compressed
    polynomial    Σ_k C_k (t + s)^(−p_k) [+ C e^(−βt)]               the smallest p is the rate
                  (t + s)^(−p) (A cos ωt + B sin ωt)                 p is the rate

The coefficients are solved for (variable projection); the rates are searched, or read off the poles of the responses
(matrix pencil, Hua and Sarkar 1990), which finds sums of many oscillations at once where the lags are even.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import least_squares

FAINT = 1e-6
"""Relative errors below this are all called perfect: rounding, not evidence."""
TERM_COST = 2.0
"""What one more term must at least divide the error by."""
STEEPEST = 8.0
"""A power beyond this is not told from an exponential over the horizons one looks at, and is not fitted."""
SEEN = 0.01
"""A term that never adds this share of the envelope is not part of the law."""
SLOWEST = 0.02
"""A smaller power is no decay."""
MOST_POLES = 8
MANY_LAGS = 16
"""Fewer lags are explained by any law of four parameters."""
PERFECT = 0.01
"""What is left unexplained by a perfect law, as a share of what the next leaves."""
FINER = 8
"""How much finer than the lines of a spectrum frequencies are guessed."""
STRETCHED = (0.15, 4.0)
"""Exponents γ of a stretched law: near 0 it is a power."""
NEARLY_EXPONENTIAL = 0.15
"""An exponent so near to 1 is that of an exponential."""

Lags = Float[np.ndarray, " lag"]
Responses = Float[np.ndarray, "lag series"]
Basis = Callable[[np.ndarray], Float[np.ndarray, "lag term"]]


@dataclass(frozen=True)
class Fit:
    """One family's best fit: its relative error, its rate, and the number of terms it needs."""

    kind: str
    error: float
    rate: float
    terms: int
    period: float | None = None
    exponent: float | None = None


@dataclass(frozen=True)
class WeightedTail:
    """The tail as it is fitted: lags, responses times weights, the weights, and the error that rounding explains."""

    time: Lags
    signal: Responses
    weight: Lags
    faint: float

    def cost(self, fit: Fit) -> float:
        """Charge a fit for its error and its terms."""
        return max(fit.error, self.faint) * TERM_COST ** (fit.terms - 1)

    def project(self, basis: Float[np.ndarray, "lag term"]) -> tuple[np.ndarray, np.ndarray]:
        """Solve for the coefficients; return the residual, and what each term adds at its largest."""
        scaled = basis * self.weight[:, None]
        scaled = scaled / (np.linalg.norm(scaled, axis=0) + 1e-300)
        coefficients = np.linalg.lstsq(scaled, self.signal, rcond=1e-10)[0]
        share = np.abs(scaled).max(0) * np.abs(coefficients).max(1)
        return scaled @ coefficients - self.signal, share

    def error(self, basis: Float[np.ndarray, "lag term"]) -> float:
        """Give the relative error of the best coefficients."""
        return float(np.linalg.norm(self.project(basis)[0]) / np.linalg.norm(self.signal))

    def search(self, basis: Basis, starts: list[np.ndarray]) -> tuple[np.ndarray, float]:
        """Search the rates from several starts; return the best ones and their relative error."""
        best, least = starts[0], float("inf")
        for start in starts:
            found = least_squares(lambda rates: self.project(basis(rates))[0].ravel(), start, max_nfev=100)
            error = float(np.linalg.norm(found.fun) / np.linalg.norm(self.signal))
            if error < least:
                best, least = found.x, error
            if error < 0.1 * FAINT:
                break
        return best, least

    def frequencies(self) -> list[float]:
        """Guess angular frequencies from the strongest lines of the weighted responses on an even grid."""
        grid = np.arange(self.time[0], self.time[-1] + 1)
        even = np.stack([np.interp(grid, self.time, column) for column in self.signal.T], axis=1)
        power = (np.abs(np.fft.rfft(even - even.mean(0), FINER * len(grid), axis=0)) ** 2).sum(1)
        peaks = np.flatnonzero((power[1:-1] > power[:-2]) & (power[1:-1] >= power[2:])) + 1
        strongest = peaks[np.argsort(-power[peaks], kind="stable")][:3]
        return [float(2 * np.pi * line / (FINER * len(grid))) for line in strongest]

    def period(self, omega: float) -> float | None:
        """Turn an angular frequency into a period in steps, where the tail holds a whole one."""
        folded = abs((omega + np.pi) % (2 * np.pi) - np.pi)  # integer lags cannot tell ω from 2π − ω
        return float(2 * np.pi / folded) if folded * (self.time[-1] - self.time[0]) > 2 * np.pi else None


def fit_families(tail: WeightedTail) -> list[list[Fit]]:
    """Give the fits of each family, of one term and more; of one alone where its first term is perfect."""
    plain = [_exponential(tail, 1)], [_polynomial(tail, 1, 0)]
    enough = len(tail.time) >= MANY_LAGS
    falls = tail.weight[-1] > 10 * tail.weight[0] and tail.faint < PERFECT
    for family, other in (plain, plain[::-1]):
        if enough and falls and family[0].error <= tail.faint < PERFECT * other[0].error:
            return [family, other]
    poles = _poles(tail)
    exponential = [_exponential(tail, terms) for terms in ((2,) if poles else (2, 3, 4))] + poles
    polynomial = [_polynomial(tail, *terms) for terms in ((2, 0), (1, 1))]
    if not enough:
        return [plain[0] + exponential, plain[1] + polynomial]
    return [plain[0] + exponential, plain[1] + polynomial + _oscillating_powers(tail), _stretched(tail)]


def _exponential(tail: WeightedTail, terms: int) -> Fit:
    """Fit ``terms`` real decays, or two that turn into a decaying oscillation where that explains more."""
    moved = tail.time - tail.time[0]
    span = moved[-1]
    slope = max(np.log(tail.weight[-1] / tail.weight[0]) / span, 0.1 / span)

    def decays(rates: np.ndarray) -> np.ndarray:
        return np.exp(np.clip(rates, np.log(0.01 / span), np.log(700 / span)))

    def real(rates: np.ndarray) -> np.ndarray:
        return np.exp(-decays(rates) * moved[:, None])

    def turning(rates: np.ndarray) -> np.ndarray:
        decay = np.exp(-decays(rates[:1]) * moved)
        return np.stack([decay * np.cos(rates[1] * moved), decay * np.sin(rates[1] * moved)], axis=1)

    ladders = (1.5, 3.0, 8.0)[: 1 if terms == 1 else 3]
    rates, error = tail.search(real, [np.log(slope * ladder ** np.arange(terms)) for ladder in ladders])
    frequencies = tail.frequencies() if terms == 2 else []
    if frequencies:
        found, other = tail.search(turning, [np.array([np.log(slope), omega]) for omega in frequencies])
        if other < error:
            return Fit("exponential", other, float(decays(found[:1])[0]), terms, tail.period(found[1]))
    seen = tail.project(real(rates))[1] >= SEEN
    return Fit("exponential", error, float(decays(rates)[seen].min(initial=np.inf)), terms)


def _poles(tail: WeightedTail) -> list[Fit]:
    """Read sums of 2, 3, … decays and oscillations off the poles of the tail, where its lags are even.

    The responses are first multiplied by a growing exponential that levels them, which moves every pole alike.
    """
    step = tail.time[1] - tail.time[0]
    count = len(tail.time)
    if np.ptp(np.diff(tail.time)) > 0 or count < 12:
        return []
    moved = (tail.time - tail.time[0]) / step
    growth = float(np.polyfit(moved, np.log(tail.weight), 1)[0])
    level = tail.signal / tail.weight[:, None] * np.exp(growth * moved)[:, None]
    rows = count // 2
    hankel = np.concatenate([np.lib.stride_tricks.sliding_window_view(column, rows).T for column in level.T], axis=1)
    left = np.linalg.svd(hankel, full_matrices=False)[0]
    fits = []
    for order in range(2, min(MOST_POLES, rows // 2) + 1):
        space = left[:, :order]
        poles = np.linalg.eigvals(np.linalg.lstsq(space[:-1], space[1:], rcond=None)[0])
        poles = np.log(poles[np.abs(poles) > 1e-6].astype(complex)) - growth
        poles = poles[(poles.imag >= 0) & (poles.real < 0)]
        if len(poles) == 0:
            continue
        decay = np.exp(np.outer(moved, poles.real))
        waves = np.outer(moved, poles.imag)
        turns = poles.imag > 1e-9
        basis = np.concatenate([decay * np.cos(waves), (decay * np.sin(waves))[:, turns]], axis=1)
        share = tail.project(basis)[1]
        share[: len(poles)][turns] = np.maximum(share[: len(poles)][turns], share[len(poles) :])
        shown = np.flatnonzero(share[: len(poles)] >= SEEN)
        if len(shown) == 0:
            continue
        slowest = shown[np.argmax(poles.real[shown])]
        period = tail.period(poles.imag[slowest] / step) if turns[slowest] else None
        rate = float(-poles.real[slowest] / step)
        fits.append(Fit("exponential", tail.error(basis), rate, basis.shape[1], period))
    return fits


def _stretched(tail: WeightedTail) -> list[Fit]:
    """Fit e^(−(β(t + s))^γ), alone and with one oscillation within."""
    time = tail.time
    longest = np.log(1 + 0.1 * time[-1])
    drop = max(np.log(tail.weight[-1] / tail.weight[0]), 0.1)

    def shape(parameters: np.ndarray) -> tuple[float, float, float]:
        """Unpack the fall over the whole window, the exponent, and the shift."""
        fall, power, shift = parameters[:3]
        return (
            float(np.exp(np.clip(fall, -3, 6.5))),
            float(np.clip(power, *STRETCHED)),
            np.exp(np.clip(shift, -14, longest)),
        )

    def decay(parameters: np.ndarray) -> np.ndarray:
        fall, power, shift = shape(parameters)
        grown = (time + shift) ** power
        return np.exp(-fall * (grown - grown[0]) / (grown[-1] - grown[0]))[:, None]

    def waves(parameters: np.ndarray) -> np.ndarray:
        turned = parameters[3] * time
        return decay(parameters) * np.stack([np.cos(turned), np.sin(turned)], axis=1)

    starts = [np.array([np.log(drop), power, shift]) for power, shift in ((0.3, 0.0), (0.6, -7.0), (2.0, -7.0))]
    frequencies = [np.array([np.log(drop), 0.5, -7.0, omega]) for omega in tail.frequencies()]
    searches = [(decay, starts, 2)] + ([(waves, frequencies, 3)] if frequencies else [])
    fits = []
    for basis, begin, terms in searches:
        found, error = tail.search(basis, begin)
        fall, power, shift = shape(found)
        ends = (time[[0, -1]] + shift) ** power
        rate = (fall / (ends[1] - ends[0])) ** (1 / power)
        told = STRETCHED[0] < power < STRETCHED[1] and abs(power - 1) > NEARLY_EXPONENTIAL
        period = tail.period(found[3]) if terms == 3 else None
        fits.append(Fit("stretched", error if told else np.inf, float(rate), terms, period, power))
    return fits


def _polynomial(tail: WeightedTail, terms: int, transients: int) -> Fit:
    """Fit ``terms`` powers of t + s with one shift s, and perhaps a fast exponential beside them."""
    time, span = tail.time, tail.time[-1] - tail.time[0]
    longest = np.log(1 + 0.1 * time[-1])  # a larger shift would let a power pass for an exponential
    fastest = np.log(700 / span)

    def powers(parameters: np.ndarray) -> np.ndarray:
        shifted = time + 1e-3 + np.exp(np.clip(parameters[0], -7, longest))
        rates = np.clip(parameters[1 : terms + 1], 0, STEEPEST)
        slow = np.exp(-rates * np.log(shifted / shifted[0])[:, None])
        decay = np.exp(np.clip(parameters[terms + 1 :], np.log(3 / span), fastest))
        return np.concatenate([slow, np.exp(-decay * (time - time[0])[:, None])], axis=1)

    drop = _power(tail)
    slopes = (
        [np.array([drop]), np.array([_power(tail, len(time) // 2)])]
        if terms == 1
        else [drop + np.array([-0.2, 1.0]), drop + np.array([-0.05, 4.0])]
    )
    fast = [np.full(transients, np.log(turns / span)) for turns in ((4.0, 8.0, 16.0, 40.0) if transients else (8.0,))]
    starts = [
        np.array([shift, *slope, *extra])
        for shift in ((0.0,) if transients else (0.0, 2.0))
        for slope in slopes
        for extra in fast
    ]
    found, error = tail.search(powers, starts)
    seen = tail.project(powers(found))[1][:terms] >= SEEN
    rate = float(np.clip(found[1 : terms + 1], 0, STEEPEST)[seen].min(initial=np.inf))
    return Fit("polynomial", error if rate >= SLOWEST else np.inf, rate, terms + transients)


def _oscillating_powers(tail: WeightedTail) -> list[Fit]:
    """Fit one oscillation within a power, and the same with the next power beside it, as Bessel functions have."""
    time = tail.time
    longest = np.log(1 + 0.1 * time[-1])
    frequencies = tail.frequencies()
    if not frequencies:
        return []

    def waves(parameters: np.ndarray, powers: int) -> np.ndarray:
        shifted = time + 1e-3 + np.exp(np.clip(parameters[0], -7, longest))
        power = np.clip(parameters[1], 0, STEEPEST)
        columns = [
            np.exp(-(power + extra) * np.log(shifted / shifted[0])) * wave(parameters[2] * time)
            for extra in range(powers)
            for wave in (np.cos, np.sin)
        ]
        return np.stack(columns, axis=1)

    starts = [np.array([0.0, _power(tail), omega]) for omega in frequencies]
    fits = []
    for powers in (1, 2):
        found, error = tail.search(lambda parameters, powers=powers: waves(parameters, powers), starts)
        rate = float(np.clip(found[1], 0, STEEPEST))
        fits.append(Fit("polynomial", error if rate >= SLOWEST else np.inf, rate, 1 + powers, tail.period(found[2])))
    return fits


def _power(tail: WeightedTail, start: int = 0) -> float:
    """Guess the power from the envelope between a lag and the end."""
    drop = np.log(tail.weight[-1] / tail.weight[start]) / np.log((tail.time[-1] + 1) / (tail.time[start] + 1))
    return float(min(drop, 0.9 * STEEPEST))

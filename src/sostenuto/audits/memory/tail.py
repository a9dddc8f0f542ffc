"""The law by which a memory function dies out: exponential, polynomial, not at all, or periodic.

Two families are fitted to the signed responses R(t), each weighted by the envelope of the memory function, so that a
late small value counts as much as an early large one:

    exponential   Σ_k C_k e^(−β_k t) cos(ω_k t + φ_k)      the slowest β is the rate
    polynomial    Σ_k C_k (t + s)^(−p_k) [+ C e^(−βt)]     the smallest p is the rate

The coefficients are solved for (variable projection), the rates searched. The family that explains the tail with the
smaller error wins; terms cost, since enough exponentials imitate any power.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import least_squares

from sostenuto.results import Record

MOST_LAGS = 120
MOST_SPANNING = 6
FAINT = 1e-4
"""Relative errors below this are all called perfect: rounding, not evidence."""
TERM_COST = 2.0
"""What one more term must at least divide the error by."""
STEADY = 0.9
"""A memory that keeps this share from the second quarter of the horizon to the last does not decay within it."""
UNEXPLAINED = 0.2
"""With a larger error neither law is a law: half that share is then enough to say that it does not decay."""
STEEPEST = 8.0
"""A power beyond this is not told from an exponential over the horizons one looks at, and is not fitted."""
SEEN = 0.01
"""A term that never adds this share of the envelope is not part of the law."""

Lags = Float[np.ndarray, " lag"]
Responses = Float[np.ndarray, "lag series"]


@dataclass(frozen=True, kw_only=True)
class Tail(Record):
    """The law found, its rate, and how sure it is.

    ``kind`` is ``"exponential"``, ``"polynomial"``, ``"non-decaying"``, ``"periodic"``, or ``"finite"`` where nothing
    is left to fit after a few lags. ``rate`` is β per step, or the power p, or None. ``confidence`` is from 0.5 (both
    laws explain it as well) to 1; ``error`` the relative error of the law that won. ``period`` is in steps.
    """

    kind: str
    rate: float | None
    confidence: float
    error: float
    period: float | None
    last_lag: int


def fit_tail(lags: Lags, responses: Responses, *, noise: float) -> Tail:
    """Decide the law of ``responses`` (lag, series) at increasing ``lags``.

    ``noise`` is the size of their rounding errors: what stays below it from some lag on is no longer memory.

    >>> t = np.arange(200.0)
    >>> found = fit_tail(t, 0.9 ** t[:, None], noise=1e-12)
    >>> found.kind, round(found.rate, 4)
    ('exponential', 0.1054)
    >>> found = fit_tail(t, (t[:, None] + 1) ** -1.5, noise=1e-12)
    >>> found.kind, round(found.rate, 3)
    ('polynomial', 1.5)
    """
    memory = np.abs(responses).max(axis=1)
    envelope = np.maximum.accumulate(memory[::-1])[::-1]
    alive = int(np.sum(envelope > noise))
    last = int(lags[alive - 1]) if alive else 0
    kept = _kept(lags, memory) if alive == len(lags) and len(lags) >= 16 else 0.0
    if kept >= STEADY:
        return _steady(lags, memory, kept)
    if alive < 5:
        return Tail(kind="finite", rate=None, confidence=1.0, error=0.0, period=None, last_lag=last)
    chosen = _spread(lags[:alive])
    weight = 1 / (envelope[chosen] + 100 * noise)
    signal = _compressed(responses[chosen] * weight[:, None])
    tail = _Weighted(lags[chosen], signal, weight, max(FAINT, noise * float(weight.max())))
    exponential = min((_exponential(tail, terms) for terms in (1, 2, 3, 4)), key=tail.cost)
    polynomial = min((_polynomial(tail, *terms) for terms in ((1, 0), (2, 0), (1, 1))), key=tail.cost)
    costs = tail.cost(exponential), tail.cost(polynomial)
    kind, won = ("exponential", exponential) if costs[0] <= costs[1] else ("polynomial", polynomial)
    if kept >= STEADY / 2 and won.error > UNEXPLAINED:
        return _steady(lags, memory, kept)
    confidence = max(costs) ** 2 / (costs[0] ** 2 + costs[1] ** 2)
    return Tail(kind=kind, rate=won.rate, confidence=float(confidence), error=won.error, period=None, last_lag=last)


def _compressed(signal: Responses) -> Float[np.ndarray, "lag spanning"]:
    """Turn many series into the few that span them: errors of a fit are the same, and cost less."""
    left, sizes, _ = np.linalg.svd(signal, full_matrices=False)
    return (left * sizes)[:, :MOST_SPANNING]


@dataclass(frozen=True)
class _Fit:
    error: float
    rate: float
    terms: int


@dataclass(frozen=True)
class _Weighted:
    """The tail as it is fitted: lags, responses times weights, the weights, and the error that rounding explains."""

    time: Lags
    signal: Responses
    weight: Lags
    faint: float

    def cost(self, fit: _Fit) -> float:
        """Charge a fit for its error and its terms."""
        return max(fit.error, self.faint) * TERM_COST ** (fit.terms - 1)

    def project(self, basis: Float[np.ndarray, "lag term"]) -> tuple[np.ndarray, np.ndarray]:
        """Solve for the coefficients; return the residual, and what each term adds at its largest."""
        scaled = basis * self.weight[:, None]
        scaled = scaled / (np.linalg.norm(scaled, axis=0) + 1e-300)
        coefficients = np.linalg.lstsq(scaled, self.signal, rcond=1e-10)[0]
        share = np.abs(scaled).max(0) * np.abs(coefficients).max(1)
        return scaled @ coefficients - self.signal, share

    def search(self, basis: Callable[[np.ndarray], np.ndarray], starts: list[np.ndarray]) -> tuple[np.ndarray, float]:
        """Search the rates from several starts; return the best ones and their relative error."""
        best, least = starts[0], float("inf")
        for start in starts:
            found = least_squares(lambda rates: self.project(basis(rates))[0].ravel(), start, max_nfev=60)
            error = float(np.linalg.norm(found.fun) / np.linalg.norm(self.signal))
            if error < least:
                best, least = found.x, error
            if error < 0.1 * FAINT:
                break
        return best, least


def _kept(lags: Lags, memory: Float[np.ndarray, " lag"]) -> float:
    """Compare the largest memory in the last quarter of the horizon with that in the second."""
    share = lags / lags[-1]
    second, last = memory[(share > 0.25) & (share <= 0.5)].max(), memory[share > 0.75].max()
    return float(last / second) if second > 0 else 0.0


def _steady(lags: Lags, memory: Float[np.ndarray, " lag"], kept: float) -> Tail:
    """Say that a memory does not decay within the horizon, or that it comes back."""
    even = np.ptp(np.diff(lags)) == 0
    period = _period(memory[len(memory) // 4 :]) if even else None
    return Tail(
        kind="non-decaying" if period is None else "periodic",
        rate=None,
        confidence=min(0.5 + 0.5 * kept, 1.0),
        error=0.0,
        period=None if period is None else period * float(lags[1] - lags[0]),
        last_lag=int(lags[-1]),
    )


def _period(memory: Float[np.ndarray, " lag"]) -> float | None:
    """Find the lag at which a curve repeats itself to a correlation of 0.98; None if there is none, or no shape."""
    centered = memory - memory.mean()
    if np.abs(centered).max() < 1e-3 * np.abs(memory).max():
        return None
    away = False
    for shift in range(1, len(memory) // 2):
        left, right = centered[:-shift], centered[shift:]
        match = float(left @ right / np.sqrt((left @ left) * (right @ right) + 1e-300))
        away = away or match < 0.5
        if away and match > 0.98:
            return float(shift)
    return None


def _spread(lags: Lags) -> np.ndarray:
    """Choose lags of the tail, half of them even in time and half in its logarithm; the first tenth is transient."""
    first = min(len(lags) // 10, len(lags) - 5)
    count, half = len(lags) - first, MOST_LAGS // 2
    if count <= MOST_LAGS:
        return np.arange(first, len(lags))
    even = np.linspace(first, len(lags) - 1, half)
    grown = np.geomspace(first + 1, len(lags), half) - 1
    return np.unique(np.concatenate([even, grown]).round().astype(int))


def _exponential(tail: _Weighted, terms: int) -> _Fit:
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
    frequencies = _frequencies(tail) if terms == 2 else []
    if frequencies:
        found, other = tail.search(turning, [np.array([np.log(slope), omega]) for omega in frequencies])
        if other < error:
            return _Fit(other, float(decays(found[:1])[0]), terms)
    seen = tail.project(real(rates))[1] >= SEEN
    return _Fit(error, float(decays(rates)[seen].min(initial=np.inf)), terms)


def _frequencies(tail: _Weighted) -> list[float]:
    """Guess angular frequencies from the strongest lines of the weighted responses on an even grid."""
    grid = np.arange(tail.time[0], tail.time[-1] + 1)
    even = np.stack([np.interp(grid, tail.time, column) for column in tail.signal.T], axis=1)
    power = (np.abs(np.fft.rfft(even - even.mean(0), axis=0)) ** 2).sum(1)
    strongest = np.argsort(power)[::-1][:3]
    return [float(2 * np.pi * line / len(grid)) for line in strongest if line > 0]


def _polynomial(tail: _Weighted, terms: int, transients: int) -> _Fit:
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

    drop = np.log(tail.weight[-1] / tail.weight[0]) / np.log((time[-1] + 1) / (time[0] + 1))
    drop = min(drop, 0.9 * STEEPEST)
    slopes = [np.array([drop])] if terms == 1 else [drop + np.array([-0.2, 1.0]), drop + np.array([-0.05, 4.0])]
    fast = [np.full(transients, np.log(turns / span)) for turns in ((8.0, 40.0) if transients else (8.0,))]
    starts = [np.array([shift, *slope, *extra]) for shift in (0.0, 2.0) for slope in slopes for extra in fast]
    found, error = tail.search(powers, starts)
    seen = tail.project(powers(found))[1][:terms] >= SEEN
    return _Fit(error, float(np.clip(found[1 : terms + 1], 0, STEEPEST)[seen].min(initial=np.inf)), terms + transients)

"""The law by which a memory function dies out, or that no law of a known family fits it.

Families of `tail_families` are fitted to the signed responses R(t), each weighted by the envelope of the memory
function, so that a late small value counts as much as an early large one. The family with the least error wins; terms
cost, since enough exponentials imitate any power. A law must then fit: what it leaves unexplained may not exceed
`UNEXPLAINED` of the weighted responses, on a window of the tail that may begin later where early lags hold a transient.

Three things are no decay, and are looked for first: responses that end (finite), that stay (non-decaying, periodic),
and that stay at a low level after a decay, which is then fitted above that floor.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from sostenuto.audits.memory.tail_families import FAINT, Fit, Lags, Responses, WeightedTail, fit_families
from sostenuto.results import Record

MOST_LAGS = 120
LEAST_LAGS = 8
"""Fewer lags above rounding than this show no law: the memory is finite where they end, and unknown where not."""
SILENT = 3
"""Fewer silent lags at the end of the horizon are a zero crossing, not an end."""
MOST_SPANNING = 6
STEADY = 0.9
"""A memory that keeps this share from the second quarter of the horizon to the last does not decay within it."""
LOW = 0.1
"""A steady level below this share of the largest response is a floor, and the decay above it is fitted."""
UNEXPLAINED = 0.05
"""A law with a larger relative error is none."""
GOOD = 0.02
"""A law of less than a third of the terms that fits so well keeps a longer sum of another family from being told."""
UNDECIDED = 1.1
"""Two laws whose costs differ by less than this factor explain the tail equally well: neither is told."""
STEEP = 3.5
"""A power beyond this is steep."""
LATEST, LEAST_ENDING = 0.9, 16
"""A half-life beyond this share of the horizon, where that has so many lags, may be the end of a wave."""
STARTS = (0.1, 0.3, 0.5)
"""Shares of the lags left out as a transient, tried in this order until a law fits."""


@dataclass(frozen=True, kw_only=True)
class Tail(Record):
    """The law found, its rate, and how well it fits.

    ``kind`` is ``"exponential"``, ``"stretched"`` (e^(−(βt)^γ), γ ≠ 1), ``"polynomial"``, ``"non-decaying"``,
    ``"periodic"``, ``"finite"`` where responses end after ``last_lag``, or ``"no law"``. ``rate`` is β per step,
    the power p, or None; ``exponent`` the γ of a stretched law. ``error`` is the relative error of the law,
    ``confidence`` compares it with the next best: from 0.5 (both explain the tail as well) to 1. ``period`` is in
    steps: of the responses' oscillation within the envelope, or of the size of what is periodic. ``floor`` is the
    share of the largest response that stays.
    """

    kind: str
    rate: float | None
    confidence: float
    error: float
    period: float | None
    last_lag: int
    exponent: float | None = None
    floor: float = 0.0


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
    >>> fit_tail(t, np.exp(-np.sqrt(t[:, None])), noise=1e-12).kind
    'stretched'
    >>> fit_tail(t, (t[:, None] < 30) / 30, noise=1e-12).kind
    'finite'
    """
    memory = np.abs(responses).max(axis=1)
    envelope = np.maximum.accumulate(memory[::-1])[::-1]
    alive = int(np.sum(envelope > noise))
    last = int(lags[alive - 1]) if alive else 0
    nothing = Tail(kind="finite", rate=None, confidence=1.0, error=0.0, period=None, last_lag=last)
    # What is silent for as long in between may come back after the end.
    pause = max(SILENT, _longest_pause(memory[:alive], noise) + 1)
    if alive < min(LEAST_LAGS, len(lags)) or (alive <= len(lags) - pause and _ends(lags, envelope, alive, noise)):
        return nothing
    if len(lags) < LEAST_LAGS:
        return replace(nothing, kind="no law")
    kept = _kept(lags, memory) if alive > len(lags) - pause and len(lags) >= 16 else 0.0
    if kept >= STEADY:
        return (
            _steady(lags, memory, kept)
            if memory[lags > 0.75 * lags[-1]].max() >= LOW * memory.max()
            else _above_floor(lags, responses)
        )
    found = _decaying(lags[:alive], responses[:alive], envelope[:alive], noise, last)
    # Many waves that keep half their size beat: an envelope that fits them roughly is no decay.
    beats = kept >= STEADY / 2 and found.period is not None and found.error > GOOD
    return replace(found, kind="no law", rate=None, period=None, exponent=None) if beats else found


def lost_half(lags: np.ndarray, memory: np.ndarray, tail: Tail) -> float | None:
    """Find where the memory falls below half of its largest value for good; None if it does not.

    What does not decay has no half-life, nor has what first falls so low in the last tenth of the horizon, where a
    wave may just end low. Responses that end do so wherever they end.
    """
    if tail.kind in ("non-decaying", "periodic") and tail.floor > 0.5:
        return None
    envelope = np.maximum.accumulate(memory[::-1])[::-1]
    half = envelope[0] / 2
    below = np.flatnonzero(envelope <= half)
    if len(below) == 0 or envelope[0] == 0:
        return 0.0 if envelope[0] == 0 else None
    index = int(below[0])
    if tail.kind != "finite" and lags[index] > LATEST * lags[-1] and len(lags) > LEAST_ENDING:
        return None
    high, low = envelope[index - 1], envelope[index]
    share = (high - half) / (high - low)
    return float(lags[index - 1] + share * (lags[index] - lags[index - 1]))


def _longest_pause(memory: Lags, noise: float) -> int:
    """Count the lags of the longest silence between two responses."""
    heard = np.flatnonzero(memory > noise)
    return int(np.diff(heard).max(initial=1)) - 1


def _ends(lags: Lags, envelope: Lags, alive: int, noise: float) -> bool:
    """Say whether responses end at once, and not by sinking into rounding at the pace at which they fell before."""
    drop = np.log(envelope[alive - 1] / max(noise, 1e-300)) / (lags[alive] - lags[alive - 1])
    late = envelope[alive // 2 : alive]
    gaps = np.diff(lags[alive // 2 : alive])
    pace = float(np.max(-np.diff(np.log(late)) / gaps, initial=0.0))
    return bool(drop > 3 * pace + np.log(20))


def _decaying(lags: Lags, responses: Responses, envelope: Lags, noise: float, last: int) -> Tail:
    """Fit every family to later and later windows of the tail until one explains it."""
    found: Tail | None = None
    for start in STARTS:
        chosen = _spread(lags, start)
        weight = 1 / (envelope[chosen] + 100 * noise)
        signal = _compressed(responses[chosen] * weight[:, None])
        rounding = noise * float(np.linalg.norm(weight) / np.linalg.norm(signal))
        tail = WeightedTail(lags[chosen], signal, weight, max(FAINT, rounding))
        law = _chosen(tail, fit_families(tail), last)
        if found is None or law.error <= UNEXPLAINED:
            found = law
        if law.error <= UNEXPLAINED:
            break
    assert found is not None
    return found


def _chosen(tail: WeightedTail, families: list[list[Fit]], last: int) -> Tail:
    """Take the cheapest fit that explains the tail, unless another family does as well or far more simply."""

    def order(fit: Fit) -> tuple[bool, float, float]:
        return fit.error > UNEXPLAINED, tail.cost(fit), fit.error

    best = sorted((min(fits, key=order) for fits in families), key=order)
    won, others = best[0], best[1:]
    family = next(fits for fits in families if won in fits)
    rivals = [fit for fits in families if fits is not family for fit in fits]
    told = won.error <= UNEXPLAINED and not any(_rivals(tail, won, family, other) for other in rivals)
    # A rival that fits is judged by its cost, as the winner was; any other by what it leaves unexplained.
    pair = [tail.cost(fit) if others[0].error <= UNEXPLAINED else fit.error for fit in (won, others[0])]
    return Tail(
        kind=won.kind if told else "no law",
        rate=won.rate if told else None,
        confidence=float(pair[1] ** 2 / (pair[0] ** 2 + pair[1] ** 2)),
        error=won.error,
        period=won.period if told else None,
        last_lag=last,
        exponent=won.exponent if told else None,
    )


def _rivals(tail: WeightedTail, won: Fit, family: list[Fit], other: Fit) -> bool:
    """Say whether another family's fit is as good as the winner, or almost, with less than a third of its terms.

    A sum of steep powers imitates what is faster than any power: it is not told where rounding drowns the difference.
    """
    ours = min(fit.error for fit in family if fit.terms <= max(other.terms, won.terms))
    equal = tail.cost(other) < UNDECIDED * tail.cost(won) and other.error < 3 * ours
    steep = won.kind == "polynomial" and won.terms > 1 and won.rate > STEEP
    drowned = steep and other.error <= tail.faint and other.terms < 3 * won.terms
    return equal or drowned or (other.error <= GOOD and 3 * other.terms < won.terms)


def _above_floor(lags: Lags, responses: Responses) -> Tail:
    """Take away what stays in the last quarter, and fit the decay above it, if there is one."""
    late = lags > 0.75 * lags[-1]
    level = responses[late].mean(0)
    above = responses - level
    ripple = 3 * float(np.abs(above[late]).max())
    floor = float(np.abs(responses[late]).max() / np.abs(responses).max())
    steady = Tail(
        kind="non-decaying", rate=None, confidence=1.0, error=0.0, period=None, last_lag=int(lags[-1]), floor=floor
    )
    envelope = np.maximum.accumulate(np.abs(above).max(1)[::-1])[::-1]
    noise = max(ripple, 1e-12 * float(envelope.max()))
    alive = int(np.sum(envelope > noise))
    if alive < LEAST_LAGS or (alive <= len(lags) - SILENT and _ends(lags, envelope, alive, noise)):
        return steady
    found = _decaying(lags[:alive], above[:alive], envelope[:alive], noise, int(lags[-1]))
    return replace(found, floor=floor)


def _compressed(signal: Responses) -> Float[np.ndarray, "lag spanning"]:
    """Turn many series into the few that span them: errors of a fit are the same, and cost less."""
    left, sizes, _ = np.linalg.svd(signal, full_matrices=False)
    return (left * sizes)[:, :MOST_SPANNING]


def _kept(lags: Lags, memory: Lags) -> float:
    """Compare the largest memory in the last quarter of the horizon with that in the second."""
    share = lags / lags[-1]
    second, last = memory[(share > 0.25) & (share <= 0.5)].max(), memory[share > 0.75].max()
    return float(last / second) if second > 0 else 0.0


def _steady(lags: Lags, memory: Lags, kept: float) -> Tail:
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
        floor=float(memory[lags > 0.75 * lags[-1]].max() / memory.max()),
    )


def _period(memory: Lags) -> float | None:
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


def _spread(lags: Lags, start: float) -> np.ndarray:
    """Choose lags of the tail, half of them even in time and half in its logarithm; before ``start`` is transient."""
    first = min(int(len(lags) * start), len(lags) - LEAST_LAGS)
    count, half = len(lags) - first, MOST_LAGS // 2
    if count <= MOST_LAGS:
        return np.arange(first, len(lags))
    even = np.linspace(first, len(lags) - 1, half)
    grown = np.geomspace(first + 1, len(lags), half) - 1
    return np.unique(np.concatenate([even, grown]).round().astype(int))

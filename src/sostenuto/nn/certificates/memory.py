"""What a memory certificate says: steps for which a layer provably remembers, steps after which it has forgotten."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

import numpy as np
from jaxtyping import Float

from sostenuto.checks import check_positive
from sostenuto.results import Numbers, Record

_LOWER_LN2, _UPPER_LN2 = math.nextafter(math.log(2), 0), math.nextafter(math.log(2), 1)
EVER = 1e18
"""Steps that stand for any number of them."""
EXACT = "exact arithmetic: rounding of states adds differences of its own"


@dataclass(frozen=True)
class LevelDecay(Record):
    """One layer of a stack: its rates per step in its norm, and what passes through it.

    e^{−slowest n} ≥ |Δ_n|/|Δ_0| ≥ e^{−fastest n} for equal inputs; None where nothing is proved. An input difference
    of size 1 adds at most ``entering``, the output moves by at most ``leaving`` per unit of the norm, and a state
    reached from 0 is at most ``reach`` large; None where no bound is known. What is read moves the output at once by at
    most ``passing`` times as much, past the state. ``distortion`` is what going from the norm of either side to the
    Euclidean one and back costs at most. ``clock`` are the two rates per unit of time where spans vary and more is
    known than the least span and the largest say.
    """

    fastest: float | None
    slowest: float | None
    entering: float | None = None
    leaving: float | None = None
    reach: float | None = None
    distortion: tuple[float | None, float | None] = (None, None)
    clock: tuple[float | None, float | None] = (None, None)
    passing: float = 0.0


@dataclass(frozen=True)
class Window(Record):
    """How many steps, and how much time where spans are given, an answer depends on to within ``epsilon``."""

    epsilon: float
    steps: int | None
    seconds: float | None
    reason: str = ""

    def summary(self) -> str:
        """Say it in a sentence."""
        if self.steps is None:
            return f"No window is proved: {self.reason}."
        said = _count(self.steps, self.seconds, up=True)
        return f"Input older than {said} changes no answer by more than {self.epsilon:g}."


@dataclass(frozen=True)
class MemoryCertificate(Record):
    """How long a layer provably remembers, and when it has provably forgotten, for every input.

    Δ is the difference of two states that read the same input, in ``norm``. At least half of it is left for
    ``remembers_at_least`` steps (0: nothing is proved; 10¹⁸: for ever), at most half after ``forgets_at_most``
    (None: not proved, or false). With ``drive`` it is about inputs that keep activations' arguments that small.
    ``per_unit`` are the half-lives, at least, of the units of the lowest layer, each in its own norm: a layer remembers
    as long as its best units. ``layers`` are the half-lives of all layers, each for equal inputs to it. ``checked``
    names the proof, ``conditions`` what it assumes, ``reason`` why a side is missing. ``remembers_time`` and
    ``forgets_time`` are the same in the unit of the time spans, where there are spans.

    >>> from sostenuto.nn import UnICORNN
    >>> certificate = UnICORNN(1, 8, step_size=0.1, stiffness=1.0).memory_certificate()
    >>> certificate.remembers_at_least > 50, certificate.forgets_at_most is None
    (True, True)
    """

    remembers_at_least: float
    forgets_at_most: float | None
    per_unit: Numbers
    norm: str
    conditions: tuple[str, ...]
    checked: str
    reason: str = ""
    layers: Numbers = ()
    levels: tuple[LevelDecay, ...] = ()
    spans: tuple[float, float] = (1.0, 1.0)
    drive: float | None = None
    remembers_time: float | None = None
    forgets_time: float | None = None

    @property
    def holds(self) -> bool:
        """Return whether anything is proved."""
        return self.remembers_at_least > 0 or self.forgets_at_most is not None

    def curves(
        self, lags: Sequence[float] | Float[np.ndarray, " lag"], *, euclidean: bool = False
    ) -> tuple[Float[np.ndarray, " lag"], Float[np.ndarray, " lag"]]:
        """Return the least and the largest share of a difference that is left after ``lags`` steps.

        The first is 0 and the second infinite where nothing is proved; in a stack the first is about the lowest layer,
        the second about all of them. With ``euclidean`` both are in the Euclidean norm, at what that costs.
        """
        steps = np.asarray(lags, dtype=np.float64)
        first = self.levels[0]
        low = np.zeros_like(steps) if first.fastest is None else np.exp(-first.fastest * steps) * (1 - 1e-9)
        with np.errstate(over="ignore"):
            if first.slowest is None:
                high = np.full_like(steps, np.inf)
            elif len(self.levels) == 1:
                high = np.exp(-first.slowest * steps) * (1 + 1e-9)
            else:
                high = self._cascaded(steps)
        if not euclidean:
            return low, high
        below, above = first.distortion
        low = np.zeros_like(low) if below is None else low / below
        return low, np.full_like(high, np.inf) if above is None or len(self.levels) > 1 else high * above

    def window(
        self, epsilon: float, *, readout: float = 1.0, start: float | None = None, largest: int = 10_000_000
    ) -> Window:
        """Return n such that what came before the last n steps moves an answer by at most ``epsilon``, for every input.

        Two states reached by different pasts, or one reached and the zero state of a stream that starts anew, are at
        most twice ``LevelDecay.reach`` apart; from there the levels' rates and gains bound the difference of the top
        layer's output. The answer is a function of the last output with Lipschitz constant ``readout``. Seconds are n
        times the longest of ``spans``: older input is at least n steps old.

        Args:
            epsilon: the change of the answer, above 0.
            readout: Lipschitz constant of the answer as a function of the top layer's last output: ‖C‖₂ for scores,
                √2/4·‖C‖₂ for each probability of a softmax.
            start: bound on the difference of any two states of a layer in its norm, where it is known better.
            largest: steps beyond which the search ends.
        """
        check_positive("epsilon", epsilon)
        check_positive("readout", readout, zero=True)
        if start is not None:
            check_positive("start", start, zero=True)
        reason = self._unknown(start)
        if reason:
            return Window(epsilon, None, None, reason)
        first = np.array([2 * (level.reach or 0.0) if start is None else start for level in self.levels])
        matrix, answer = self._cascade()
        steps = _first_below(matrix, first, readout * answer[None], epsilon * (1 - 1e-9), largest)
        if steps is None:
            return Window(epsilon, None, None, f"not within {largest} steps")
        timed = self.spans != (1.0, 1.0)
        return Window(epsilon, steps, steps * self.spans[1] if timed else None)

    def summary(self) -> str:
        """Say it in a sentence that needs no mathematics."""
        if not self.holds:
            return f"Nothing is proved of its memory: {self.reason}."
        scope = "Whatever it reads" if self.drive is None else f"While activations read within ±{self.drive:g}"
        said = []
        if self.remembers_at_least > 0:
            steps = _count(self.remembers_at_least, self.remembers_time)
            said.append(f"at least half of its memory is left after {steps}")
        if self.forgets_at_most is not None:
            steps = _count(self.forgets_at_most, self.forgets_time, up=True)
            said.append(f"at most half of its memory is left after {steps}")
        if len(self.per_unit) > 1 and self.remembers_at_least > 0:
            middle, best = float(np.median(self.per_unit)), max(self.per_unit)
            said[0] += f" (half of its units: {_count(middle)}, the longest: {_count(best)})"
        return f"{scope}, {' and '.join(said)} (proved{'' if not self.reason else f'; {self.reason}'})."

    def _unknown(self, start: float | None) -> str:
        """Say what a window lacks."""
        if not self.levels or any(level.slowest is None or level.slowest <= 0 for level in self.levels):
            return self.reason or "no layer of it is proved to forget"
        if start is None and any(level.reach is None for level in self.levels):
            return "no bound on the states is known; pass start, or drive where the activation is unbounded"
        if any(level.leaving is None for level in self.levels) or any(lev.entering is None for lev in self.levels[1:]):
            return "what passes from layer to layer is not bounded"
        return ""

    def _cascade(self) -> tuple[Float[np.ndarray, "level level"], Float[np.ndarray, " level"]]:
        """Bound |Δ⁺| of all layers by a matrix times |Δ|, and the top layer's output by a row times |Δ⁺|."""
        count = len(self.levels)
        matrix, read, answer = np.zeros((count, count)), np.zeros(count), np.zeros(count)
        for place, level in enumerate(self.levels):
            matrix[place, place] = math.exp(-float(level.slowest or 0.0)) * (1 + 1e-14)
            if place:  # the layer below has moved when this one reads it
                matrix[place] += float(level.entering or 0.0) * read
            leaving = float(level.leaving or 0.0)
            read = (level.passing * read + leaving * matrix[place]) * (1 + 1e-14)
            answer = level.passing * answer
            answer[place] += leaving
        return matrix, answer

    def _cascaded(self, steps: np.ndarray) -> np.ndarray:
        if self._unknown(start=1.0):
            return np.where(steps > 0, np.inf, 1.0)
        matrix, ones = self._cascade()[0], np.ones(len(self.levels))
        return np.array([float((np.linalg.matrix_power(matrix, int(n)) @ ones).max()) for n in steps.flat])


def remembering(
    levels: Sequence[LevelDecay],
    per_unit: Float[np.ndarray, " unit"],
    *,
    norm: str,
    checked: str,
    conditions: Sequence[str] = (),
    reason: str = "",
    spans: tuple[float, float] = (1.0, 1.0),
) -> MemoryCertificate:
    """Make a certificate of the rates of all layers, the lowest first.

    >>> found = remembering([LevelDecay(0.01, None)], np.array([69.3]), norm="N", checked="by hand")
    >>> round(found.remembers_at_least, 1)
    69.3
    """
    layers = tuple(_at_least(level.fastest) for level in levels)
    said = [*conditions, EXACT]
    if len(levels) > 1:
        said.append("differences that begin in the lowest layer: upper layers do not act on it")
    if spans != (1.0, 1.0):
        said.append(f"time spans from {spans[0]:g} to {spans[1]:g}")
    certificate = MemoryCertificate(
        layers[0],
        None,
        tuple(np.minimum(per_unit, EVER).tolist()),
        norm,
        tuple(said),
        checked,
        reason,
        layers,
        tuple(levels),
        spans,
    )
    certificate = replace(certificate, forgets_at_most=_at_most(certificate))
    if spans == (1.0, 1.0):
        return certificate
    least, most = _in_time(certificate)
    return replace(certificate, remembers_time=least, forgets_time=most)


def both_directions(levels: Sequence[LevelDecay]) -> LevelDecay:
    """Take the worse of two directions; what passes through a layer that reads the future is not followed."""
    if len(levels) == 1:
        return levels[0]

    def worst(values: Iterable[float | None], choose: Callable[[list[float]], float] = max) -> float | None:
        known = list(values)
        return None if None in known else choose([value for value in known if value is not None])

    return LevelDecay(
        worst(level.fastest for level in levels),
        worst((level.slowest for level in levels), min),
        distortion=(worst(level.distortion[0] for level in levels), worst(level.distortion[1] for level in levels)),
        clock=(worst(level.clock[0] for level in levels), worst((level.clock[1] for level in levels), min)),
    )


def not_provable(why: str, *, layers: int = 1) -> MemoryCertificate:
    """Say that no bound holds for every input, because of ``why``.

    >>> not_provable("a gate can close").summary()
    'Nothing is proved of its memory: not provable, because a gate can close.'
    """
    nothing = (LevelDecay(None, None),) * layers
    return MemoryCertificate(0.0, None, (), "", (), "", f"not provable, because {why}", (0.0,) * layers, nothing)


def _at_least(rate: float | None) -> float:
    """Turn the fastest decay into steps that at least half survives, rounded down."""
    if rate is None:
        return 0.0
    return EVER if rate <= 0 else min(math.nextafter(_LOWER_LN2 / rate, 0), EVER)


def _at_most(certificate: MemoryCertificate) -> float | None:
    """Turn the slowest decay into steps after which at most half is left, for all layers together."""
    if len(certificate.levels) == 1:
        rate = certificate.levels[0].slowest
        return None if rate is None or rate <= 0 else math.nextafter(_UPPER_LN2 / rate, math.inf)
    if certificate._unknown(start=1.0):
        return None
    ones = np.ones(len(certificate.levels))
    steps = _first_below(certificate._cascade()[0], ones, np.eye(len(ones)), 0.5, 10_000_000)
    return None if steps is None else float(steps)


def _in_time(certificate: MemoryCertificate) -> tuple[float, float | None]:
    """Turn steps into time by the spans they have at least, or at most; take the clock's rates where they say more."""
    fast, slow = certificate.levels[0].clock
    least = max(
        min(certificate.remembers_at_least * certificate.spans[0], EVER), _at_least(fast) if fast is not None else 0.0
    )
    if certificate.forgets_at_most is None:
        return least, None
    most = certificate.forgets_at_most * certificate.spans[1]
    alone = len(certificate.levels) == 1 and slow is not None and slow > 0
    return least, min(most, _UPPER_LN2 / slow * (1 + 1e-15)) if alone and slow else most


def _first_below(
    matrix: np.ndarray, start: np.ndarray, answer: Float[np.ndarray, "row level"], level: float, largest: int
) -> int | None:
    """Find the least n from which all of answer·matrixⁿ·start is at most ``level``, by doubling.

    What is left can rise before it falls, as lower layers pass theirs on. Once a further step makes it smaller in every
    layer it does so for ever, since the matrix has no entries below 0; that is asked for too.
    """

    def small(n: int) -> bool:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            left = np.linalg.matrix_power(matrix, n) @ start * (1 + 1e-12 * (n + 1))
            return bool((answer @ left <= level).all()) and bool((matrix @ left <= left).all())

    high = 1
    while not small(high):
        high *= 2
        if high > largest:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if small(middle) else (middle, high)
    return high


def rounded(value: float, *, up: bool, digits: int = 3) -> float:
    """Round to few significant digits, only ever down or up, so that a bound stays one.

    >>> rounded(769.97, up=False), rounded(2.0001, up=True), rounded(1234567.0, up=True)
    (769.0, 2.01, 1240000.0)
    """
    return float(Context(digits, ROUND_CEILING if up else ROUND_FLOOR).create_decimal_from_float(value))


def _count(steps: float, time: float | None = None, *, up: bool = False) -> str:
    if steps >= EVER:
        return "any number of steps"
    whole = math.ceil(steps) if up else math.floor(steps)
    plain = 10 <= steps < 1e6
    shown = f"{whole:,}".replace(",", " ") if plain else f"{rounded(steps, up=up):.3g}"
    timed = "" if time is None else f" ({rounded(time, up=up, digits=4):.4g} in the unit of the time spans)"
    return f"{shown} steps{timed}"

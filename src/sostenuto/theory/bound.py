"""What a bound says: a number, the terms it is made of, and every assumption with the value that was checked."""

import math
from dataclasses import dataclass, field

from sostenuto.results import Record


@dataclass(frozen=True)
class Assumption(Record):
    """A condition such as ``"2ρg ≤ 1"``, whether it holds, and the value found."""

    condition: str
    holds: bool
    value: float = math.nan


@dataclass(frozen=True)
class Bound(Record):
    """A bound on ``quantity``; ``value`` is NaN where an assumption fails, never a number that looks like a bound.

    >>> bound = make_bound("x", 3.0, {"a": 3.0}, [Assumption("y < 1", False, 2.5)])
    >>> bound.value, bound.applicable, bound.reason
    (nan, False, 'not applicable: y < 1 fails (2.5)')
    """

    quantity: str
    value: float
    terms: dict[str, float] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()

    @property
    def applicable(self) -> bool:
        """Whether every assumption holds."""
        return all(assumption.holds for assumption in self.assumptions)

    @property
    def reason(self) -> str:
        """Say which assumptions fail and with which values, or that the bound is infinite; else empty."""
        failed = [each for each in self.assumptions if not each.holds]
        told = [
            each.condition + " fails" + ("" if math.isnan(each.value) else f" ({each.value:.4g})") for each in failed
        ]
        if told:
            return f"not applicable: {', '.join(told)}"
        return "the bound is infinite: it is beyond float64 and says nothing" if math.isinf(self.value) else ""


def make_bound(
    quantity: str, value: float, terms: dict[str, float], assumptions: list[Assumption] | tuple[Assumption, ...] = ()
) -> Bound:
    """Make a `Bound` whose value counts only when all assumptions hold."""
    good = all(assumption.holds for assumption in assumptions)
    return Bound(quantity, float(value) if good else math.nan, terms, tuple(dict.fromkeys(assumptions)))


def exponential(x: float) -> float:
    """Return e^x, infinite where it is beyond float64.

    >>> exponential(0.0), exponential(1000.0)
    (1.0, inf)
    """
    return math.exp(x) if x < 709 else math.inf


def power(base: float, exponent: int) -> float:
    """Return base^exponent, infinite where it is beyond float64.

    >>> power(2.0, 3), power(1e200, 2)
    (8.0, inf)
    """
    try:
        return base**exponent
    except OverflowError:
        return math.inf

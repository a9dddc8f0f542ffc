"""What an attack found: how many cases ended how, and which of them should not have."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_KEPT = 20


@dataclass
class Outcome:
    """Counts of how the cases of one attack ended; ``failures`` shows the first that broke the promise."""

    attack: str
    promise: str
    counts: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def cases(self) -> int:
        return sum(self.counts.values())

    def add(self, ending: str) -> None:
        """Count a case that kept the promise."""
        self.counts[ending] += 1

    def fail(self, ending: str, what: str) -> None:
        """Count a case that broke it."""
        self.counts[ending] += 1
        self.failed += 1
        if len(self.failures) < _KEPT:
            self.failures.append(what)

    def to_dict(self) -> dict[str, Any]:
        return {
            "attack": self.attack,
            "promise": self.promise,
            "cases": self.cases,
            "outcomes": dict(sorted(self.counts.items())),
            "failed": self.failed,
            "failures": self.failures,
            "seconds": round(self.seconds, 1),
        }


@dataclass(frozen=True)
class Bound:
    """How long an attack may go on: so many cases, or so many seconds and the least cases, whichever comes first."""

    cases: int
    seconds: float
    seed: int = 0
    least: int = 1

    def numbers(self) -> Iterator[int]:
        """Count cases until the bound is met."""
        limit = time.monotonic() + self.seconds
        for number in range(self.cases):
            if number >= self.least and time.monotonic() > limit:
                return
            yield number


Attack = Callable[[Bound, Any], Outcome]

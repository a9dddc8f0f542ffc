"""What the paper says of one quantity, and the verdict on what was measured beside it."""

import math
from dataclasses import dataclass
from typing import Any

from sostenuto.checks import check_choice, require, shown
from sostenuto.results import ExperimentNumber

REPRODUCED, BETTER, WORSE, DIFFERS = "reproduced", "better", "worse", "differs"
LAW_HOLDS, LAW_FAILS = "law holds", "law fails"
UNDECIDED, NOT_JUDGED, NOT_RUN = "undecided", "not judged", "not run"
DATA_MISSING, MEASURED, NOT_COMPARED, NOT_MEASURED = "data missing", "measured", "not compared", "not measured"
STAND_IN = "stand-in data"
ONE_SEED = "one seed"
STANDARD_ERRORS = 2.0
"""So many standard errors a difference has to have before it is called one."""
_KEYS = ("value", "unit", "better", "tolerance", "law", "headline", "remark")


@dataclass(frozen=True)
class Expectation:
    """One entry of an item's ``[expected]``: a number of the paper, a law, or only the name of what is measured.

    ``better`` is ``"higher"`` or ``"lower"`` where one of them is. ``tolerance`` is how far a reproduction may lie from
    ``value``. A ``law`` is a sentence that holds or fails. ``headline = false`` keeps an entry (a baseline, say) out of
    the verdict on the whole. ``remark`` is what ``docs/errata.md`` says about it.
    """

    name: str
    value: float | None = None
    unit: str = ""
    better: str = ""
    tolerance: float | None = None
    law: str = ""
    headline: bool = True
    remark: str = ""

    @classmethod
    def of(cls, name: str, entry: dict[str, Any] | str) -> "Expectation":
        """Read an entry, a law where it is a sentence, and check it.

        >>> Expectation.of("accuracy", {"value": 98.4, "better": "higher"}).judge(98.6, spread=0.1, count=5)
        'better'
        """
        entry = {"law": entry} if isinstance(entry, str) else entry
        unknown = [key for key in entry if key not in _KEYS]
        require(not unknown, f"expected the keys {', '.join(_KEYS)} under {name!r}", f"got {shown(unknown)}")
        values: dict[str, Any] = {
            key: float(value) if key in ("value", "tolerance") else value for key, value in entry.items()
        }
        results = cls(name, **values)
        check_choice(f"better of {name!r}", results.better, ("higher", "lower", ""))
        if results.value is not None:
            require(not results.law, f"expected either a value or a law for {name!r}", "got both")
            comparable = bool(results.better) or results.tolerance is not None
            require(comparable, f"expected better or tolerance beside the value of {name!r}", "got neither")
        return results

    def judge(self, value: float, spread: float | None = None, count: int = 1) -> str:
        """Compare a measured value: reproduced within the tolerance or two standard errors, whichever is wider.

        What one repetition alone has above the paper's value decides nothing; what it lacks counts.

        >>> rate = Expectation("rate", value=1.0, better="higher", tolerance=0.1)
        >>> rate.judge(1.3, spread=0.05, count=4), rate.judge(1.3), rate.judge(0.7), rate.judge(1.3, 0.4, 4)
        ('better', 'undecided', 'worse', 'reproduced')
        """
        if self.value is None:
            return MEASURED
        if not math.isfinite(value):
            return WORSE if self.better else DIFFERS
        repeated = spread is not None and count > 1
        error = (spread or 0.0) / math.sqrt(count) if repeated else 0.0
        if abs(value - self.value) <= max(self.tolerance or 0.0, STANDARD_ERRORS * error):
            return REPRODUCED
        if not self.better:
            return DIFFERS
        if (value > self.value) != (self.better == "higher"):
            return WORSE
        return BETTER if repeated else UNDECIDED

    def number(self, verdict: str, **measured: Any) -> ExperimentNumber:
        """Return the record of what was measured beside this expectation."""
        return ExperimentNumber(
            name=self.name,
            verdict=verdict,
            unit=self.unit,
            expected=self.value,
            tolerance=self.tolerance,
            better=self.better,
            law=self.law,
            remark=self.remark,
            headline=self.headline,
            **measured,
        )


ORDER = (
    *(DATA_MISSING, STAND_IN, LAW_FAILS, WORSE, DIFFERS, UNDECIDED, NOT_JUDGED, NOT_RUN),
    *(BETTER, REPRODUCED, LAW_HOLDS, NOT_COMPARED, MEASURED, NOT_MEASURED),
)
"""Failures first, what speaks for nothing last."""


def overall(numbers: tuple[ExperimentNumber, ...]) -> str:
    """Sum up the verdicts of the headline numbers: the first of these that occurs.

    Data missing, stand-in data, law fails, worse, differs, undecided, not judged, not run, better, reproduced, law
    holds, not compared, measured, not measured.

    >>> overall((Expectation("a", value=1.0, better="higher").number("better", value=2.0),))
    'better'
    """
    results = {number.verdict for number in numbers if number.headline}
    return next((verdict for verdict in ORDER if verdict in results), NOT_MEASURED)

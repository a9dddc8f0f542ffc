"""Sampling times: numbers or ISO dates, and the timespans between steps."""

import math
from datetime import UTC, datetime

import numpy as np
from jaxtyping import Float, Int

from sostenuto.data.files.cells import as_number, quoted
from sostenuto.data.files.place import Place

# Steps that differ by less than this part of the median, or by what floats near the times can tell, are even.
_EVEN = 1e-6


def parse_times(cells: list[str], place: Place) -> Float[np.ndarray, " row"]:
    """Read a column of times, all numbers or all ISO dates (seconds then); none may be missing.

    Eight digits that are a day of the years 1800 to 2199 in every row are dates, such as 20240131.

    >>> from pathlib import Path
    >>> parse_times(["2024-01-02", "2024-01-03T12:00"], Place(Path("a.csv"))).tolist()
    [1704153600.0, 1704283200.0]
    """
    first = None if all(map(is_day, cells)) else as_number(cells[0])
    parse, kind = (as_number, "a number") if first is not None else (_date, "an ISO date")
    times = []
    for row, cell in enumerate(cells):
        time = parse(cell.strip())
        if time is None or not math.isfinite(time):
            wanted = kind if row else "a number or an ISO date"
            hint = "write dates as 2024-01-31" if "date" in wanted else ""
            raise place.error(row, f"expected {wanted} as the time", f"got {quoted(cell)}", hint)
        times.append(time)
    return np.array(times)


def timespans(
    times: Float[np.ndarray, " row"], starts: Int[np.ndarray, " series"]
) -> tuple[Float[np.ndarray, " row"] | None, float]:
    """Return the time since the step before over the median of all, 1 at each of ``starts``, and that median.

    ``times`` grow strictly within each series. Spans are None where all are 1; the median is 0 where there is no step.

    >>> spans, median = timespans(np.array([0.0, 2.0, 6.0, 0.0, 2.0]), np.array([0, 3]))
    >>> spans.tolist(), median
    ([1.0, 1.0, 2.0, 1.0, 1.0], 2.0)
    """
    inner = np.ones(len(times), dtype=bool)
    inner[starts] = False
    if not inner.any():
        return None, 0.0
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        differences = np.diff(times, prepend=times[:1])[inner]
        median = float(np.median(differences))
        resolution = 4 * np.finfo(float).eps * np.abs(times[inner]) / median
        relative = differences / median
        if (np.abs(relative - 1) <= _EVEN + resolution).all():
            return None, median
    spans = np.ones(len(times))
    spans[inner] = relative
    return spans, median


def is_day(cell: str) -> bool:
    """Whether a cell is a day written as eight digits, of the years 1800 to 2199.

    >>> is_day("20240131"), is_day("20240132")
    (True, False)
    """
    text = cell.strip()
    is_near = len(text) == 8 and text.isascii() and text.isdigit() and 1800 <= int(text[:4]) < 2200
    return is_near and _date(text) is not None


def is_date(cell: str) -> bool:
    """Whether a cell is an ISO date, with a time of day or without.

    >>> is_date("2024-01-31"), is_date("high")
    (True, False)
    """
    return _date(cell.strip()) is not None


def _date(cell: str) -> float | None:
    try:
        date = datetime.fromisoformat(cell)
    except ValueError:
        return None
    # A time without a zone is read as if in UTC, so that no step depends on where the program runs.
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()

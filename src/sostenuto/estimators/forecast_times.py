"""Moments of steps: spans between them, and the moments that come next, by the calendar where they follow one."""

from typing import Any

import numpy as np
from jaxtyping import Shaped

from sostenuto.checks import require


def read_times(times: Any, length: int) -> Shaped[np.ndarray, " time"]:
    """Check moments: one for each step, rising; numbers, numpy dates, or texts such as 2024-01-31."""
    array = np.asarray(times)
    array = array.astype("datetime64[s]" if array.dtype.kind in "USOM" else np.float64)
    require(array.shape == (length,), f"expected {length} times, one for each step", f"got shape {array.shape}")
    require(bool((array[1:] > array[:-1]).all()), "expected rising times", "got others", "sort the steps by time")
    return array


def step_spans(times: Shaped[np.ndarray, " time"]) -> np.ndarray | None:
    """Give the time before each step in units of the median (1 before the first); None where steps are regular.

    Months, weekdays and other regular calendars are regular.

    >>> step_spans(np.array(["2024-01-31", "2024-02-29", "2024-03-31"], "datetime64[s]")) is None
    True
    >>> step_spans(np.array([0.0, 1.0, 3.0, 4.0]))
    array([1., 1., 2., 1.])
    """
    if len(times) < 2 or _months(times) or _on_weekdays(times):
        return None
    spans = np.diff(times).astype(np.float64)
    spans = spans / np.median(spans)
    return None if np.allclose(spans, 1.0, rtol=1e-6) else np.concatenate([[1.0], spans])


def next_times(times: Shaped[np.ndarray, " time"], count: int) -> Shaped[np.ndarray, " count"]:
    """Give the ``count`` moments after the last: months by months, weekdays by weekdays, others by the median span.

    >>> next_times(np.array(["2024-01-31", "2024-02-29", "2024-03-31"], "datetime64[s]"), 2).astype("datetime64[D]")
    array(['2024-04-30', '2024-05-31'], dtype='datetime64[D]')
    """
    require(len(times) > 1, "expected at least 2 times to go on from", f"got {len(times)}")
    ahead = np.arange(1, count + 1)
    if months := _months(times):
        month = times[-1].astype("datetime64[M]") + months * ahead
        day = int(max(_day(times)))
        last = ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(int)
        clock = times[-1] - times[-1].astype("datetime64[D]")
        return (month.astype("datetime64[D]") + np.minimum(day, last) - 1).astype("datetime64[s]") + clock
    if _on_weekdays(times):
        clock = times[-1] - times[-1].astype("datetime64[D]")
        return np.busday_offset(times[-1].astype("datetime64[D]"), ahead).astype("datetime64[s]") + clock
    spans = np.diff(times)
    if spans.dtype.kind == "m":
        return times[-1] + ahead * np.median(spans.astype(np.int64)).astype(np.int64).astype("timedelta64[s]")
    return times[-1] + ahead * np.median(spans)


def _months(times: np.ndarray) -> int:
    """Give the number of months between steps where it is always the same, on the same day or the month's last."""
    if times.dtype.kind != "M":
        return 0
    month = times.astype("datetime64[M]")
    steps = np.unique(np.diff(month).astype(int))
    if len(steps) != 1 or steps[0] < 1:
        return 0
    last = ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(int)
    return int(steps[0]) if (_day(times) == np.minimum(_day(times).max(), last)).all() else 0


def _day(times: np.ndarray) -> np.ndarray:
    return (times.astype("datetime64[D]") - times.astype("datetime64[M]").astype("datetime64[D]")).astype(int) + 1


def _on_weekdays(times: np.ndarray) -> bool:
    """Say whether steps are days of trade: Monday to Friday, mostly the next one."""
    if times.dtype.kind != "M" or len(times) < 6:
        return False
    days = times.astype("datetime64[D]")
    clocks = np.unique(times - days)
    if len(clocks) != 1 or not np.is_busday(days).all():
        return False
    gaps = np.busday_count(days[:-1], days[1:])
    return bool((gaps == 1).mean() > 0.8) and bool((gaps >= 1).all())

"""What a forecaster is given and answers with: series beside their covariates, moments, seasons."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from sostenuto.checks import InputError, check_choice, require
from sostenuto.data.batch import interpolate
from sostenuto.estimators.inputs import is_list_of_sequences

MOMENT = "datetime64[us]"
"""How moments of the calendar are held."""


@dataclass(frozen=True, eq=False)
class ForecastSeries:
    """A series without gaps, with what is known beside it: past covariates, known ones (ahead too), moments."""

    values: Float[np.ndarray, "time channel"]
    past: Float[np.ndarray, "time past"]
    known: Float[np.ndarray, "later known"]
    times: Shaped[np.ndarray, " time"] | None = None
    gaps: Bool[np.ndarray, "time channel"] | None = None
    """Which values were missing; None where none was."""

    @property
    def spans(self) -> np.ndarray | None:
        """The time before each step in units of the median; None where steps are regular."""
        return None if self.times is None else step_spans(self.times)


def read_series(
    y: Any, covariates: Any, times: Any, future_covariates: Any, layout: str
) -> tuple[list[ForecastSeries], bool]:
    """Read one series or a list; say which. A 2-D array is one series (time, channel), a 3-D one several.

    NaN is filled by a straight line in time, and by the last value at the end.
    """
    check_choice("layout", layout, ("btc", "bct"))
    several = _is_several(y)
    count = len(y) if several else 1
    parts = [_listed(name, part, several, count) for name, part in _named(y, covariates, times, future_covariates)]
    series = []
    for own, past, moments, known in zip(*parts, strict=True):
        values = _steps("y", own, layout)
        stamps = None if moments is None else read_times(moments, len(values))
        spans = None if stamps is None else step_spans(stamps)
        require(not np.isnan(values).all(0).any(), "expected a value in every channel", "got one of NaN alone")
        beside = np.zeros((len(values), 0)) if past is None else _steps("covariates", past, layout)
        got = f"got {len(beside)}"
        require(len(beside) == len(values), f"expected covariates for {len(values)} steps", got)
        ahead = np.zeros((0, 0)) if known is None else _steps("future_covariates", known, layout)
        gaps = np.isnan(values) if np.isnan(values).any() else None
        filled = (_filled(values, spans), _filled(beside, spans), _filled(ahead, None))
        series.append(ForecastSeries(*filled, stamps, gaps))
    for name in ("values", "past", "known"):
        widths = {getattr(each, name).shape[1] for each in series}
        require(len(widths) == 1, "expected the same channels in every series", f"got {sorted(widths)} ({name})")
    return series, several


def _named(y: Any, covariates: Any, times: Any, future_covariates: Any) -> list[tuple[str, Any]]:
    return [("y", y), ("covariates", covariates), ("times", times), ("future_covariates", future_covariates)]


def _is_several(y: Any) -> bool:
    return is_list_of_sequences(y) or getattr(y, "ndim", 0) == 3


def _listed(name: str, part: Any, several: bool, count: int) -> list[Any]:
    if part is None:
        return [None] * count
    items = list(part) if several else [part]
    require(len(items) == count, f"expected {name} for {count} series", f"got {len(items)}")
    return items


def _steps(name: str, given: Any, layout: str) -> np.ndarray:
    held = given.detach().cpu() if hasattr(given, "detach") else given
    try:
        array = np.asarray(held, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected {name} to be numbers, got {error}; drop columns of text.") from error
    require(array.ndim in (1, 2), f"expected {name} of shape (time,) or (time, channel)", f"got {array.shape}")
    array = array[:, None] if array.ndim == 1 else array.T if layout == "bct" else array
    require(len(array) > 0, f"expected at least one step of {name}", "got none")
    require(not np.isinf(array).any(), f"expected finite {name} or NaN", "got infinity", "clip or drop it")
    return array


def _filled(array: np.ndarray, spans: np.ndarray | None) -> np.ndarray:
    return interpolate(array, spans) if np.isnan(array).any() else array


def fill_by_season(series: ForecastSeries, season: int) -> ForecastSeries:
    """Fill gaps by a straight line in time between values without their season, and the season on top of it.

    >>> steps = np.arange(60)
    >>> waves = np.sin(2 * np.pi * steps / 6)
    >>> series = read_series(np.where((steps > 30) & (steps < 45), np.nan, waves), None, None, None, "btc")[0][0]
    >>> filled = fill_by_season(series, 6)
    >>> [round(float(np.abs(each.values[:, 0] - waves).max()), 1) for each in (series, filled)]
    [0.9, 0.1]
    """
    if series.gaps is None or season < 2:
        return series
    phase, window = np.arange(len(series.values)) % season, np.ones(season)
    values = series.values.copy()
    for channel, missing in enumerate(series.gaps.T):
        seen = series.values[:, channel]
        around = np.convolve(seen, window, "same") / np.convolve(np.ones(len(seen)), window, "same")
        count = np.bincount(phase, ~missing, season)
        profile = np.bincount(phase, np.where(missing, 0.0, seen - around), season) / np.maximum(count, 1)
        rest = np.where(missing, np.nan, seen - profile[phase])[:, None]
        filled = interpolate(rest, series.spans)[:, 0] + profile[phase]
        values[missing, channel] = filled[missing]
    return replace(series, values=values)


def calendar_season(times: Shaped[np.ndarray, " time"] | None) -> int:
    """Give the steps of a year of months or quarters, of a week of days, of a year of weeks, of a day of hours; or 0.

    >>> calendar_season(np.arange("2024-01", "2025-01", dtype="datetime64[M]").astype(MOMENT))
    12
    """
    if times is None or times.dtype.kind != "M" or len(times) < 2:
        return 0
    if months := _months(times):
        return 12 // months if 12 % months == 0 and months < 12 else 0
    if _on_weekdays(times):
        return 5
    span = np.median(np.diff(times).astype(np.int64)).astype(np.int64).astype("timedelta64[us]")
    return _SEASON_OF.get(int(span / np.timedelta64(1, "m")), 0)


_SEASON_OF = {7 * 24 * 60: 52, 24 * 60: 7, 60: 24, 30: 48, 15: 96}
"""Steps of a season by the minutes of a step."""


def read_times(times: Any, length: int) -> Shaped[np.ndarray, " time"]:
    """Check moments: one for each step, rising; numbers, numpy dates, or texts such as 2024-01-31."""
    array = np.asarray(times)
    with warnings.catch_warnings():
        # NumPy counts moments with a zone in UTC, as wanted, and warns that it forgets the zone.
        warnings.filterwarnings("ignore", "no explicit representation of timezones")
        try:
            array = array.astype(MOMENT if array.dtype.kind in "USOM" else np.float64)
        except ValueError as error:
            raise InputError(f"expected times as numbers, dates or texts such as 2024-01-31, got {error}.") from error
    require(array.shape == (length,), f"expected {length} times, one for each step", f"got shape {array.shape}")
    wrong = np.flatnonzero(~(array[1:] > array[:-1]))
    if len(wrong):
        before, after = array[wrong[0] : wrong[0] + 2]
        raise InputError(
            f"expected rising times, got {after} after {before} at step {wrong[0] + 1}; "
            "sort the steps by time, and give a moment one step."
        )
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
        month = times[-1].astype("datetime64[M]") + months * ahead.astype("timedelta64[M]")
        day = int(max(_day(times)))
        days = (np.minimum(day, _days_of(month)) - 1).astype("timedelta64[D]")
        clock = times[-1] - times[-1].astype("datetime64[D]")
        return (month.astype("datetime64[D]") + days).astype(MOMENT) + clock
    if _on_weekdays(times):
        clock = times[-1] - times[-1].astype("datetime64[D]")
        return np.busday_offset(times[-1].astype("datetime64[D]"), ahead).astype(MOMENT) + clock
    spans = np.diff(times)
    if spans.dtype.kind == "m":
        return times[-1] + ahead * np.median(spans.astype(np.int64)).astype(np.int64).astype("timedelta64[us]")
    return times[-1] + ahead * np.median(spans)


def _months(times: np.ndarray) -> int:
    """Give the number of months between steps where it is always the same, on the same day or the month's last."""
    if times.dtype.kind != "M":
        return 0
    month = times.astype("datetime64[M]")
    steps = np.unique(np.diff(month).astype(int))
    if len(steps) != 1 or steps[0] < 1:
        return 0
    return int(steps[0]) if (_day(times) == np.minimum(_day(times).max(), _days_of(month))).all() else 0


def _days_of(months: np.ndarray) -> np.ndarray:
    after = months + np.timedelta64(1, "M")
    return (after.astype("datetime64[D]") - months.astype("datetime64[D]")).astype(int)


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


LEAST_SHARE = 0.25
"""A season explains at least this share of the variance around a moving average."""
_CANDIDATES = 8
_TOLERANCE = 1.1
"""The shortest period counts whose unexplained variance is within this factor of the least."""
_INNER = 0.3


def find_seasons(values: Float[np.ndarray, "time channel"], longest: int = 400) -> tuple[int, ...]:
    """Give the season of the channels' mean, in steps, and a shorter one inside it (a day in a week); often none.

    Candidates are peaks of the autocorrelation of the series without its line, and of its differences, and whole
    parts of them. Each is judged
    by the share of variance around a moving average over one period that the mean profile explains, every value left
    out of its own mean; at least three periods must be there.

    >>> steps = np.arange(120)[:, None]
    >>> find_seasons(np.sin(2 * np.pi * steps / 12) + 0.1 * steps), find_seasons(steps**2 / 100)
    ((12,), ())
    """
    scale = values.std(0)
    series = (values / np.where(scale > 0, scale, 1.0)).mean(1)
    steps, most = np.arange(len(series)), min(longest, len(series) // 3)
    if most < 2:
        return ()
    line = np.polynomial.Polynomial.fit(steps, series, 1)(steps)
    peaks = [*_peaks(series - line, most), *_peaks(np.diff(series), most)]
    # Many multiples of a short season have peaks as high as its own, so that it may not be among the highest.
    around = {period for peak in peaks for period in (peak - 1, peak, peak + 1)}
    parts = {peak // part for peak in peaks for part in range(2, peak // 2 + 1) if peak % part == 0}
    candidates = {period for period in around | parts if 2 <= period <= most}
    shares = {period: explained_share(series, period) for period in sorted(candidates)}
    best = max(shares.values(), default=0.0)
    if best < LEAST_SHARE:
        return ()
    season = min(period for period, share in shares.items() if 1 - share <= _TOLERANCE * (1 - best) + 1e-12)
    inner = [
        period
        for period, share in shares.items()
        if period < season and season % period == 0 and share > _INNER * shares[season]
    ]
    return (season, max(inner, key=shares.__getitem__)) if inner else (season,)


def explained_share(series: Float[np.ndarray, " time"], period: int) -> float:
    """Give the share of variance around a moving average that the mean of the other values at the phase explains."""
    window = np.ones(period + 1 - period % 2)
    if period % 2 == 0:
        window[[0, -1]] = 0.5
    half = len(window) // 2
    if len(series) < len(window) + 2 * period - 1:
        return 0.0
    rest = series[half : len(series) - half] - np.convolve(series, window / window.sum(), "valid")
    phase = np.arange(len(rest)) % period
    count = np.bincount(phase, minlength=period)
    mean = np.bincount(phase, rest, minlength=period) / np.maximum(count, 1)
    left_out = (rest - mean[phase]) * (count / np.maximum(count - 1, 1))[phase]
    total = float(np.square(rest).sum())
    # Rounding alone is no season: a straight line leaves 1e-16 of itself around its moving average.
    if total <= 1e-18 * float(np.square(series).sum()):
        return 0.0
    return 1 - float(np.square(left_out).sum()) / total


def _peaks(series: np.ndarray, most: int) -> list[int]:
    """Give the lags of the highest peaks of the autocorrelation that stand out of noise."""
    centered, length = series - series.mean(), len(series)
    spectrum = np.abs(np.fft.rfft(centered, 2 * length)) ** 2
    correlation = np.fft.irfft(spectrum)[: most + 2] * length / (length - np.arange(most + 2))
    if correlation[0] <= 0:
        return []
    correlation = correlation / correlation[0]
    inside = correlation[2:-1]
    high = (inside > correlation[1:-2]) & (inside >= correlation[3:]) & (inside > 2 / np.sqrt(length))
    lags = np.flatnonzero(high) + 2
    return lags[np.argsort(-correlation[lags])][:_CANDIDATES].tolist()

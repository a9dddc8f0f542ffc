"""Google's daily stock prices as a forecasting task, split in time as in alemohammad2021."""

import csv
import gzip
import io
from datetime import date
from pathlib import Path

import numpy as np
from jaxtyping import Float

from sostenuto.checks import FileFormatError
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.download import DAMAGED
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source

FIRST_DAY = date(2014, 1, 2)
DAYS, TRAIN_DAYS = 975, 700
SHORTEST, LONGEST = 10, 20
LENGTH_SEED = 2014
COLUMNS = ("Open", "High", "Low", "Close", "Volume")
FORMS = (("google_stock/GOOG.csv",), ("google_stock/GOOG.csv.gz",))
_NAMES = ("google-stock", "google-stock/ohlcv")
_ORIGIN = "GOOG daily prices as traded before the 2022 split, 2014-01-02 on"
_ADVICE = (
    f"put google_stock/GOOG.csv (columns Date, {', '.join(COLUMNS)}; one trading day a line, {DAYS} of them from "
    f"{FIRST_DAY} on, as the history pages of finance sites export it)"
)


def load(name: str, places: Places) -> Dataset:
    """Build ``google-stock`` (closing price) or ``google-stock/ohlcv`` (five channels): forecast the next day.

    alemohammad2021 (section 4) takes 975 days of 2014 to 2018, trains on windows of different lengths from the first
    700 and tests on days 701 to 975. It does not name the days: here they are the first 975 trading days from
    2014-01-02. Each window ends the day before its target, lies in one part alone, and has 10 to 20 days (the paper's
    T_fixed = 10 and T_var = 10) drawn with a fixed seed. ``extras`` holds the raw ``series`` (975, 5), its ``columns``
    and ``dates``.
    """
    path = places.obtain(name, FORMS, None, _ADVICE)[0]
    dates, series = read_days(path)
    channels = list(range(len(COLUMNS))) if name == "google-stock/ohlcv" else [COLUMNS.index("Close")]
    random = np.random.RandomState(LENGTH_SEED)
    return Dataset(
        name=name,
        train=_windows(series[:TRAIN_DAYS, channels], channels, random),
        test=_windows(series[TRAIN_DAYS:, channels], channels, random),
        description=f"next trading day from the {SHORTEST} to {LONGEST} before it; {TRAIN_DAYS} days train, then test",
        origin=f"{_ORIGIN}; {dates[0]} to {dates[-1]}",
        extras={"series": series, "columns": COLUMNS, "dates": dates},
    )


def _windows(
    series: Float[np.ndarray, "day channel"], channels: list[int], random: np.random.RandomState
) -> SequenceSet:
    from sostenuto.data.tasks.forecast import windows

    names = tuple(COLUMNS[channel].lower() for channel in channels)
    longest = windows(series, LONGEST, horizon=1, channel_names=names)
    lengths = random.randint(SHORTEST, LONGEST + 1, size=len(longest))
    kept = [window[-length:] for window, length in zip(longest.sequences, lengths, strict=True)]
    return SequenceSet(kept, longest.targets, "forecast", channel_names=names, target_name="next day")


def read_days(path: Path) -> tuple[tuple[str, ...], Float[np.ndarray, "day channel"]]:
    """Read the first 975 days from 2014-01-02: their ISO dates and their open, high, low, close and volume."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        missing = [column for column in ("Date", *COLUMNS) if column not in (rows.fieldnames or ())]
    except (*DAMAGED, UnicodeDecodeError) as error:
        raise FileFormatError(path, "expected comma-separated text", f"could not read it ({error})") from error
    if missing:
        raise FileFormatError(path, f"expected the columns Date, {', '.join(COLUMNS)}", f"missed {', '.join(missing)}")
    days: list[date] = []
    values: list[list[float]] = []
    for row in rows:
        day, numbers = _day(path, rows.line_num, row)
        if day < FIRST_DAY or len(days) == DAYS:
            continue
        if days and day <= days[-1]:
            raise FileFormatError(path, "expected days in order", f"got {day} after {days[-1]}", line=rows.line_num)
        days.append(day)
        values.append(numbers)
    if len(days) < DAYS or days[0] != FIRST_DAY:
        got = f"got {len(days)}" + (f" from {days[0]}" if days else "")
        raise FileFormatError(path, f"expected {DAYS} trading days from {FIRST_DAY}", got, "export a longer history")
    return tuple(day.isoformat() for day in days), np.array(values)


def _day(path: Path, line: int, row: dict[str, str | None]) -> tuple[date, list[float]]:
    try:
        day = date.fromisoformat(row["Date"] or "")
        numbers = [float(row[column] or "") for column in COLUMNS]
    except ValueError as error:
        expected = f"expected an ISO date and numbers in {', '.join(COLUMNS)}"
        raise FileFormatError(path, expected, f"got {error}", line=line) from error
    if not np.isfinite(numbers).all():
        raise FileFormatError(path, "expected finite numbers", f"got {numbers}", line=line)
    return day, numbers


def _entry(name: str, title: str, channels: str) -> Entry:
    return Entry(
        name=name,
        title=title,
        task="forecast",
        steps=f"{SHORTEST} to {LONGEST}",
        channels=channels,
        classes="",
        sizes=f"{TRAIN_DAYS - LONGEST} / {DAYS - TRAIN_DAYS - LONGEST}",
        origin=_ORIGIN,
        license="market data; not distributed with this library",
    )


SOURCE = Source(
    prefix="google-stock",
    entries=(
        _entry(_NAMES[0], "Google's daily closing price, next day from windows of unequal length", "1"),
        _entry(_NAMES[1], "Google's daily open, high, low, close and volume, next day", "5"),
    ),
    names=_NAMES,
    load=load,
    local=lambda places: _NAMES if places.find(FORMS) else (),
)

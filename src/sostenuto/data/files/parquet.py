"""The ``.parquet`` format, by pyarrow (the extra ``parquet``); long and wide as ``.csv``."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from sostenuto.checks import FileFormatError, MissingExtraError
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.long import long_set
from sostenuto.data.files.options import Options
from sostenuto.data.files.place import Place
from sostenuto.data.files.table import Columns, Table, choose_columns, text_hint
from sostenuto.data.files.text import read_bytes
from sostenuto.data.files.times import is_day
from sostenuto.data.files.wide import wide_set

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def read(path: Path, options: Options) -> SequenceSet:
    """Read a ``.parquet`` file, long or wide."""
    table = read_table(path, options)
    return long_set(table, options) if table.columns.is_long else wide_set(table, options)


def read_table(path: Path, options: Options) -> Table:
    """Read the columns of a ``.parquet`` file, the values as numbers."""
    options.refuse_marks(path)
    data = _load(path)
    names = tuple(str(name) for name in data.column_names)
    for name in names:
        if name.startswith("__index_level_"):
            raise FileFormatError(
                path, "expected columns of data", f"got the row index {name!r}", "write the file without its index"
            )
    columns = choose_columns(path, names, options)
    if data.num_rows == 0:
        raise FileFormatError(path, "expected at least one row", "got none")
    place = Place(path)
    numbers = [_numbers(place, name, data.column(name), text_hint(name, columns)) for name in columns.values]
    values = np.stack(numbers, axis=1) if numbers else np.empty((data.num_rows, 0))
    special = {name: _cells(path, name, data.column(name)) for name in columns.special if name != columns.time}
    times = None
    if columns.time is not None and columns.is_long:
        times, cells = _times(place, columns, data.column(columns.time))
        special[columns.time] = cells
    return Table(place, columns, values, special, times)


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "reading .parquet files") from error
    return pyarrow, pyarrow.parquet


def _load(path: Path) -> Any:
    arrow, parquet = _arrow()
    content = read_bytes(path)
    try:
        data = parquet.ParquetFile(io.BytesIO(content)).read()
        data.validate(full=True)
    except (arrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".").replace(". ", ", ")
        raise FileFormatError(
            path, "expected a .parquet file", f"could not read it ({reason[:120]})", "copy or write it again"
        ) from error
    return data


def _numbers(place: Place, name: str, column: Any, hint: str = "") -> np.ndarray:
    """Bring a column to floats, NaN where a value is missing; infinities are refused."""
    arrow, _ = _arrow()
    kinds = arrow.types
    column = _plain(column)
    kind = column.type
    if kinds.is_boolean(kind):
        column = column.cast(arrow.uint8())
    elif not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind) or kinds.is_null(kind)):
        raise FileFormatError(place.path, f"expected numbers in column {name!r}", f"got {kind} data", hint)
    numbers = column.cast(arrow.float64(), safe=False).to_numpy().astype(float)
    if np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax())
        raise place.error(row, f"expected a finite number in column {name!r}", "got infinity")
    return numbers


def _cells(path: Path, name: str, column: Any) -> list[str]:
    """Write a column of numbers, text or truth values as text; what is missing becomes empty."""
    arrow, _ = _arrow()
    kinds = arrow.types
    column = _plain(column)
    kind = column.type
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        column = column.cast(arrow.string())
    elif not any(
        test(kind) for test in (kinds.is_integer, kinds.is_floating, kinds.is_boolean, _is_text, kinds.is_null)
    ):
        raise FileFormatError(path, f"expected numbers or text in column {name!r}", f"got {kind} data")
    return ["" if cell is None else str(cell) for cell in column.to_pylist()]


def _times(place: Place, columns: Columns, column: Any) -> tuple[np.ndarray | None, list[str]]:
    """Bring times that are not text to numbers; text is left to the reader of cells."""
    arrow, _ = _arrow()
    kinds = arrow.types
    column = _plain(column)
    kind, name = column.type, columns.time
    if _is_text(kind):
        return None, _cells(place.path, str(name), column)
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise place.error(row, f"expected a time in column {name!r}", "got a missing one")
    if kinds.is_date(kind):
        column, kind = column.cast(arrow.timestamp("ms")), arrow.timestamp("ms")
    if kinds.is_timestamp(kind):
        # From the first one on, so that nanoseconds are not lost to the size of a date; in seconds, as in a .csv.
        # Without a sign: 300 years of nanoseconds are more than a signed difference holds.
        counts = column.cast(arrow.int64()).to_numpy()
        since = counts.astype(np.uint64) - np.uint64(int(counts.min()) % 2**64)
        return since / _PER_SECOND[kind.unit], column.cast(arrow.string()).to_pylist()
    if kinds.is_integer(kind):
        cells = [str(cell) for cell in column.to_pylist()]
        if all(map(is_day, cells)):
            return None, cells
    times = _numbers(place, str(name), column)
    if np.isnan(times).any():
        raise place.error(int(np.isnan(times).argmax()), f"expected a time in column {name!r}", "got NaN")
    return times, [str(cell) for cell in column.to_pylist()]


def _is_text(kind: Any) -> bool:
    arrow, _ = _arrow()
    kinds = arrow.types
    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)


def _plain(column: Any) -> Any:
    """Undo dictionary encoding (pandas' categories)."""
    arrow, _ = _arrow()
    if arrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column

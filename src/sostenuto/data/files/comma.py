"""The ``.csv`` format: text with a header line, quoted as in RFC 4180, separated by commas unless options differ."""

import csv
from array import array
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

import numpy as np

from sostenuto.checks import FileFormatError
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.cells import CellError, parse_numbers, with_points
from sostenuto.data.files.long import long_set
from sostenuto.data.files.options import Options
from sostenuto.data.files.place import Place
from sostenuto.data.files.table import Columns, Table, choose_columns, text_hint
from sostenuto.data.files.text import opened_text, read_text
from sostenuto.data.files.wide import wide_set

_CELLS_AT_ONCE = 1 << 16
_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t"}
Row = tuple[int, list[str]]
"""A row and its line."""


def read(path: Path, options: Options) -> SequenceSet:
    """Read a ``.csv`` file, long or wide."""
    table = read_table(path, options)
    return long_set(table, options) if table.columns.is_long else wide_set(table, options)


def read_table(path: Path, options: Options) -> Table:
    """Read the cells of a ``.csv`` file, the values as numbers."""
    with opened_text(path) as text:
        return _table(path, _rows(path, text, _SEPARATORS[options.separator]), options)


def _table(path: Path, rows: Iterator[Row], options: Options) -> Table:
    first = next(rows, None)
    if first is None:
        read_text(path)  # refuses a file of blanks
    line, header = first or (1, [""])
    names = tuple(name.strip() for name in header)
    _check_separator(path, names, options.separator, line)
    columns = choose_columns(path, names, options, line=line)
    return _Builder(path, names, columns, as_written=options.decimal == "point").build(rows)


def _check_separator(path: Path, names: tuple[str, ...], separator: str, line: int) -> None:
    """Refuse a header that is one cell by this separator and several by another."""
    others = (name for name, mark in _SEPARATORS.items() if len(names) == 1 and mark in names[0])
    if other := next(others, None):
        decimal = ", and decimal='comma' if numbers are written as 1,5" if other != "comma" else ""
        expected, hint = f"expected columns separated by a {separator}", f"pass separator={other!r}{decimal}"
        raise FileFormatError(path, expected, f"got the header {names[0][:60]!r}", hint, line=line)


def _rows(path: Path, text: TextIOWrapper, separator: str) -> Iterator[Row]:
    """Yield rows with their lines. Blank lines are no rows, but in a table of one column they are empty cells.

    Blank lines at the end of the file are the end of the file.
    """
    reader = csv.reader(text, strict=True, delimiter=separator)
    width, blank = 0, []
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise FileFormatError(
                path, "expected comma-separated cells", f"could not read them ({error})", line=reader.line_num
            ) from error
        if row is None:
            return
        if not row or (len(row) == 1 and not row[0].strip() and width != 1):
            blank.append((reader.line_num, [""]))
            continue
        if width == 1:
            yield from blank
        blank.clear()
        width = width or len(row)
        yield reader.line_num, row


class _Builder:
    """Collects rows, and turns the value cells into numbers many rows at a time; equal cells of text are kept once."""

    def __init__(self, path: Path, names: tuple[str, ...], columns: Columns, *, as_written: bool) -> None:
        self.path, self.names, self.columns, self.as_written = path, names, columns, as_written
        self.special: dict[str, list[str]] = {name: [] for name in columns.special}
        self.positions = sorted(
            ((index, name) for index, name in enumerate(names) if name not in columns.values), reverse=True
        )
        self.lines = array("q")
        self.known: dict[str, str] = {}
        self.pending: list[str] = []
        # It grows in place where the system can; numpy's own resize lets old and new stand side by side since 2.5.
        self.numbers = array("d")
        self.count = 0

    def build(self, rows: Iterator[Row]) -> Table:
        for line, row in rows:
            if len(row) != len(self.names):
                self._flush()  # a bad cell further up comes first
                raise FileFormatError(
                    self.path,
                    f"expected {len(self.names)} cells as in the header",
                    f"got {len(row)}",
                    line=line,
                )
            for position, name in self.positions:
                cell = row.pop(position)
                if name in self.special:
                    if not self.as_written and name in (self.columns.target, self.columns.time):
                        cell = self._with_point(cell, name, line)
                    self.special[name].append(self.known.setdefault(cell, cell))
            self.lines.append(line)
            self.pending.extend(row)
            if len(self.pending) >= _CELLS_AT_ONCE:
                self._flush()
        self._flush()
        if not self.lines:
            raise FileFormatError(self.path, "expected at least one row after the header", "got none", line=1)
        numbers = np.frombuffer(self.numbers, dtype=float).reshape(len(self.lines), len(self.columns.values))
        return Table(Place(self.path, self.lines), self.columns, numbers, self.special)

    def _with_point(self, cell: str, name: str, line: int) -> str:
        try:
            return with_points([cell])[0]
        except CellError as error:
            expected = f"{error.expected} in column {name!r}"
            raise FileFormatError(self.path, expected, error.got, line=line) from error

    def _flush(self) -> None:
        width = len(self.columns.values)
        try:
            numbers = parse_numbers(self.pending if self.as_written else with_points(self.pending))
        except CellError as error:
            row, column = divmod(error.index, width)
            name = self.columns.values[column]
            raise FileFormatError(
                self.path,
                f"{error.expected} in column {name!r}",
                error.got,
                text_hint(name, self.columns, self.pending[error.index]),
                line=self.lines[self.count + row],
            ) from error
        self.numbers.frombytes(numbers.tobytes())
        self.pending, self.count = [], len(self.lines)

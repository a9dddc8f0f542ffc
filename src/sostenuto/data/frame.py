"""Sequences from a long data frame: pandas, polars, pyarrow, or a dict of columns; none of them is needed."""

import math
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from sostenuto.checks import InputError
from sostenuto.choices import Task
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.cells import MISSING, CellError, parse_numbers
from sostenuto.data.files.long import long_set
from sostenuto.data.files.options import Options
from sostenuto.data.files.place import Place
from sostenuto.data.files.table import Columns, Table, choose_columns, text_hint


def from_frame(
    frame: Any,
    *,
    series: str | None = None,
    time: str | None = None,
    target: str | None = None,
    group: str | None = None,
    task: Task | None = None,
    ignore: Sequence[str] = (),
    categorical: Sequence[str] = (),
    labeled: bool = True,
) -> SequenceSet:
    """Gather the rows of a long frame into sequences: each row is one step of the sequence that ``series`` names.

    A frame is anything with named columns: ``frame[name]`` is a column, and ``frame.columns``, ``frame.column_names``
    or the keys of a dict are the names. Columns are those of a long ``.csv``: ``time`` (numbers or dates) orders the
    steps, ``target`` and ``group`` are constant within a series unless ``task="sequence"``, those in ``ignore`` are
    left out, those in ``categorical`` become a channel for each value, and every other column is a channel. Without
    ``series`` the frame is one sequence.

    The result has what estimators take:

    >>> frame = {"id": ["a", "a", "b", "b"], "day": [1, 2, 1, 2], "x": [0, 1, 1, 0], "kind": ["up"] * 2 + ["down"] * 2}
    >>> data = from_frame(frame, series="id", time="day", target="kind")
    >>> [sequence.ravel().tolist() for sequence in data.sequences], data.targets.tolist(), data.timespans
    ([[0.0, 1.0], [1.0, 0.0]], ['up', 'down'], None)

    ``RecurrentClassifier().fit(data.sequences, data.targets, timespans=data.timespans)`` then learns from it.
    """
    place = Place(Path("the data frame"))
    names = _names(frame)
    named = {"series": series, "time": time, "target": target, "group": group, "task": task, "labeled": labeled}
    options = Options.of(**named, ignore=tuple(ignore), categorical=tuple(categorical))
    columns = choose_columns(place.path, names, options)
    if not columns.is_long:
        raise InputError("expected the name of a column of series or of times, got neither; pass series= or time=.")
    cells = {name: _cells(frame[name]) for name in (*columns.special, *columns.values)}
    counts = {len(column) for column in cells.values()}
    if len(counts) != 1 or 0 in counts:
        raise InputError(f"expected columns of one length above 0, got lengths {sorted(counts)}.")
    numbers = [_numbers(place, name, cells[name], columns) for name in columns.values]
    values = np.stack(numbers, axis=1) if numbers else np.empty((counts.pop(), 0))
    return long_set(Table(place, columns, values, {name: cells[name] for name in columns.special}), options)


def _names(frame: Any) -> tuple[str, ...]:
    for names in (getattr(frame, "columns", None), getattr(frame, "column_names", None)):
        # The columns of a pyarrow table are the columns themselves; its names stand elsewhere.
        if names is not None and all(isinstance(name, str) for name in names):
            return tuple(names)
    if isinstance(frame, dict):
        return tuple(frame)
    raise InputError(f"expected a data frame with columns named by text, got {type(frame).__name__}.")


def _cells(column: Any) -> list[str]:
    """Write a column as text, as a .csv would hold it; what is missing becomes empty."""
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(column, method):
            column = getattr(column, method)()
    return [_cell(value) for value in column]


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)) or str(value) in ("NaT", "<NA>"):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return value.isoformat() if isinstance(value, (date, datetime)) else str(value)


def _numbers(place: Place, name: str, cells: list[str], columns: Columns) -> np.ndarray:
    try:
        return parse_numbers(cells, MISSING)
    except CellError as error:
        expected = f"{error.expected} in column {name!r}"
        raise place.error(error.index, expected, error.got, text_hint(name, columns, cells[error.index])) from error

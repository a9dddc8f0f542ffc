"""Long tables: each row is one step of the sequence its series column names."""

import numpy as np
from jaxtyping import Int

from sostenuto.choices import Task
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.cells import as_number, quoted
from sostenuto.data.files.options import Options
from sostenuto.data.files.place import Place
from sostenuto.data.files.table import Table
from sostenuto.data.files.targets import is_missing, label, read_numbers, read_targets, whole_or_real
from sostenuto.data.files.times import parse_times, timespans

Index = Int[np.ndarray, " _"]


def long_set(table: Table, options: Options) -> SequenceSet:
    """Gather the rows of each series, in order of time, into sequences of shape (time, channel).

    Series come in the order of their first rows; without a time column the rows keep the order of the file.
    """
    codes, ids = _series_codes(table)
    times = _times(table)
    order = np.argsort(codes, kind="stable") if times is None else np.lexsort((times, codes))
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    pieces = np.split(order, starts[1:])
    spans, unit = (None, 0.0) if times is None else _timespans(table, times[order], order, starts)
    targets, task = _targets(table, pieces, options)
    groups = _constant(table, table.columns.group, pieces)
    stamps = table.cells(table.columns.time)
    names, values = table.channels()
    return SequenceSet(
        [values[piece] for piece in pieces],
        targets,
        task,
        timespans=None if spans is None else np.split(spans, starts[1:]),
        groups=None if groups is None else np.array(groups, dtype=str),
        channel_names=names,
        target_name="" if targets is None and task != "forecast" else table.columns.target or "",
        ids=None if ids is None else np.array(ids, dtype=str),
        times=None if stamps is None else [np.array([stamps[row].strip() for row in piece]) for piece in pieces],
        time_unit=unit,
        categorical=table.columns.categorical,
    )


def _series_codes(table: Table) -> tuple[Index, list[str] | None]:
    """Give every row the number of its series, in the order of their first rows, and the names of the series."""
    cells = table.cells(table.columns.series)
    if cells is None:
        return np.zeros(len(table.values), dtype=np.int64), None
    known: dict[str, int] = {}
    codes = np.empty(len(cells), dtype=np.int64)
    for row, cell in enumerate(cells):
        name = cell.strip()
        if not name:
            raise table.place.error(
                row, f"expected the name of a series in column {table.columns.series!r}", "got an empty cell"
            )
        codes[row] = known.setdefault(name, len(known))
    return codes, list(known)


def _times(table: Table) -> np.ndarray | None:
    if table.times is not None:
        return table.times
    cells = table.cells(table.columns.time)
    return None if cells is None else parse_times(cells, table.place)


def _timespans(table: Table, times: np.ndarray, order: Index, starts: Index) -> tuple[np.ndarray | None, float]:
    with np.errstate(over="ignore"):
        same = np.diff(times, prepend=np.nan) == 0
    same[starts] = False
    if same.any():
        # Of two rows with one time, the later in the file is the one to name.
        at = int(same.argmax())
        row = max(int(order[at]), int(order[at - 1]))
        raise table.place.error(
            row,
            "expected each time once within a series",
            f"got one a second time in column {table.columns.time!r}",
            "drop one of the rows"
            + (", or pass series=NAME where a column tells the series apart" if table.columns.series is None else ""),
        )
    spans, unit = timespans(times, starts)
    if spans is not None and not (np.isfinite(spans) & (spans > 0)).all():
        row = int(order[(~(np.isfinite(spans) & (spans > 0))).argmax()])
        raise table.place.error(
            row, "expected times within the range of floating point numbers", "got steps too large or too uneven"
        )
    return spans, unit


def _targets(
    table: Table, pieces: list[Index], options: Options
) -> tuple[np.ndarray | list[np.ndarray] | None, Task | None]:
    # What is forecast is a channel, and its own next values are the target.
    cells = None if options.task == "forecast" else table.cells(table.columns.target)
    if cells is None:
        return None, options.task
    if options.task == "sequence":
        return _step_targets(table, cells, pieces, options.labeled), "sequence"
    per_series = _constant(table, table.columns.target, pieces, may_be_empty=True)
    place = table.place
    firsts = [int(piece[0]) for piece in pieces]
    lines = None if place.lines is None else [place.lines[row] for row in firsts]
    return read_targets(per_series, options.task, labeled=options.labeled, place=Place(place.path, lines, "series"))


def _step_targets(table: Table, cells: list[str], pieces: list[Index], labeled: bool) -> list[np.ndarray] | None:
    """Return a target for every step: numbers where all are (of an integer type where whole), class names otherwise."""
    missing = [is_missing(cell) for cell in cells]
    if all(missing) and not labeled:
        return None
    if any(missing):
        raise table.place.error(missing.index(True), "expected a target for every step", "got a missing one")
    if all(as_number(cell) is not None for cell in cells):
        column = whole_or_real(read_numbers(cells, table.place))
    else:
        column = np.array([label(cell) for cell in cells], dtype=str)
    return [column[piece] for piece in pieces]


def _constant(table: Table, name: str | None, pieces: list[Index], *, may_be_empty: bool = False) -> list[str] | None:
    """Return the one value a column has within each series."""
    cells = table.cells(name)
    if cells is None:
        return None
    values = []
    for piece in pieces:
        rows = np.sort(piece).tolist()
        cell = cells[rows[0]]
        first = label(cell)
        if not first and not may_be_empty:
            raise table.place.error(rows[0], f"expected a value in column {name!r}", "got an empty cell")
        for row in rows:
            if cells[row] != cell and label(cells[row]) != first:
                hint = "say task='sequence' for a target at every step" if may_be_empty else "correct the column"
                if table.columns.series is None:
                    hint += ", or pass series=NAME where a column tells the series apart"
                raise table.place.error(
                    row,
                    f"expected one value of {name!r} within a series",
                    f"got {quoted(first)} and {quoted(label(cells[row]))}",
                    hint,
                )
        values.append(first)
    return values

"""Wide tables: each row is one sequence of one channel."""

import numpy as np

from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.cells import trim_missing
from sostenuto.data.files.options import Options
from sostenuto.data.files.table import Table
from sostenuto.data.files.targets import read_targets


def wide_set(table: Table, options: Options) -> SequenceSet:
    """Turn the rows of a wide table into sequences of shape (time, 1), missing values at their ends cut off."""
    sequences = []
    for index, row in enumerate(table.values):
        steps = trim_missing(row)
        if len(steps) == 0:
            raise table.place.error(index, "expected at least one value", "got a sequence of length zero")
        sequences.append(steps[:, None])
    targets, task = read_targets(
        table.cells(table.columns.target), options.task, labeled=options.labeled, place=table.place
    )
    return SequenceSet(
        sequences,
        targets,
        task,
        groups=_groups(table),
        target_name="" if targets is None else table.columns.target or "",
    )


def _groups(table: Table) -> np.ndarray | None:
    cells = table.cells(table.columns.group)
    if cells is None:
        return None
    for row, cell in enumerate(cells):
        if not cell.strip():
            raise table.place.error(row, f"expected a group in column {table.columns.group!r}", "got an empty cell")
    return np.array([cell.strip() for cell in cells], dtype=str)

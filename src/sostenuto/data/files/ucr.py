"""The UCR archive's ``.tsv`` and ``.txt``: a label, then the steps of one channel."""

from pathlib import Path

import numpy as np

from sostenuto.checks import FileFormatError
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.cells import CellError, parse_numbers, trim_missing
from sostenuto.data.files.options import Options
from sostenuto.data.files.place import Place
from sostenuto.data.files.targets import read_targets
from sostenuto.data.files.text import read_lines


def read(path: Path, options: Options) -> SequenceSet:
    """Read a UCR file: ``(time, 1)`` float arrays and their labels.

    Missing values at the end of a row are the archive's padding and are cut off. The label column is always there; for
    prediction it may hold ``?`` or ``NaN``.
    """
    options.refuse_columns(path)
    sequences: list[np.ndarray] = []
    labels: list[str] = []
    lines: list[int] = []
    separator, columns = None, 0
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        if not lines:
            separator = _separator(line)
        cells = line.split(separator)
        columns = columns or len(cells)
        if len(cells) != columns or columns < 2:
            wanted = f"{columns} columns as in line {lines[0]}" if lines else "a label and at least one value"
            got = "got 1 column" if len(cells) == 1 else f"got {len(cells)}"
            raise FileFormatError(
                path, f"expected {wanted}", got, "separate columns by tabs, commas or blanks throughout", line=number
            )
        sequences.append(_read_steps(path, number, cells[1:]))
        labels.append(cells[0])
        lines.append(number)
    targets, task = read_targets(
        labels, options.task or "classification", labeled=options.labeled, place=Place(path, lines)
    )
    return SequenceSet(sequences, targets, task)


def _separator(line: str) -> str | None:
    """Find what separates the columns of the first line: a tab, a comma, or blanks (None)."""
    return "\t" if "\t" in line.strip() else "," if "," in line else None


def _read_steps(path: Path, line: int, cells: list[str]) -> np.ndarray:
    try:
        row = trim_missing(parse_numbers(cells))
    except CellError as error:
        raise FileFormatError(path, f"{error.expected} in column {error.index + 1}", error.got, line=line) from error
    if len(row) == 0:
        raise FileFormatError(path, "expected at least one value", "got a sequence of length zero", line=line)
    return row[:, None]

"""Targets from cells of text: class names as strings, or numbers."""

import re

import numpy as np

from sostenuto.choices import Task
from sostenuto.data.files.cells import MISSING, CellError, as_number, parse_numbers, quoted
from sostenuto.data.files.place import Place

_WHOLE_WITH_POINT = re.compile(r"[+-]?[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?")
_LARGEST_WHOLE = 2.0**53

Targets = tuple[np.ndarray | None, Task | None]


def label(cell: str) -> str:
    """Name the class a cell stands for: whole numbers written with a point lose it, all else stays as it is.

    >>> label("1.0000e+00"), label("-1.0"), label("1.5"), label("007"), label(" up ")
    ('1', '-1', '1.5', '007', 'up')
    """
    text = cell.strip()
    if _WHOLE_WITH_POINT.fullmatch(text):
        number = float(text)
        if number.is_integer() and abs(number) <= _LARGEST_WHOLE:
            return str(int(number))
    return text


def is_missing(cell: str) -> bool:
    """Return whether a target is not there: empty, ``?``, ``NA`` or ``NaN``.

    >>> [is_missing(cell) for cell in ("NA", "-nan", " ", "nano")]
    [True, True, True, False]
    """
    return cell.strip().lower() in MISSING


def choose_task(cells: list[str]) -> Task:
    """Choose the task where nothing names it: names or whole numbers are classes, other numbers a regression.

    >>> choose_task(["1", "2.0"]), choose_task(["up", "2.5"]), choose_task(["1", "2.5"])
    ('classification', 'classification', 'regression')
    """
    numbers = [as_number(cell) for cell in cells]
    whole = all(number is None or number.is_integer() for number in numbers)
    return "classification" if whole or None in numbers else "regression"


def read_targets(cells: list[str] | None, task: Task | None, *, labeled: bool, place: Place) -> Targets:
    """Read one target per sequence, and settle the task.

    ``cells`` is None where the file has no place for targets. Without ``labeled`` they may all be missing, not some.
    """
    if task == "forecast" or cells is None:
        return None, task
    missing = [is_missing(cell) for cell in cells]
    if all(missing) and not labeled:
        return None, task
    if any(missing):
        row = missing.index(True)
        hint = "fill it in or drop the row" if labeled else "give every sequence a target or none"
        raise place.error(row, "expected a target", "got a missing one", hint)
    task = task or choose_task(cells)
    if task == "sequence":
        raise place.error(
            0,
            "expected a target for every step, as task='sequence' says",
            "got one for each sequence",
            "use a long table or an .npz file, or another task",
        )
    if task == "classification":
        # numpy cuts NUL off at the end of a text, and two labels would be one.
        for row, cell in enumerate(cells):
            if "\0" in cell:
                raise place.error(row, "expected a label of letters", f"got {quoted(cell)}", "take the NUL out")
        return np.array([label(cell) for cell in cells], dtype=str), task
    return read_numbers(cells, place), task


def whole_or_real(numbers: np.ndarray) -> np.ndarray:
    """Give whole numbers an integer type, so that a few of them at every step count as classes.

    >>> whole_or_real(np.array([0.0, 1.0])).dtype.kind, whole_or_real(np.array([0.0, 1.5])).dtype.kind
    ('i', 'f')
    """
    whole = bool((numbers == np.floor(numbers)).all() and (np.abs(numbers) <= _LARGEST_WHOLE).all())
    return numbers.astype(np.int64) if whole else numbers


def read_numbers(cells: list[str], place: Place) -> np.ndarray:
    """Read targets that are finite numbers, none missing."""
    try:
        numbers = parse_numbers(cells)
    except CellError as error:
        raise place.error(error.index, f"{error.expected} as the target", error.got) from error
    if np.isnan(numbers).any():
        row = int(np.isnan(numbers).argmax())
        raise place.error(row, "expected a number as the target", f"got {quoted(cells[row])}")
    return numbers

"""Raw targets as they were read: which task they make, which classes they name, which numbers they hold."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, Int

from sostenuto.checks import InputError, check_choice, require
from sostenuto.choices import Task
from sostenuto.data.dataset import SequenceSet

FEW_VALUES = 20
"""Whole numbers at every step are classes where there are at most so many different ones."""


def task_of(data: SequenceSet) -> Task:
    """Say which task ``data`` poses: the one it names, or else the one its targets show.

    A list of arrays is one target per step (``"sequence"``); text, booleans and whole numbers are classes; other
    numbers are a regression. Whole numbers that are meant as a regression need ``task="regression"``.

    >>> task_of(SequenceSet([np.zeros((3, 1))], targets=np.array([0.5])))
    'regression'
    """
    if data.task is not None:
        check_choice("task", data.task, get_args(Task))
        return data.task
    if isinstance(data.targets, list):
        return "sequence"
    require(data.targets is not None, "expected targets or a named task", "got neither", "pass task=…")
    return "regression" if np.issubdtype(np.asarray(data.targets).dtype, np.floating) else "classification"


def has_classes(data: SequenceSet) -> bool:
    """Whether the targets of ``data`` name classes.

    Step targets do where they are text or booleans, or whole numbers of at most `FEW_VALUES` different values and one a
    step. Floating-point numbers never do.

    >>> has_classes(SequenceSet([np.zeros((3, 1))], targets=[np.array([0, 1, 0])]))
    True
    """
    task = task_of(data)
    if task != "sequence":
        return task == "classification"
    rows = [np.asarray(row) for row in ([] if data.targets is None else data.targets)]
    if any(np.issubdtype(row.dtype, np.floating) for row in rows):
        return False
    if not all(np.issubdtype(row.dtype, np.integer) for row in rows):
        return True
    values: set[int] = set()
    for row in rows:
        values.update(np.unique(row).tolist())
    return len(values) <= FEW_VALUES and all(row.ndim < 2 or row.shape[1:] == (1,) for row in rows)


def as_step_targets(data: SequenceSet, kind: Literal["classes", "numbers"]) -> SequenceSet:
    """Read the step targets of ``data`` as the caller says, whatever they look like."""
    if data.targets is None:
        return data
    if kind == "numbers":
        return replace(data, targets=real_rows(data))
    names, rows = class_rows(data)
    return replace(data, targets=[np.asarray(names, dtype=str)[row] for row in rows])


def class_rows(data: SequenceSet) -> tuple[list[str], Int[np.ndarray, " n"] | list[Int[np.ndarray, " time"]]]:
    """Name the classes in ``data`` and index them: ``(n,)``, or a list of ``(time,)`` arrays for step targets.

    >>> class_rows(SequenceSet([np.zeros((3, 1))] * 3, targets=np.array(["b", "a", "b"])))
    (['a', 'b'], array([1, 0, 1]))
    """
    positions: dict[str, int] = {}
    if task_of(data) != "sequence":
        rows = _indexed(_column(np.asarray(_rows(data)), "targets"), "targets", positions)
        return list(positions), rows
    steps = []
    for index, row in enumerate(_rows(data)):
        array, where = np.asarray(row), f"sequence {index}"
        _check_steps(array, len(data.sequences[index]), index)
        steps.append(_indexed(_column(array, where), where, positions))
    return list(positions), steps


def real_rows(data: SequenceSet) -> list[Float[np.ndarray, "..."]]:
    """Read the targets of ``data`` as float64 arrays of one shape: per sequence, or per step behind a time axis."""
    rows: list[np.ndarray] = []
    steps = task_of(data) == "sequence"
    for index, row in enumerate(_rows(data)):
        try:
            array = np.asarray(row, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"sequence {index}: expected a number as target, got {row!r}; pass task='classification' for classes."
            ) from error
        if steps:
            _check_steps(array, len(data.sequences[index]), index)
        if not np.isfinite(array).all():
            raise InputError(f"sequence {index}: expected a finite target, got NaN or infinity; drop the sequence.")
        if rows and array.shape[steps:] != rows[0].shape[steps:]:
            raise InputError(
                f"sequence {index}: expected a target of shape {rows[0].shape[steps:]} as in sequence 0, "
                f"got {array.shape[steps:]}."
            )
        rows.append(array)
    return rows


def sort_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Sort class names, by their value where all of them are numbers.

    >>> sort_classes(["10", "2", "1"]), sort_classes(["b", "10", "a"])
    (('1', '2', '10'), ('10', 'a', 'b'))
    """
    unique = set(names)
    if all(is_number(name) for name in unique):
        return tuple(sorted(unique, key=lambda name: (float(name), name)))
    return tuple(sorted(unique))


def is_number(value: Any) -> bool:
    """Whether a raw target is a finite number, or the text of one."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _rows(data: SequenceSet) -> Iterable[Any]:
    require(data.targets is not None, "expected targets", "got none", "name the column or file that holds them")
    return data.targets if data.targets is not None else ()


def _check_steps(array: np.ndarray, steps: int, index: int) -> None:
    if array.ndim == 0 or len(array) != steps:
        got = "a single one" if array.ndim == 0 else f"{len(array)}"
        raise InputError(
            f"sequence {index}: expected a target for each of its {steps} steps, got {got}; "
            "pass the task that has one target per sequence, or give every step its own."
        )


def _column(array: np.ndarray, where: str) -> np.ndarray:
    column = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if column.ndim != 1:
        raise InputError(f"{where}: expected a single class each, got an array of shape {array.shape}.")
    return column


def _indexed(labels: np.ndarray, where: str, positions: dict[str, int]) -> Int[np.ndarray, " label"]:
    """Index ``labels``, giving each new name the next position."""
    if labels.dtype == object:
        labels = np.asarray([_class_name(label, where) for label in labels])
    values, inverse = np.unique(labels, return_inverse=True)
    codes = [positions.setdefault(_class_name(value, where), len(positions)) for value in values]
    return np.asarray(codes, dtype=np.int64)[inverse.reshape(labels.shape)]


def _class_name(value: Any, where: str) -> str:
    """Turn a raw label into its name: 2, 2.0 and "2" are all class "2"."""
    if value is None or (isinstance(value, (float, np.floating)) and not math.isfinite(value)):
        raise InputError(f"{where}: expected a class for every sequence, got {value}; drop those without one.")
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)

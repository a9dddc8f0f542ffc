"""Which classes are recognized, and which are confused."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import SMALL, canvas, shade, text_width
from sostenuto.report.numbers import count, percent
from sostenuto.report.palette import INK, LINE, MUTED, RIGHT, WRONG
from sostenuto.report.section import Cell, Column, Columns, Figures, Part, Picture, Prose, Section, Table
from sostenuto.report.svg import house_style, set_tip
from sostenuto.report.text import one_line, shorten
from sostenuto.results import ClassificationScores, ClassScore

MOST_CLASSES = 60
COUNTS_TO = 20
_LEVELS = 12
_NAME_LETTERS = 14


@house_style()
def confusion_matrix(classes: Sequence[str], confusion: np.ndarray) -> Figure:
    """Draw ``confusion[true, predicted]`` of at most 60 classes; shade is the share of the true class.

    Counts are written into the cells of up to 20 classes.
    """
    size = len(classes)
    cell = min(36.0, max(12.0, 400 / size))
    names = [shorten(name, _NAME_LETTERS) or "(empty)" for name in classes]
    font = min(SMALL, cell * 0.82)
    longest = max(text_width(name, font) for name in names)
    upright = longest <= cell - 4
    below = (font + 30) if upright else (longest + 32)
    left, side = longest + 30, cell * size
    figure, axes = canvas(left + side + 6, side + below + 6, left=left, right=6, top=6, bottom=below)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    _shade(axes, confusion)
    _frame(axes, size)
    if size <= COUNTS_TO:
        _write_counts(axes, confusion, cell)
    _name_classes(axes, classes, names, font, upright)
    gap = (left - 12) / cell
    axes.text(
        -0.5 - gap,
        (size - 1) / 2,
        "true class",
        rotation=90,
        rotation_mode="anchor",
        ha="center",
        color=MUTED,
        fontsize=SMALL,
    )
    axes.text(
        (size - 1) / 2, size - 0.5 + (below - 10) / cell, "predicted class", ha="center", color=MUTED, fontsize=SMALL
    )
    return figure


def most_confused(confusion: np.ndarray, most: int) -> np.ndarray:
    """Return the positions, in order, of the ``most`` classes that take part in the most mistakes.

    >>> most_confused(np.array([[5, 0, 0], [0, 3, 2], [0, 0, 4]]), 2).tolist()
    [1, 2]
    """
    mistakes = confusion.sum(axis=1) + confusion.sum(axis=0) - 2 * confusion.diagonal()
    return np.sort(np.argsort(-mistakes, kind="stable")[:most])


def _shade(axes: Axes, confusion: np.ndarray) -> None:
    totals = confusion.sum(axis=1, keepdims=True)
    share = confusion / np.maximum(totals, 1)
    diagonal = np.eye(len(confusion), dtype=bool)
    # A single mistake must be seen, a class that is never recognized must not look like one that is.
    for color, cells, faintest in ((RIGHT, diagonal, 0.15), (WRONG, ~diagonal, 0.4)):
        shade(axes, share * cells, color, levels=_LEVELS, faintest=faintest)


def _frame(axes: Axes, size: int) -> None:
    """Rule the matrix: every class where there are few, every fifth where there are many."""
    step = 1 if size <= COUNTS_TO else 5
    edges = np.unique(np.append(np.arange(0, size, step), size)) - 0.5
    axes.hlines(edges, -0.5, size - 0.5, color=LINE, linewidth=0.7, clip_on=False)
    axes.vlines(edges, -0.5, size - 0.5, color=LINE, linewidth=0.7, clip_on=False)


def _write_counts(axes: Axes, confusion: np.ndarray, cell: float) -> None:
    digits = max(len(count(int(confusion.max(initial=0)))), 2)
    size = min(12.0, (cell - 3) / (digits * 0.58))
    for row, column in zip(*np.nonzero(confusion), strict=True):
        axes.text(column, row, count(int(confusion[row, column])), ha="center", va="center", color=INK, fontsize=size)


def _name_classes(axes: Axes, classes: Sequence[str], names: Sequence[str], font: float, upright: bool) -> None:
    size = len(names)
    turn: dict[str, Any] = {"va": "top", "ha": "center"}
    if not upright:
        turn = {"rotation": 90, "rotation_mode": "anchor", "va": "center", "ha": "right"}
    pixels = axes.get_window_extent().width / size
    for position, (full, name) in enumerate(zip(classes, names, strict=True)):
        beside = axes.text(-0.5 - 6 / pixels, position, name, ha="right", va="center", color=INK, fontsize=font)
        under = axes.text(position, size - 0.5 + 6 / pixels, name, color=INK, fontsize=font, **turn)
        if name != one_line(full):
            set_tip(beside, full)
            set_tip(under, full)


def frequent_mistakes(confusion: np.ndarray, most: int) -> list[tuple[int, int, int, float]]:
    """Return up to ``most`` mistakes as (true, predicted, count, share of the true class), most frequent first.

    >>> frequent_mistakes(np.array([[3, 1], [0, 4]]), 5)
    [(0, 1, 1, 0.25)]
    """
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    rows, columns = np.nonzero(wrong)
    times = wrong[rows, columns]
    totals = confusion.sum(axis=1)[rows]
    order = np.lexsort((columns, rows, -times))[:most]
    return [(int(rows[k]), int(columns[k]), int(times[k]), float(times[k] / totals[k])) for k in order]


MOST_ROWS = 60
_MOST_MISTAKES = 10
_SHOWN_OF_MANY = 30


def classification_section(scores: ClassificationScores) -> Section:
    """Return the section on classes: confusion matrix, frequent mistakes, scores per class."""
    size = len(scores.classes)
    parts: list[Part] = []
    if size and len(scores.confusion) == size:
        confusion = np.asarray(scores.confusion, dtype=np.int64)
        matrix, mistakes = _matrix(scores, confusion), _mistakes(scores, confusion)
        parts += [Columns((matrix,), (mistakes,))] if size <= COUNTS_TO else [matrix, mistakes]
    if scores.per_class:
        parts.append(_per_class(scores.per_class))
    if not parts:
        parts.append(Prose("No class was scored."))
    return Section("Where it is right and wrong", "classes", tuple(parts), short_title="Classes")


def _matrix(scores: ClassificationScores, confusion: np.ndarray) -> Figures:
    size = len(scores.classes)
    classes = scores.classes
    caption = "Rows are true classes, columns what the model said. Blue is right, orange is wrong; "
    caption += "the stronger the color, the larger the share of the true class."
    if size > MOST_CLASSES:
        shown = most_confused(confusion, _SHOWN_OF_MANY)
        classes = tuple(classes[position] for position in shown)
        confusion = confusion[np.ix_(shown, shown)]
        caption += f" Of {count(size)} classes, the {len(shown)} with the most mistakes are drawn."
    right, total = int(confusion.trace()), int(confusion.sum())
    description = (
        f"Confusion matrix of {count(len(classes))} classes: {count(right)} of {count(total)} on the diagonal."
    )
    return Figures((Picture(confusion_matrix(classes, confusion), description, "Confusion matrix"),), caption)


def _mistakes(scores: ClassificationScores, confusion: np.ndarray) -> Part:
    mistakes = frequent_mistakes(confusion, _MOST_MISTAKES)
    if not mistakes:
        return Prose(f"Not one of {count(scores.count)} predictions is wrong.")
    rows = tuple(
        (_name(scores.classes[true]), _name(scores.classes[said]), Cell(count(times)), _share(share))
        for true, said, times, share in mistakes
    )
    columns = (
        Column("True class"),
        Column("Taken for"),
        Column("Times", numeric=True),
        Column("Of that class", numeric=True),
    )
    return Table("Most frequent mistakes", columns, rows)


def _per_class(per_class: tuple[ClassScore, ...]) -> Table:
    shown = per_class
    caption = "Scores by class"
    if len(per_class) > MOST_ROWS:
        shown = tuple(sorted(per_class, key=lambda score: score.f1 if math.isfinite(score.f1) else -1.0)[:MOST_ROWS])
        caption = f"Scores by class: the {MOST_ROWS} weakest of {count(len(per_class))}"
    columns = (
        Column("Class"),
        Column("Precision", "of those it named so, how many are", numeric=True),
        Column("Recall", "of those that are, how many it found", numeric=True),
        Column("F1", "balance of the two", numeric=True),
        Column("Cases", "of this class", numeric=True),
    )
    rows = tuple(
        (_name(score.name), _share(score.precision), _share(score.recall), _share(score.f1), Cell(count(score.support)))
        for score in shown
    )
    return Table(caption, columns, rows)


def _name(name: str) -> Cell:
    short = shorten(name, 40) or "(empty)"
    full = one_line(name)
    return Cell(short, full="" if short == full else full)


def _share(value: float) -> Cell:
    return Cell(percent(value, aligned=True))

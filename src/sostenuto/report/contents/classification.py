"""Which classes are told apart, and which are mixed up."""

import math

import numpy as np

from sostenuto.report.figures.confusion import (
    COUNTS_TO,
    MOST_CLASSES,
    confusion_matrix,
    frequent_mistakes,
    most_confused,
)
from sostenuto.report.numbers import count, percent
from sostenuto.report.section import Cell, Column, Columns, Figures, Part, Picture, Prose, Section, Table
from sostenuto.report.text import one_line, shorten
from sostenuto.results import ClassificationScores, ClassScore

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
        shown = tuple(sorted(per_class, key=lambda one: one.f1 if math.isfinite(one.f1) else -1.0)[:MOST_ROWS])
        caption = f"Scores by class: the {MOST_ROWS} weakest of {count(len(per_class))}"
    columns = (
        Column("Class"),
        Column("Precision", "of those it named so, how many are", numeric=True),
        Column("Recall", "of those that are, how many it found", numeric=True),
        Column("F1", "balance of the two", numeric=True),
        Column("Cases", "of this class", numeric=True),
    )
    rows = tuple(
        (_name(one.name), _share(one.precision), _share(one.recall), _share(one.f1), Cell(count(one.support)))
        for one in shown
    )
    return Table(caption, columns, rows)


def _name(name: str) -> Cell:
    short = shorten(name, 40) or "(empty)"
    full = one_line(name)
    return Cell(short, full="" if short == full else full)


def _share(value: float) -> Cell:
    return Cell(percent(value, aligned=True))

"""The confusion matrix: right answers on the diagonal, mistakes beside it, in two colors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from sostenuto.report.figures.canvas import SMALL, canvas, text_width
from sostenuto.report.numbers import count
from sostenuto.report.palette import INK, LINE, MUTED, RIGHT, WRONG
from sostenuto.report.svg import house_style, set_tip
from sostenuto.report.text import one_line, shorten

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
    """Paint the cells that are not empty, those of one color and shade as one path: a page stays small."""
    totals = confusion.sum(axis=1, keepdims=True)
    share = confusion / np.maximum(totals, 1)
    level = np.where(confusion > 0, np.ceil(share * _LEVELS), 0).clip(0, _LEVELS).astype(int)
    diagonal = np.eye(len(confusion), dtype=bool)
    # A single mistake must be seen, a class that is never recognized must not look like one that is.
    for color, cells, faintest in ((RIGHT, diagonal, 0.15), (WRONG, ~diagonal, 0.4)):
        for step in range(1, _LEVELS + 1):
            rows, columns = np.nonzero(cells & (level == step))
            if rows.size:
                opacity = faintest + (1 - faintest) * step / _LEVELS
                axes.add_patch(PathPatch(squares(rows, columns), facecolor=color, linewidth=0, alpha=opacity))


def squares(rows: np.ndarray, columns: np.ndarray) -> Path:
    """Return one path around the cells at ``rows`` and ``columns``."""
    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5)])
    centers = np.stack([columns, rows], axis=1).astype(float)
    vertices = (centers[:, None, :] + corners[None]).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(rows)
    return Path(vertices, codes)


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

"""How many sequences each class has."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import SMALL, canvas, label_x, label_y, linear_ticks, text_width, y_margin
from sostenuto.report.numbers import count, tick_labels
from sostenuto.report.palette import INK, MUTED, SERIES
from sostenuto.report.svg import house_style, set_tip
from sostenuto.report.text import one_line, shorten

WIDTH = 410
NAMED_TO = 24
_ROW = 24
_NAME_LETTERS = 18


@house_style()
def class_balance(classes: Sequence[str], counts: Sequence[int]) -> Figure:
    """Draw a named bar for each of up to 24 classes; more classes are drawn as sizes in falling order."""
    sizes = np.asarray(counts, dtype=float)
    return _bars(classes, sizes) if len(classes) <= NAMED_TO else _profile(sizes)


def _bars(classes: Sequence[str], sizes: np.ndarray) -> Figure:
    names = [shorten(name, _NAME_LETTERS) or "(empty)" for name in classes]
    top = max(float(sizes.max()), 1.0)
    left = 14 + max(text_width(name, 12) for name in names)
    right = 14 + text_width(count(top), 12)
    figure, axes = canvas(WIDTH, _ROW * len(names) + 30, left=left, right=right, top=22, bottom=8)
    axes.set_xlim(0, top)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.barh(np.arange(len(names)), sizes, height=0.66, color=SERIES[0], linewidth=0, alpha=0.85)
    even = float(sizes.mean())
    axes.axvline(even, color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
    at_right = even > top / 2
    axes.text(even, -0.62, "even share", ha="right" if at_right else "left", color=MUTED, fontsize=SMALL)
    for row, (full, name, size) in enumerate(zip(classes, names, sizes, strict=True)):
        label = axes.annotate(
            name, (0, row), (-8, 0), textcoords="offset points", ha="right", va="center", color=INK, fontsize=12
        )
        if name != one_line(full):
            set_tip(label, full)
        axes.annotate(
            count(size), (top, row), (right - 4, 0), textcoords="offset points", ha="right", va="center", color=MUTED
        )
    return figure


def _profile(sizes: np.ndarray) -> Figure:
    """Draw the sizes in falling order as one filled step, with at most as many corners as there are sizes."""
    falling = np.sort(sizes)[::-1]
    top = max(float(falling[0]), 1.0) * 1.06
    ticks, labels, left = y_margin(0, top)
    figure, axes = canvas(WIDTH, 240, left=left + 18, right=14, top=10, bottom=42)
    axes.set_ylim(0, top)
    axes.set_xlim(0, len(falling))
    corners = np.flatnonzero(np.diff(falling, prepend=np.inf))
    corners = corners[np.unique(np.linspace(0, len(corners) - 1, min(len(corners), 300)).astype(int))]
    edges = np.append(corners, len(falling))
    axes.stairs(falling[corners], edges, fill=True, color=SERIES[0], alpha=0.85, linewidth=0)
    axes.axhline(float(sizes.mean()), color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
    label_y(axes, ticks, labels)
    ranks = linear_ticks(0, len(falling), most=5, whole=True)
    label_x(axes, ranks, tick_labels(ranks))
    axes.set_xlabel("classes, largest first", fontsize=SMALL, color=MUTED, labelpad=6)
    axes.set_ylabel("sequences", fontsize=SMALL, color=MUTED, labelpad=6)
    return figure

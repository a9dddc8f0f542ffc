"""Which oscillators decide, in one picture: a row for every output, a column for every range of periods."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import SMALL, canvas, label_x, text_width
from sostenuto.report.figures.confusion import squares
from sostenuto.report.numbers import tick_labels
from sostenuto.report.palette import INK, MUTED, SERIES
from sostenuto.report.svg import house_style
from sostenuto.report.text import shorten

WIDTH = 410
MOST_ROWS = 16
"""Rows drawn at the most."""
_ROW, _LEVELS, _NAME_LETTERS = 22, 10, 14


@house_style()
def share_strips(rows: Sequence[Sequence[float]], names: Sequence[str], periods: Sequence[float]) -> Figure:
    """Draw the shares of each row, darker for more; the darkest cell of a row is its largest share.

    Cells of one shade are one path, so that the page stays small.
    """
    from matplotlib.patches import PathPatch

    values = np.asarray(rows, dtype=float)[:MOST_ROWS]
    labels = [shorten(name, _NAME_LETTERS) or "(no name)" for name in names[:MOST_ROWS]]
    left = 14 + max(text_width(label) for label in labels)
    figure, axes = canvas(WIDTH, _ROW * len(values) + 52, left=left, right=16, top=6, bottom=46)
    axes.set_xlim(-0.5, values.shape[1] - 0.5)
    axes.set_ylim(len(values) - 0.5, -0.5)
    level = np.ceil(values / np.maximum(values.max(1, keepdims=True), np.finfo(float).tiny) * _LEVELS)
    for step in range(1, _LEVELS + 1):
        row, column = np.nonzero(level == step)
        if row.size:
            axes.add_patch(PathPatch(squares(row, column), facecolor=SERIES[0], linewidth=0, alpha=step / _LEVELS))
    axes.set_yticks(range(len(labels)), labels=labels)
    axes.tick_params(axis="y", labelcolor=INK)
    # Periods of the bins are even in logarithms, so that a period lies at a place linear in its own.
    logarithms = np.log(np.asarray(periods))
    wanted = [p for p in (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000) if p <= periods[-1] * 1.1]
    spacing = logarithms[1] - logarithms[0]
    label_x(axes, [float((np.log(p) - logarithms[0]) / spacing) for p in wanted], tick_labels(wanted))
    axes.set_xlabel("period in steps", fontsize=SMALL, color=MUTED, labelpad=6)
    return figure

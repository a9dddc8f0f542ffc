"""The model beside the baselines: one dot each, with the range chance alone would explain."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import SMALL, canvas, label_x, limits, linear_ticks, text_width
from sostenuto.report.metrics import Metric
from sostenuto.report.numbers import tick_labels
from sostenuto.report.palette import INK, LINE, MUTED, PAPER, SERIES
from sostenuto.report.svg import house_style, set_tip
from sostenuto.report.text import one_line, shorten

WIDTH = 410
_ROW = 36
_NAME_LETTERS = 22


@dataclass(frozen=True)
class Contender:
    """A name, its score, the score's 95 % range where it is known, and whether it is the model."""

    name: str
    score: float
    low: float = math.nan
    high: float = math.nan
    is_model: bool = False


@house_style()
def comparison(contenders: Sequence[Contender], metric: Metric, *, higher_is_better: bool) -> Figure | None:
    """Draw the contenders, best at the top; None where no score is finite."""
    finite = [one for one in contenders if math.isfinite(one.score)]
    if not finite:
        return None
    ranked = sorted(finite, key=lambda one: -one.score if higher_is_better else one.score)
    low, high = limits(np.array([value for one in ranked for value in (one.score, one.low, one.high)]), pad=0.1)
    if metric.is_share and ranked:
        low, high = max(low, min(0.0, ranked[-1].score)), min(high, max(1.0, ranked[0].score))
    names = [shorten(one.name, _NAME_LETTERS) or "(no name)" for one in ranked]
    left = 18 + max(text_width(name, 12.5) for name in names)
    figure, axes = canvas(WIDTH, _ROW * len(ranked) + 50, left=left, right=22, top=4, bottom=46)
    axes.set_xlim(low, high)
    axes.set_ylim(len(ranked) - 0.5, -0.5)
    ticks = linear_ticks(low, high, most=4)
    label_x(axes, ticks, tick_labels(ticks, as_percent=metric.is_share))
    axes.grid(axis="x", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for row, (one, name) in enumerate(zip(ranked, names, strict=True)):
        _draw(axes, row, one, name)
    better = f"{metric.label} →  better" if higher_is_better else f"better  ← {metric.label}"
    axes.set_xlabel(better, fontsize=SMALL, color=MUTED, labelpad=6)
    return figure


def _draw(axes: Axes, row: int, one: Contender, name: str) -> None:
    color = SERIES[0] if one.is_model else MUTED
    if math.isfinite(one.low) and math.isfinite(one.high):
        axes.plot([one.low, one.high], [row, row], color=color, linewidth=2, alpha=0.55, solid_capstyle="round")
    axes.plot(
        [one.score],
        [row],
        marker="o",
        markersize=11,
        markerfacecolor=color if one.is_model else PAPER,
        markeredgecolor=color,
        markeredgewidth=2,
        clip_on=False,
        zorder=4,
    )
    label = axes.annotate(
        name,
        (0, row),
        (-10, 0),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        ha="right",
        va="center",
        color=INK,
        fontsize=12.5,
        fontweight="bold" if one.is_model else "normal",
    )
    if name != one_line(one.name):
        set_tip(label, one.name)

"""A kernel in pictures: its matrix, the decay of its eigenvalues, and how much each step of time counts."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import (
    SMALL,
    canvas,
    draw_line,
    label_x,
    label_y,
    linear_ticks,
    log_ticks,
    text_width,
)
from sostenuto.report.figures.confusion import squares
from sostenuto.report.numbers import tick_labels
from sostenuto.report.palette import INK, LINE, MUTED, SERIES, WRONG
from sostenuto.report.svg import house_style
from sostenuto.results import KernelSummary

WIDTH, HEIGHT = 410, 240
_SIDE = 380
_LEVELS = 10
_SMALLEST = 1e-16


@house_style()
def gram_picture(summary: KernelSummary) -> Figure:
    """Draw the matrix over √(k(x,x) k(y,y)): blue for alike, orange for unlike, paler the nearer to the middle value.

    Cells of one shade are one path, so that the page stays small.
    """
    from matplotlib.patches import PathPatch

    values = np.asarray(summary.picture)
    size = len(values)
    figure, axes = canvas(_SIDE + 12, _SIDE + 12, left=6, right=6, top=6, bottom=6)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    off = values[~np.eye(size, dtype=bool)] if size > 1 else values.ravel()
    middle = float(np.median(off))
    for color, gap, most in (
        (SERIES[0], values - middle, float(values.max()) - middle),
        (WRONG, middle - values, middle - float(values.min())),
    ):
        level = np.ceil(gap / max(most, np.finfo(float).tiny) * _LEVELS).clip(0, _LEVELS)
        for step in range(1, _LEVELS + 1):
            rows, columns = np.nonzero(level == step)
            if rows.size:
                patch = PathPatch(squares(rows, columns), facecolor=color, linewidth=0, alpha=step / _LEVELS)
                axes.add_patch(patch)
    groups = np.asarray(summary.groups)
    borders = np.flatnonzero(np.diff(groups)) + 0.5 if groups.size else np.empty(0)
    edges = np.array([-0.5, *borders, size - 0.5])
    axes.hlines(edges, -0.5, size - 0.5, color=INK, linewidth=0.8, clip_on=False)
    axes.vlines(edges, -0.5, size - 0.5, color=INK, linewidth=0.8, clip_on=False)
    return figure


@house_style()
def eigenvalue_decay(summary: KernelSummary) -> Figure | None:
    """Draw the eigenvalues over the largest, in logarithms; None where the kernel is 0."""
    values = np.asarray(summary.eigenvalues)
    if values.size == 0 or values[0] <= 0:
        return None
    shares = np.clip(values / values[0], _SMALLEST, None)
    low, high = 10 ** np.floor(np.log10(shares.min())), 2.0
    ticks = log_ticks(low, high)
    labels = tick_labels(ticks)
    left = 14 + max((text_width(label) for label in labels), default=0)
    figure, axes = canvas(WIDTH, HEIGHT, left=left, right=14, top=14, bottom=42)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylim(low, high)
    axes.set_xlim(1, max(len(shares), 2))
    numbers = np.arange(1, len(shares) + 1, dtype=float)
    draw_line(axes, numbers, shares, most=400, size=6, color=SERIES[0], linewidth=1.8, clip_on=False)
    label_y(axes, ticks, labels)
    where = linear_ticks(1, max(len(shares), 2), most=6, whole=True)
    label_x(axes, where, tick_labels(where))
    axes.set_xlabel("eigenvalue", fontsize=SMALL, color=MUTED, labelpad=6)
    return figure


@house_style()
def sensitivity_curves(summary: KernelSummary) -> Figure:
    """Draw s(t) for the kernel's own σ_w, for the suggested one, and quietly for the others."""
    figure, axes = canvas(WIDTH, HEIGHT, left=46, right=14, top=14, bottom=42)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.05)
    own = int(np.argmin(np.abs(np.asarray(summary.sigmas) - summary.sigma_w)))
    best = int(np.argmin(np.abs(np.asarray(summary.sigmas) - summary.suggestion)))
    for index, curve in enumerate(summary.sensitivities):
        style: dict[str, Any] = {"color": LINE, "linewidth": 1.2, "zorder": 1}
        if index == best:
            style = {"color": SERIES[1], "linewidth": 1.8, "linestyle": (0, (4, 2)), "zorder": 2}
        if index == own:
            style = {"color": SERIES[0], "linewidth": 1.8, "zorder": 3}
        axes.plot(np.linspace(0, 1, len(curve)), curve, clip_on=False, **style)
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    label_y(axes, ticks, tick_labels(ticks))
    label_x(axes, [0.0, 0.5, 1.0], ["first step", "", "last step"])
    axes.get_xticklabels()[0].set_horizontalalignment("left")
    axes.get_xticklabels()[-1].set_horizontalalignment("right")
    return figure

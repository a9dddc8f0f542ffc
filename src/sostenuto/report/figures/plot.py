"""Plots for pages: matplotlib axes in the page's letters and colors, and the few marks that most plots need."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.rcsetup import cycler
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sostenuto.report.figures.canvas import SMALL, limits, linear_ticks, log_ticks
from sostenuto.report.numbers import number
from sostenuto.report.palette import INK, LINE, MUTED, SERIES
from sostenuto.report.svg import house_style

Draw = Callable[[Axes], Any]
_DASHES = ("solid", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_SETTINGS: dict[Any, Any] = {
    "axes.prop_cycle": cycler(linestyle=_DASHES) * cycler(color=list(SERIES)),
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": SMALL,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "axes.titlesize": SMALL,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
}


@house_style()
def plotted(draw: Draw, *, width: float = 430, height: float = 280) -> Figure:
    """Return a figure of ``width × height`` pixels on which ``draw(axes)`` has drawn."""
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
            if scale == "log":
                low, high = sorted(axis.get_view_interval())
                ticks = log_ticks(low, high, 6)
                axis.set_major_locator(FixedLocator(ticks if len(ticks) > 1 else linear_ticks(low, high)))
                axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, digits=2)))
                axis.set_minor_locator(NullLocator())
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure


def lines(
    axes: Axes,
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    spreads: Mapping[str, Sequence[float]] | None = None,
    labels: tuple[str, str] = ("", ""),
    log: str = "",
    marks: bool = False,
) -> None:
    """Draw one line per series over ``x``, with a band of ± its spread; ``log`` is ``"x"``, ``"y"`` or ``"xy"``."""
    for name, values in series.items():
        y = np.asarray(values, dtype=float)
        (line,) = axes.plot(x, y, label=name, marker="o" if marks else None, markersize=4)
        if spreads is not None and name in spreads:
            width = np.asarray(spreads[name], dtype=float)
            axes.fill_between(x, y - width, y + width, color=line.get_color(), alpha=0.2, linewidth=0)
    _finish(axes, labels, log, legend=len(series) > 1)


def bars(
    axes: Axes,
    values: Mapping[str, float],
    *,
    expected: Mapping[str, float] | None = None,
    spreads: Mapping[str, float] | None = None,
    labels: tuple[str, str] = ("", ""),
    log: bool = False,
) -> None:
    """Draw one lying bar a name, the first on top, with the paper's value as a mark beside it."""
    names = list(values)[::-1]
    errors = None if spreads is None else [spreads.get(name, 0.0) for name in names]
    axes.barh(names, [values[name] for name in names], xerr=errors, color=SERIES[0], height=0.6, ecolor=MUTED)
    known = [name for name in names if expected is not None and name in expected]
    if expected is not None and known:
        axes.plot([expected[name] for name in known], known, "D", color=SERIES[1], markersize=6, label="paper")
    _finish(axes, labels, "x" if log else "", legend=bool(known))


def points(
    axes: Axes,
    groups: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    labels: tuple[str, str] = ("", ""),
    log: str = "",
) -> None:
    """Draw one cloud of points a group."""
    for index, (name, (x, y)) in enumerate(groups.items()):
        axes.plot(x, y, "o", color=SERIES[index % len(SERIES)], markersize=4, label=name)
    _finish(axes, labels, log, legend=len(groups) > 1)


def heat(
    axes: Axes,
    values: Sequence[Sequence[float]],
    *,
    rows: Sequence[object],
    columns: Sequence[object],
    labels: tuple[str, str] = ("", ""),
) -> None:
    """Draw a matrix as shades with the numbers written in; ``rows`` and ``columns`` name its axes."""
    grid = np.asarray(values, dtype=float)
    low, high = limits(grid, pad=0.1)
    axes.set(xlim=(-0.5, grid.shape[1] - 0.5), ylim=(grid.shape[0] - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), labels=[str(row) for row in rows])
    axes.set_xticks(range(len(columns)), labels=[str(column) for column in columns])
    for row, column in np.ndindex(*grid.shape):
        shade = (grid[row, column] - low) / (high - low) if np.isfinite(grid[row, column]) else 0.0
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=SERIES[0], alpha=0.6 * shade, linewidth=0))
        axes.text(column, row, number(float(grid[row, column]), digits=3), ha="center", va="center", fontsize=SMALL)
    _finish(axes, labels, "", legend=False)


def _finish(axes: Axes, labels: tuple[str, str], log: str, *, legend: bool) -> None:
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    if legend:
        axes.legend()

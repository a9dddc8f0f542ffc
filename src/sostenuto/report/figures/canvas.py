"""The ground every figure stands on: size in pixels, quiet axes, ticks, and data thinned to what can be seen."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from sostenuto.report.numbers import tick_labels
from sostenuto.report.palette import LINE, MUTED
from sostenuto.report.text import columns

LETTER = 0.56
"""Width of an average letter, in units of the font's size."""
SMALL = 10.5
"""Size of tick labels, in pixels."""
_LARGEST = 1e100


def canvas(
    width: float, height: float, *, left: float = 8, right: float = 8, top: float = 8, bottom: float = 8
) -> tuple[Figure, Axes]:
    """Return a figure of ``width × height`` pixels and its axes inside the margins, with no frame, ticks or ground."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    axes = figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    )
    axes.set_facecolor("none")
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, labelsize=SMALL, labelcolor=MUTED, pad=5)
    axes.set_xticks([])
    axes.set_yticks([])
    return figure, axes


def text_width(text: str, size: float = SMALL) -> float:
    """Estimate the width of a text in pixels."""
    return columns(text) * LETTER * size


def label_x(axes: Axes, ticks: Sequence[float], labels: Sequence[str]) -> None:
    """Put ticks below the axes, inside the current limits, above a base line."""
    low, high = sorted(axes.get_xlim())
    shown = [(tick, label) for tick, label in zip(ticks, labels, strict=True) if low <= tick <= high]
    axes.set_xticks([tick for tick, _ in shown], labels=[label for _, label in shown])
    axes.spines["bottom"].set_visible(True)
    axes.spines["bottom"].set_color(LINE)


def label_y(axes: Axes, ticks: Sequence[float], labels: Sequence[str]) -> None:
    """Put ticks at the left of the axes, each with a quiet line across."""
    low, high = sorted(axes.get_ylim())
    shown = [(tick, label) for tick, label in zip(ticks, labels, strict=True) if low <= tick <= high]
    axes.set_yticks([tick for tick, _ in shown], labels=[label for _, label in shown])
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)


def shade(axes: Axes, shares: np.ndarray, color: str, *, levels: int, faintest: float = 0.0) -> None:
    """Paint a matrix of shares of one, cells of one shade as one path, so that a page stays small; 0 is left empty."""
    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5)])
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    level = np.ceil(shares * levels).clip(0, levels)
    for step in range(1, levels + 1):
        centers = np.argwhere(level == step)[:, ::-1].astype(float)
        if len(centers):
            path = Path((centers[:, None] + corners).reshape(-1, 2), codes * len(centers))
            opacity = faintest + (1 - faintest) * step / levels
            axes.add_patch(PathPatch(path, facecolor=color, linewidth=0, alpha=opacity))


def limits(*series: np.ndarray, pad: float = 0.06) -> tuple[float, float]:
    """Return limits that hold every finite value with some room around, also when all values are equal.

    >>> limits(np.array([3.0, 3.0]))
    (2.7, 3.3)
    """
    values = np.concatenate([np.asarray(array, dtype=float).ravel() for array in series]) if series else np.empty(0)
    values = values[showable(values)]
    if values.size == 0:
        return (0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    span = high - low
    scale = max(abs(low), abs(high))
    if span <= 1e-9 * scale or span == 0:
        room = 0.1 * scale if scale > 0 else 1.0
        return (low - room, high + room)
    return (low - pad * span, high + pad * span)


def showable(values: np.ndarray) -> np.ndarray:
    """Mark the values an axis can hold: finite, and far enough from the end of the floating-point numbers."""
    with np.errstate(invalid="ignore"):
        return np.isfinite(values) & (np.abs(values) < _LARGEST)


def linear_ticks(low: float, high: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Return round tick values between ``low`` and ``high``.

    >>> linear_ticks(0, 1, 4)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    locator = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10], integer=whole)
    slack = 1e-9 * (high - low)
    values = (float(value) for value in locator.tick_values(low, high))
    return [0.0 if abs(value) <= slack else value for value in values if low - slack <= value <= high + slack]


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return powers of ten between two positive numbers, or 1-2-5 steps where there are few powers.

    >>> log_ticks(0.01, 10), log_ticks(0.8, 6)
    ([0.01, 0.1, 1.0, 10.0], [1.0, 2.0, 5.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = [power for power in range(first, last + 1) if low * (1 - 1e-9) <= 10.0**power <= high * (1 + 1e-9)]
    if len(powers) > 2:
        return [10.0**power for power in powers[:: math.ceil(len(powers) / most)]]
    steps = [step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5)]
    return [round(step, 12 - first) for step in steps if low <= step <= high]


def thin(x: np.ndarray, y: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Keep at most about ``most`` points of a line: the lowest and the highest of each bin, so that no peak is lost.

    >>> x, y = thin(np.arange(1000.0), np.sin(np.arange(1000.0)), 100)
    >>> len(x) <= 100, bool(y.max() > 0.99)
    (True, True)
    """
    if len(x) <= most:
        return x, y
    edges = np.linspace(0, len(x), max(most // 2 - 1, 1) + 1).astype(int)
    kept = {0, len(x) - 1}
    for start, stop in itertools.pairwise(edges):
        block = y[start:stop]
        if showable(block).any():
            visible = np.where(showable(block), block, np.nan)
            kept |= {int(start + np.nanargmin(visible)), int(start + np.nanargmax(visible))}
        elif len(block):
            kept.add(int(start))
    order = np.array(sorted(kept))
    return x[order], y[order]


def draw_line(axes: Axes, x: np.ndarray, y: np.ndarray, *, most: int, size: float, **style: Any) -> None:
    """Draw a line of at most about ``most`` points; what has no neighbor to be joined with becomes a dot."""
    x, y = thin(x, np.where(showable(y), y, np.nan), most)
    there = np.isfinite(y)
    joined = np.zeros_like(there)
    joined[1:] |= there[:-1]
    joined[:-1] |= there[1:]
    alone = there & ~joined
    if (there & joined).any():
        axes.plot(x, y, **style)
    if alone.any():
        axes.plot(x[alone], y[alone], "o", color=style["color"], markersize=size, markeredgewidth=0, clip_on=False)


def tick_margin(ticks: Sequence[float], *, as_percent: bool = False) -> tuple[list[str], float]:
    """Return the labels of y ticks, and the left margin in pixels that they need."""
    labels = tick_labels(ticks, as_percent=as_percent)
    return labels, 12 + max((text_width(label) for label in labels), default=0)

"""Regression errors: predicted against actual values, and a histogram of the differences."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from sostenuto.report.figures.canvas import SMALL, canvas, label_x, label_y, limits, linear_ticks, showable, y_margin
from sostenuto.report.numbers import tick_labels
from sostenuto.report.palette import INK, MUTED, SERIES
from sostenuto.report.svg import house_style
from sostenuto.results import RegressionScores

WIDTH, HEIGHT = 410, 350
_LAYERS = 6
_MOST_BINS = 40


def shown_pairs(scores: RegressionScores) -> tuple[np.ndarray, np.ndarray]:
    """Return the actual and predicted values that an axis can hold."""
    size = min(len(scores.actual), len(scores.predicted))
    actual = np.asarray(scores.actual[:size], dtype=float)
    predicted = np.asarray(scores.predicted[:size], dtype=float)
    good = showable(actual) & showable(predicted)
    return actual[good], predicted[good]


@house_style()
def predicted_against_actual(scores: RegressionScores) -> Figure | None:
    """Draw one dot a sequence; on the line, prediction and truth agree. None where there is no pair to show."""
    actual, predicted = shown_pairs(scores)
    if actual.size == 0:
        return None
    low, high = limits(actual, predicted)
    ticks, labels, left = y_margin(low, high)
    figure, axes = canvas(WIDTH, HEIGHT, left=left + 18, right=14, top=10, bottom=44)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    label_y(axes, ticks, labels)
    label_x(axes, ticks, labels)
    axes.plot([low, high], [low, high], color=INK, linewidth=1, linestyle=(0, (4, 3)))
    _dots(axes, actual, predicted)
    axes.set_xlabel("actual", fontsize=SMALL, color=MUTED, labelpad=6)
    axes.set_ylabel("predicted", fontsize=SMALL, color=MUTED, labelpad=6)
    return figure


@house_style()
def residual_histogram(scores: RegressionScores) -> Figure | None:
    """Draw how often each error (predicted minus actual) occurs. None where there is no pair to show."""
    actual, predicted = shown_pairs(scores)
    if actual.size == 0:
        return None
    residuals = predicted - actual
    low, high = limits(residuals, np.zeros(1))
    bins = int(np.clip(np.sqrt(residuals.size) * 1.5, 5, _MOST_BINS))
    counts, edges = np.histogram(residuals, bins=bins, range=(low, high))
    top = max(int(counts.max()), 1) * 1.08
    ticks = linear_ticks(0, top, whole=True)
    labels = tick_labels(ticks)
    _, _, left = y_margin(0, top)
    figure, axes = canvas(WIDTH, HEIGHT, left=left + 18, right=14, top=10, bottom=44)
    axes.set_xlim(low, high)
    axes.set_ylim(0, top)
    label_y(axes, ticks, labels)
    error_ticks = linear_ticks(low, high, most=6)
    label_x(axes, error_ticks, tick_labels(error_ticks))
    axes.bar(edges[:-1], counts, width=np.diff(edges) * 0.94, align="edge", color=SERIES[0], linewidth=0, alpha=0.85)
    axes.axvline(0, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xlabel("predicted − actual", fontsize=SMALL, color=MUTED, labelpad=6)
    axes.set_ylabel("sequences", fontsize=SMALL, color=MUTED, labelpad=6)
    return figure


def _dots(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Draw points as strokes of no length with round ends, in see-through layers: a small file, and dense is dark."""
    for layer in range(min(_LAYERS, x.size)):
        points = np.stack([x[layer::_LAYERS], y[layer::_LAYERS]], axis=1).repeat(2, axis=0)
        path = Path(points, [Path.MOVETO, Path.LINETO] * (len(points) // 2))
        path.should_simplify = False
        dots = PathPatch(path, fill=False, edgecolor=SERIES[0], linewidth=5, alpha=0.55, capstyle="round", zorder=3)
        axes.add_patch(dots)

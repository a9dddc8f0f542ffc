"""How far predictions are off: predicted against actual values, and a histogram of the differences."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from sostenuto.report.figures.canvas import SMALL, canvas, label_x, label_y, limits, linear_ticks, showable, tick_margin
from sostenuto.report.numbers import count, number, tick_labels
from sostenuto.report.palette import INK, MUTED, SERIES
from sostenuto.report.section import Figures, Part, Picture, Prose, Section
from sostenuto.report.svg import house_style
from sostenuto.report.text import shorten
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
    """Draw one dot per sequence; on the line, prediction and truth agree. None where there is no pair to show."""
    actual, predicted = shown_pairs(scores)
    if actual.size == 0:
        return None
    low, high = limits(actual, predicted)
    ticks = linear_ticks(low, high)
    labels, left = tick_margin(ticks)
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
    labels, left = tick_margin(ticks)
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


def regression_section(scores: RegressionScores) -> Section:
    """Return the section on errors: predicted against actual, and the histogram of residuals."""
    return Section("How far off it is", "errors", _parts(scores), short_title="Errors")


def _parts(scores: RegressionScores) -> tuple[Part, ...]:
    dots, bars = predicted_against_actual(scores), residual_histogram(scores)
    if dots is None or bars is None:
        return (Prose("There is no pair of finite actual and predicted values to draw."),)
    actual, predicted = shown_pairs(scores)
    residuals = predicted - actual
    lower, middle, upper = (float(bound) for bound in np.quantile(residuals, (0.05, 0.5, 0.95)))
    target = shorten(scores.target_name, 40)
    of_target = f" {target}" if target else ""
    told = f"R² {number(scores.r2)}, root-mean-square error {number(scores.rmse)}"
    pictures = (
        Picture(dots, f"Predicted against actual{of_target}: {told}.", "Predicted against actual"),
        Picture(bars, f"Histogram of errors: 90 % lie between {number(lower)} and {number(upper)}.", "Errors"),
    )
    lower_text, middle_text, upper_text = (number(bound, digits=3) for bound in (lower, middle, upper))
    caption = (
        "Predicted against actual: on the dashed line the two agree. Errors: how often each occurs; zero is perfect. "
        f"Nine in ten errors lie between {lower_text} and {upper_text}; the middle one is {middle_text}."
    )
    return (Figures(pictures, caption), *_hidden(scores, actual.size))


def _hidden(scores: RegressionScores, shown: int) -> tuple[Part, ...]:
    lost = len(scores.actual) - shown
    notes = []
    if len(scores.actual) < scores.count:
        notes.append(f"{count(len(scores.actual))} of {count(scores.count)} pairs were kept for the picture.")
    if lost > 0:
        notes.append(f"{count(lost)} of {count(len(scores.actual))} pairs are not finite and cannot be drawn.")
    return (Prose(" ".join(notes), note=True),) if notes else ()

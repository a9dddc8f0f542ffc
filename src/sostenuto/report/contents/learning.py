"""How training went: loss and metric by epoch, the best epoch marked."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import (
    SMALL,
    canvas,
    draw_line,
    label_x,
    label_y,
    limits,
    linear_ticks,
    log_ticks,
    showable,
    tick_margin,
)
from sostenuto.report.numbers import count, metric, number, tick_labels
from sostenuto.report.palette import INK, MUTED, SERIES
from sostenuto.report.section import Figures, LegendItem, Part, Picture, Prose, Section
from sostenuto.report.svg import house_style
from sostenuto.results import LearningCurve

WIDTH, HEIGHT = 410, 240
_MOST_POINTS = 400
_LOG_FROM = 30
"""From this ratio of largest to smallest value on, a logarithmic axis shows more."""

Line = tuple[np.ndarray, str, bool]
"""Values, color, dashed."""


@house_style()
def loss_curve(curve: LearningCurve) -> Figure | None:
    """Draw the training and the validation loss by epoch; None where no value is finite."""
    lines = (
        (np.asarray(curve.train_loss, dtype=float), SERIES[1], True),
        (np.asarray(curve.validation_loss, dtype=float), SERIES[0], False),
    )
    return _panel(curve, lines)


@house_style()
def metric_curve(curve: LearningCurve) -> Figure | None:
    """Draw the validation metric by epoch; None where no value is finite."""
    values = np.asarray(curve.validation_metric, dtype=float)
    return _panel(curve, ((values, SERIES[0], False),), as_percent=metric(curve.metric).is_share)


def _panel(curve: LearningCurve, lines: Sequence[Line], *, as_percent: bool = False) -> Figure | None:
    values = np.concatenate([line for line, _, _ in lines])
    values = values[showable(values)]
    if values.size == 0 or not curve.epochs:
        return None
    epochs = np.asarray(curve.epochs, dtype=float)
    logarithmic = bool(not as_percent and values.min() > 0 and values.max() > _LOG_FROM * values.min())
    low, high, ticks = _scale(values, logarithmic)
    labels, left = tick_margin(ticks, as_percent=as_percent)
    figure, axes = canvas(WIDTH, HEIGHT, left=left, right=14, top=26, bottom=42)
    axes.set_yscale("log" if logarithmic else "linear")
    axes.minorticks_off()
    axes.set_ylim(low, high)
    axes.set_xlim(*limits(epochs, pad=0.02) if epochs.size > 1 else (epochs[0] - 1, epochs[0] + 1))
    for line, color, dashed in lines:
        style = {"color": color, "linewidth": 1.8, "linestyle": (0, (4, 2)) if dashed else "solid", "clip_on": False}
        draw_line(axes, epochs[: line.size], line[: epochs.size], most=_MOST_POINTS, size=6, **style)
    label_y(axes, ticks, labels)
    epoch_ticks = linear_ticks(epochs.min(), epochs.max(), most=6, whole=True) if epochs.size > 1 else [epochs[0]]
    label_x(axes, epoch_ticks, tick_labels(epoch_ticks))
    axes.set_xlabel("epoch", fontsize=SMALL, color=MUTED, labelpad=6)
    if curve.best_epoch is not None:
        _mark_best(axes, curve.best_epoch)
    return figure


def _scale(values: np.ndarray, logarithmic: bool) -> tuple[float, float, list[float]]:
    if not logarithmic:
        low, high = limits(values)
        return low, high, linear_ticks(low, high)
    bottom, top = np.log10(limits(np.array([values.min(), values.max()]), pad=0))
    room = 0.06 * (top - bottom)
    low, high = 10 ** (bottom - room), 10 ** (top + room)
    return low, high, log_ticks(low, high)


def _mark_best(axes: Axes, best: int) -> None:
    low, high = axes.get_xlim()
    if not low <= best <= high:
        return
    at_right = best > (low + high) / 2
    axes.axvline(best, color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
    axes.text(
        best,
        1.03,
        f"best: epoch {best}",
        transform=axes.get_xaxis_transform(),
        ha="right" if at_right else "left",
        va="bottom",
        fontsize=SMALL,
        color=INK,
    )


def learning_section(curve: LearningCurve) -> Section:
    """Return the section on training."""
    return Section("How it learned", "learning", _parts(curve), short_title="Learning")


def _parts(curve: LearningCurve) -> tuple[Part, ...]:
    pictures = []
    loss = loss_curve(curve)
    if loss is not None:
        pictures.append(Picture(loss, f"Loss by epoch. {_ends(curve.train_loss)}", "Loss: what training minimizes"))
    scores = metric_curve(curve)
    kind = metric(curve.metric)
    if scores is not None:
        ends = f"It ends at {kind.write(curve.validation_metric[-1])}."
        heading = f"{kind.label[:1].upper()}{kind.label[1:]} on the validation part"
        pictures.append(Picture(scores, f"Validation {kind.label} by epoch. {ends}", heading))
    if not pictures:
        return (Prose("There is no learning curve: no epoch ended with a finite loss."),)
    parts: list[Part] = [Figures(tuple(pictures), _caption(curve), legend=_legend(curve))]
    if not curve.validation_loss and not curve.validation_metric:
        parts.append(
            Prose(
                "No validation part was held out, so nothing here shows when learning turns into memorizing.", note=True
            )
        )
    return tuple(parts)


def _caption(curve: LearningCurve) -> str:
    if len(curve.epochs) == 1:
        return "One epoch was trained, so each curve is a single point."
    if curve.best_epoch is None:
        return f"{count(len(curve.epochs))} epochs. Where the validation loss rises again, the model memorizes."
    return (
        f"{count(len(curve.epochs))} epochs; the weights of epoch {curve.best_epoch} were kept, the best on the "
        "validation part. Where the validation loss rises again, the model memorizes."
    )


def _ends(losses: tuple[float, ...]) -> str:
    return f"The training loss goes from {number(losses[0])} to {number(losses[-1])}." if losses else ""


def _legend(curve: LearningCurve) -> tuple[LegendItem, ...]:
    training = (LegendItem("training", "series-2", dashed=True),) if curve.train_loss else ()
    validation = (LegendItem("validation", "series-1"),) if curve.validation_loss or curve.validation_metric else ()
    return training + validation

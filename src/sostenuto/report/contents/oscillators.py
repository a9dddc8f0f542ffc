"""What decides in a model of random oscillators: which time scales, channels and kinds of units."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import SMALL, canvas, label_x, shade, text_width
from sostenuto.report.numbers import count, number, percent, tick_labels
from sostenuto.report.palette import INK, MUTED, SERIES
from sostenuto.report.section import Card, Cards, Cell, Column, Columns, Figures, Picture, Prose, Section, Table
from sostenuto.report.svg import house_style
from sostenuto.report.text import shorten
from sostenuto.results import OscillatorSummary

WIDTH = 410
MOST_ROWS = 16
"""Rows drawn at the most."""
_ROW, _LEVELS, _NAME_LETTERS = 22, 10, 14


@house_style()
def share_strips(rows: Sequence[Sequence[float]], names: Sequence[str], periods: Sequence[float]) -> Figure:
    """Draw the shares of each row, darker for more; the darkest cell of a row is its largest share."""
    values = np.asarray(rows, dtype=float)[:MOST_ROWS]
    labels = [shorten(name, _NAME_LETTERS) or "(no name)" for name in names[:MOST_ROWS]]
    left = 14 + max(text_width(label) for label in labels)
    figure, axes = canvas(WIDTH, _ROW * len(values) + 52, left=left, right=16, top=6, bottom=46)
    axes.set_xlim(-0.5, values.shape[1] - 0.5)
    axes.set_ylim(len(values) - 0.5, -0.5)
    largest = np.maximum(values.max(1, keepdims=True), np.finfo(float).tiny)
    shade(axes, values / largest, SERIES[0], levels=_LEVELS)
    axes.set_yticks(range(len(labels)), labels=labels)
    axes.tick_params(axis="y", labelcolor=INK)
    # Periods of the bins are even in logarithms, so that a period lies at a place linear in its own.
    logarithms = np.log(np.asarray(periods))
    wanted = [p for p in (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000) if p <= periods[-1] * 1.1]
    spacing = logarithms[1] - logarithms[0]
    label_x(axes, [float((np.log(p) - logarithms[0]) / spacing) for p in wanted], tick_labels(wanted))
    axes.set_xlabel("period in steps", fontsize=SMALL, color=MUTED, labelpad=6)
    return figure


_MOST_CHANNELS = 12


def oscillator_section(summary: OscillatorSummary) -> Section:
    """Return the section on the oscillators, for a page made with `sostenuto.report.page.save`."""
    mean = np.mean(summary.by_period, axis=0)
    middle = summary.periods[int(np.searchsorted(np.cumsum(mean), 0.5 * mean.sum()))]
    cards = Cards(
        (
            Card("oscillators", count(summary.units), "random, none of them trained"),
            Card("half the weight", f"{number(middle, digits=2)} steps", "lies on shorter periods, half on longer"),
            Card(
                "forgets to 1 %",
                f"{number(summary.memory, digits=2)} steps",
                f"the median oscillator's state, whatever the input; the slowest one's "
                f"in {number(summary.longest_memory, digits=2)}",
            ),
        )
    )
    told = f"Half of the weight lies on periods below {number(middle, digits=2)} steps."
    caption = (
        "How much an oscillator of each period weighs for each output, squared; darker is more. "
        "A dark column on the left means that fast changes decide, one on the right that slow ones do."
    )
    if len(summary.outputs) > MOST_ROWS:
        caption += f" The first {MOST_ROWS} of {count(len(summary.outputs))} outputs are shown."
    figure = share_strips(summary.by_period, summary.outputs, summary.periods)
    strips = Figures((Picture(figure, f"Shares of weight by period. {told}", "Time scales that decide"),), caption)
    learned = {
        "shares": "how the time they spend above their thresholds is weighed.",
        "steps": "how their outputs, recent values and sums are weighed at each step, which reads nothing after it. "
        "The weights of the oscillators alone are shown.",
    }
    words = (
        "Each oscillator reads the sequence once and forgets at a rate that is known; what is learned is "
        + learned[summary.reads]
    )
    return Section(
        "Which oscillators decide?",
        "oscillators",
        (Prose(words), cards, Columns((strips,), (_channels(summary), _kinds(summary)))),
        short_title="Oscillators",
    )


def _channels(summary: OscillatorSummary) -> Table:
    shares = np.mean(summary.by_channel, axis=0)
    order = np.argsort(-shares)[:_MOST_CHANNELS]
    head = (Column("Channel"), Column("Weight", numeric=True), Column("Most for"))
    outputs = np.argmax(np.asarray(summary.by_channel), axis=0)
    rows = tuple(
        (
            Cell(shorten(summary.channels[i], 40)),
            Cell(percent(float(shares[i]))),
            Cell(shorten(summary.outputs[outputs[i]], 40)),
        )
        for i in order
    )
    return Table("Weight by channel, the mean over outputs", head, rows)


def _kinds(summary: OscillatorSummary) -> Table:
    words = {
        "single": "one oscillator",
        "cascade": "two, the first drives the second",
        "envelope": "two, the first one's size drives the second",
    }
    shares = np.mean(summary.by_kind, axis=0)
    rows = tuple(
        (Cell(kind, words.get(kind, "")), Cell(percent(float(share))))
        for kind, share in zip(summary.kinds, shares, strict=True)
    )
    return Table("Weight by kind of unit", (Column("Kind"), Column("Weight", numeric=True)), rows)

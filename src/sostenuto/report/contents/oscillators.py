"""What decides in a model of random oscillators: which time scales, channels and kinds of units."""

import numpy as np

from sostenuto.report.figures.oscillators import MOST_ROWS, share_strips
from sostenuto.report.numbers import count, number, percent
from sostenuto.report.section import Card, Cards, Cell, Column, Columns, Figures, Picture, Prose, Section, Table
from sostenuto.report.text import shorten
from sostenuto.results import OscillatorSummary

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
        "How the squared weights of each output are shared out among the oscillators' periods; darker is more. "
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

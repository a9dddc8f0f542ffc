"""Example sequences: one small panel each, on shared axes, so that shapes can be compared."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import canvas, draw_line, label_x, label_y, limits, linear_ticks, text_width
from sostenuto.report.numbers import tick_labels
from sostenuto.report.palette import SERIES
from sostenuto.report.svg import house_style
from sostenuto.results import DataSummary, Example

WIDTH, HEIGHT = 210, 124
MOST_EXAMPLES = 12
MOST_CHANNELS = len(SERIES)
DASHES = ("solid", "solid", "solid", (0, (4, 2)), (0, (1, 1.2)))
_MOST_POINTS = 240
_SHARED_LENGTH = 5
"""Up to this ratio of the longest to the shortest example they share one time axis."""


def chosen_examples(data: DataSummary) -> tuple[Example, ...]:
    """Pick up to twelve examples, as many of each class as there is room for, in the order of the classes."""
    order = {name: number for number, name in enumerate(data.classes)}
    turns: dict[str, list[Example]] = {}
    for example in data.examples:
        if example.values and any(len(channel) for channel in example.values):
            turns.setdefault(example.label, []).append(example)
    labels = sorted(turns, key=lambda label: order.get(label, len(order)))
    most = max((len(group) for group in turns.values()), default=0)
    rounds = max(min(most, MOST_EXAMPLES // max(len(turns), 1)), 1)
    picked = [turns[label][turn] for turn in range(rounds) for label in labels if turn < len(turns[label])]
    picked = picked[:MOST_EXAMPLES]
    return tuple(sorted(picked, key=lambda example: order.get(example.label, len(order))))


@house_style()
def example_panels(examples: Sequence[Example]) -> tuple[Figure, ...]:
    """Draw each example's first five channels against time."""
    lengths = [max(len(channel) for channel in example.values) for example in examples]
    shared = max(lengths, default=1) <= _SHARED_LENGTH * min(lengths, default=1)
    channels = [np.asarray(channel, dtype=float) for one in examples for channel in one.values[:MOST_CHANNELS]]
    low, high = limits(*channels)
    return tuple(
        _panel(example, max(lengths) if shared else length, low, high)
        for example, length in zip(examples, lengths, strict=True)
    )


def _panel(example: Example, length: int, low: float, high: float) -> Figure:
    ticks = linear_ticks(low, high, most=3)
    labels = tick_labels(ticks)
    left = 10 + max((text_width(label) for label in labels), default=0)
    figure, axes = canvas(WIDTH, HEIGHT, left=left, right=12, top=6, bottom=22)
    last = max(length - 1, 1)
    axes.set_xlim(-0.02 * last, 1.02 * last)
    axes.set_ylim(low, high)
    for channel, color, dashes in zip(example.values, SERIES, DASHES, strict=False):
        values = np.asarray(channel, dtype=float)
        steps = np.arange(len(values), dtype=float)
        draw_line(axes, steps, values, most=_MOST_POINTS, size=4, color=color, linewidth=1.3, linestyle=dashes)
    label_y(axes, ticks, labels)
    step_ticks = linear_ticks(0, last, most=4, whole=True)
    label_x(axes, step_ticks, tick_labels(step_ticks))
    return figure

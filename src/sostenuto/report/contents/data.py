"""What the model was given: the data's size, its classes, and some sequences to look at."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import (
    SMALL,
    canvas,
    draw_line,
    label_x,
    label_y,
    limits,
    linear_ticks,
    text_width,
    tick_margin,
)
from sostenuto.report.numbers import count, counted, number, percent, tick_labels
from sostenuto.report.palette import INK, MUTED, SERIES
from sostenuto.report.section import Columns, Facts, Figures, LegendItem, Part, Picture, Prose, Section
from sostenuto.report.svg import house_style, set_tip
from sostenuto.report.text import one_line, shorten
from sostenuto.results import DataSummary, Example

_BALANCE_WIDTH = 410
NAMED_TO = 24
_ROW = 24
_NAME_LETTERS = 18


@house_style()
def class_balance(classes: Sequence[str], counts: Sequence[int], *, unit: str = "sequence") -> Figure:
    """Draw a named bar for each of up to 24 classes; more classes are drawn as sizes in falling order."""
    sizes = np.asarray(counts, dtype=float)
    return _bars(classes, sizes) if len(classes) <= NAMED_TO else _profile(sizes, unit)


def _bars(classes: Sequence[str], sizes: np.ndarray) -> Figure:
    names = [shorten(name, _NAME_LETTERS) or "(empty)" for name in classes]
    top = max(float(sizes.max()), 1.0)
    left = 14 + max(text_width(name, 12) for name in names)
    right = 14 + text_width(count(top), 12)
    figure, axes = canvas(_BALANCE_WIDTH, _ROW * len(names) + 30, left=left, right=right, top=22, bottom=8)
    axes.set_xlim(0, top)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.barh(np.arange(len(names)), sizes, height=0.66, color=SERIES[0], linewidth=0, alpha=0.85)
    even = float(sizes.mean())
    axes.axvline(even, color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
    at_right = even > top / 2
    axes.text(even, -0.62, "even share", ha="right" if at_right else "left", color=MUTED, fontsize=SMALL)
    for row, (full, name, size) in enumerate(zip(classes, names, sizes, strict=True)):
        label = axes.annotate(
            name, (0, row), (-8, 0), textcoords="offset points", ha="right", va="center", color=INK, fontsize=12
        )
        if name != one_line(full):
            set_tip(label, full)
        axes.annotate(
            count(size), (top, row), (right - 4, 0), textcoords="offset points", ha="right", va="center", color=MUTED
        )
    return figure


def _profile(sizes: np.ndarray, unit: str) -> Figure:
    """Draw the sizes in falling order as one filled step, with at most as many corners as there are sizes."""
    falling = np.sort(sizes)[::-1]
    top = max(float(falling[0]), 1.0) * 1.06
    ticks = linear_ticks(0, top)
    labels, left = tick_margin(ticks)
    figure, axes = canvas(_BALANCE_WIDTH, 240, left=left + 18, right=14, top=10, bottom=42)
    axes.set_ylim(0, top)
    axes.set_xlim(0, len(falling))
    corners = np.flatnonzero(np.diff(falling, prepend=np.inf))
    corners = corners[np.unique(np.linspace(0, len(corners) - 1, min(len(corners), 300)).astype(int))]
    edges = np.append(corners, len(falling))
    axes.stairs(falling[corners], edges, fill=True, color=SERIES[0], alpha=0.85, linewidth=0)
    axes.axhline(float(sizes.mean()), color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
    label_y(axes, ticks, labels)
    ranks = linear_ticks(0, len(falling), most=5, whole=True)
    label_x(axes, ranks, tick_labels(ranks))
    axes.set_xlabel("classes, largest first", fontsize=SMALL, color=MUTED, labelpad=6)
    axes.set_ylabel(f"{unit}s", fontsize=SMALL, color=MUTED, labelpad=6)
    return figure


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
    channels = [np.asarray(channel, dtype=float) for example in examples for channel in example.values[:MOST_CHANNELS]]
    low, high = limits(*channels)
    return tuple(
        _panel(example, max(lengths) if shared else length, low, high)
        for example, length in zip(examples, lengths, strict=True)
    )


def _panel(example: Example, length: int, low: float, high: float) -> Figure:
    ticks = linear_ticks(low, high, most=3)
    labels, left = tick_margin(ticks)
    figure, axes = canvas(WIDTH, HEIGHT, left=left - 2, right=12, top=6, bottom=22)
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


_TASKS = {
    "classification": "classification: one class for each sequence",
    "regression": "regression: one number for each sequence",
    "sequence": "sequence to sequence: one answer for every step",
    "forecast": "forecast: the values that come next",
}


def data_section(data: DataSummary) -> Section:
    """Return the section on the data."""
    lead: tuple[Part, ...] = (Prose(data.description),) if data.description.strip() else ()
    sequences, values = Facts("Sequences", _sequence_facts(data)), Facts("Values", _value_facts(data))
    balance = _balance(data)
    summary = Columns((sequences,), (values,)) if balance is None else Columns((sequences, values), (balance,))
    return Section("The data", "data", (*lead, summary, *_examples(data)), short_title="Data")


def _sequence_facts(data: DataSummary) -> tuple[tuple[str, str], ...]:
    lengths = counted(data.shortest, "step")
    if data.shortest != data.longest:
        lengths = f"{count(data.shortest)} to {counted(data.longest, 'step')}, median {number(data.median_length)}"
    return (
        ("Name", data.name),
        ("Task", _TASKS.get(data.task, data.task)),
        ("Training part", counted(data.num_train, "sequence")),
        ("Validation part", counted(data.num_validation, "sequence") if data.num_validation else "none"),
        ("Test part", counted(data.num_test, "sequence") if data.num_test else "none"),
        ("Length", lengths),
    )


def _value_facts(data: DataSummary) -> tuple[tuple[str, str], ...]:
    rows = [
        ("Channels", _channels(data)),
        ("Missing values", percent(data.missing_fraction) if data.missing_fraction else "none"),
    ]
    if data.classes:
        rows.append(("Classes", count(len(data.classes))))
    if len(data.target_range) == 2:
        rows.append(("Target", f"{number(data.target_range[0])} to {number(data.target_range[1])}"))
    rows += [("Origin", data.origin)] if data.origin.strip() else []
    rows += [("Checksum", data.checksum)] if data.checksum.strip() else []
    return tuple(rows)


def _channels(data: DataSummary) -> str:
    names = [shorten(name, 24) for name in data.channel_names if name.strip()]
    if not names:
        return count(data.num_channels)
    more = f", … ({len(names) - 8} more)" if len(names) > 8 else ""
    return f"{count(data.num_channels)}: {', '.join(names[:8])}{more}"


def _balance(data: DataSummary) -> Figures | None:
    if not data.classes or len(data.classes) != len(data.class_counts):
        return None
    unit = "step" if data.task == "sequence" else "sequence"
    parts = {data.num_train: " in the training part", data.num_train + data.num_validation + data.num_test: " in all"}
    where = parts.get(sum(data.class_counts), "")
    least, most = min(data.class_counts), max(data.class_counts)
    description = f"{counted(len(data.classes), 'class', 'classes')}, of {count(least)} to {count(most)} {unit}s each."
    caption = f"{unit.capitalize()}s per class{where}: {count(least)} to {count(most)}."
    if len(data.classes) > NAMED_TO:
        caption += " The dotted line is the even share."
    figure = class_balance(data.classes, data.class_counts, unit=unit)
    return Figures((Picture(figure, description, "Class balance"),), caption)


def _examples(data: DataSummary) -> tuple[Part, ...]:
    examples = chosen_examples(data)
    if not examples:
        return ()
    pictures = tuple(
        _picture(example, figure) for example, figure in zip(examples, example_panels(examples), strict=True)
    )
    caption = f"{counted(len(examples), 'example sequence')}, value against step"
    caption += "; the label is above each." if any(example.label for example in examples) else "."
    if data.num_channels > MOST_CHANNELS:
        caption += f" The first {MOST_CHANNELS} of {count(data.num_channels)} channels are drawn."
    return (Figures(pictures, caption, legend=_legend(data), small=True),)


def _picture(example: Example, figure: Figure) -> Picture:
    label = one_line(example.label)
    steps = max(len(channel) for channel in example.values)
    description = f"A sequence of {counted(steps, 'step')}" + (f" labeled {shorten(label, 60)}" if label else "")
    return Picture(figure, description, shorten(label, 60), label)


def _legend(data: DataSummary) -> tuple[LegendItem, ...]:
    if data.num_channels < 2:
        return ()
    names = data.channel_names or tuple(f"channel {number}" for number in range(1, data.num_channels + 1))
    return tuple(
        LegendItem(shorten(name, 28), f"series-{position}", DASHES[position - 1] != "solid", one_line(name))
        for position, name in enumerate(names[:MOST_CHANNELS], start=1)
    )

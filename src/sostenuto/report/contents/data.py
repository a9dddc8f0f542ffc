"""What the model was given: the data's size, its classes, and some sequences to look at."""

from matplotlib.figure import Figure

from sostenuto.report.figures.balance import NAMED_TO, class_balance
from sostenuto.report.figures.examples import DASHES, MOST_CHANNELS, chosen_examples, example_panels
from sostenuto.report.numbers import count, counted, number, percent
from sostenuto.report.section import Columns, Facts, Figures, LegendItem, Part, Picture, Prose, Section
from sostenuto.report.text import one_line, shorten
from sostenuto.results import DataSummary, Example

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
    parts = {data.num_train: " in the training part", data.num_train + data.num_validation + data.num_test: " in all"}
    where = parts.get(sum(data.class_counts), "")
    least, most = min(data.class_counts), max(data.class_counts)
    description = (
        f"{counted(len(data.classes), 'class', 'classes')}, of {count(least)} to {count(most)} sequences each."
    )
    caption = f"Sequences per class{where}: {count(least)} to {count(most)}."
    if len(data.classes) > NAMED_TO:
        caption += " The dotted line is the even share."
    return Figures((Picture(class_balance(data.classes, data.class_counts), description, "Class balance"),), caption)


def _examples(data: DataSummary) -> tuple[Part, ...]:
    examples = chosen_examples(data)
    if not examples:
        return ()
    pictures = tuple(
        _picture(example, figure) for example, figure in zip(examples, example_panels(examples), strict=True)
    )
    caption = f"{counted(len(examples), 'example sequence')}, value against step; the label is above each."
    if data.num_channels > MOST_CHANNELS:
        caption += f" The first {MOST_CHANNELS} of {count(data.num_channels)} channels are drawn."
    return (Figures(pictures, caption, legend=_legend(data), small=True),)


def _picture(example: Example, figure: Figure) -> Picture:
    label = one_line(example.label) or "(no label)"
    steps = max(len(channel) for channel in example.values)
    return Picture(
        figure, f"A sequence of {counted(steps, 'step')} labeled {shorten(label, 60)}", shorten(label, 60), label
    )


def _legend(data: DataSummary) -> tuple[LegendItem, ...]:
    if data.num_channels < 2:
        return ()
    names = data.channel_names or tuple(f"channel {number}" for number in range(1, data.num_channels + 1))
    return tuple(
        LegendItem(shorten(name, 28), f"series-{position}", DASHES[position - 1] != "solid", one_line(name))
        for position, name in enumerate(names[:MOST_CHANNELS], start=1)
    )

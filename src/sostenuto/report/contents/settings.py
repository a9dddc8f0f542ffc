"""How to get the same numbers again: configuration, versions, checksum, and how the score was measured."""

from collections.abc import Iterator, Mapping
from typing import Any

from sostenuto.choices import DataPart
from sostenuto.report.judgment import evaluated_things
from sostenuto.report.numbers import counted, duration, metric
from sostenuto.report.section import Columns, Facts, Part, Prose, Section
from sostenuto.report.text import one_line, shorten
from sostenuto.results import FitResult

_MOST_ROWS = 200
_MOST_LETTERS = 300


def settings_section(result: FitResult) -> Section:
    """Return the section on configuration, environment and measurement."""
    groups = list(_groups(result.config))
    environment = Facts("Environment", tuple((key, str(value)) for key, value in result.environment.items()))
    tables: list[Facts] = [*groups, *([environment] if environment.rows else [])]
    half = _fair_half(tables)
    columns: tuple[Part, ...] = ()
    if tables:
        columns = (Columns(tuple(tables[:half]), tuple(tables[half:])),)
    return Section(
        "Configuration and measurement",
        "configuration",
        (Prose(_measured(result)), *columns),
        short_title="Configuration",
    )


def _fair_half(tables: list[Facts]) -> int:
    """Return how many tables fill the left column to about half of all rows."""
    weights = [len(table.rows) + 2 for table in tables]
    total, filled = sum(weights), 0
    for position, weight in enumerate(weights):
        if filled + weight / 2 > total / 2:
            return max(position, 1)
        filled += weight
    return len(tables)


def _groups(config: Mapping[str, Any]) -> Iterator[Facts]:
    """Split a nested configuration: single values first, then one table for each group, deeper names joined by dots."""
    left = _MOST_ROWS
    single = tuple(_rows({key: value for key, value in config.items() if not isinstance(value, Mapping)}))
    if single:
        yield Facts("Configuration", single[:left])
        left -= len(single)
    for key, value in config.items():
        if isinstance(value, Mapping) and left > 0:
            rows = tuple(_rows(value)) or (("(empty)", ""),)
            yield Facts(f"Configuration: {shorten(str(key), 60)}", rows[:left])
            left -= len(rows)
    if left <= 0:
        yield Facts("Configuration: more", (("…", "the rest is in the run's configuration file"),))


def _rows(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _rows(value, f"{name}.")
        else:
            yield shorten(name, 80), _written(value)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or (isinstance(value, (Mapping, list, tuple)) and not value):
        return "none"
    if isinstance(value, Mapping):
        return shorten("{" + ", ".join(f"{key} = {_written(item)}" for key, item in value.items()) + "}", _MOST_LETTERS)
    if isinstance(value, (list, tuple)):
        return shorten(", ".join(_written(item) for item in value[:50]), _MOST_LETTERS)
    return shorten(one_line(str(value)), _MOST_LETTERS)


def _measured(result: FitResult) -> str:
    data = result.data
    kind = metric(result.metric)
    parts: dict[DataPart, str] = {
        "test": "the test part, which took no part in training or in choosing the epoch",
        "validation": "the validation part, as there is no test part",
        "train": "the training part itself",
    }
    sentences = [
        f"The model was trained on {counted(data.num_train, 'sequence')} in {duration(result.seconds)} and scored on "
        f"{parts[result.evaluated_on]} ({evaluated_things(result)})."
    ]
    if kind.meaning:
        sentences.append(f"The metric is {kind.label}: {kind.meaning}.")
    if result.baselines:
        both = " (training and validation part)" if result.evaluated_on == "test" and data.num_validation else ""
        sentences.append(f"Baselines were fitted on all that the model saw{both} and scored on the same cases.")
    if data.checksum.strip():
        sentences.append(f"The training data has the checksum {one_line(data.checksum)}.")
    return " ".join(sentences)

"""Options that several commands share, and how ``--option name=value`` is read."""

import json
from typing import Annotated, Any

import typer

from sostenuto.checks import InputError

ESTIMATORS = ("oscillators", "rntk")
"""Models that are no layer and fitted at once (`sostenuto.estimators.estimator_run.MODELS`)."""

DataArgument = Annotated[
    str | None, typer.Argument(metavar="[DATA]", help="A file or a data-set name; the embedded digits if left out.")
]
TaskOption = Annotated[
    str,
    typer.Option(
        help="classification, regression, sequence (a target at every step: a few whole numbers or names are classes; "
        "step-classification and step-regression say which) or forecast, where the file does not say."
    ),
]
LayoutOption = Annotated[str, typer.Option(help="Axes of a 3-D array: btc (batch, time, channel) or bct.")]
TargetOption = Annotated[str, typer.Option(help="Column of the target in a table.")]
SeriesOption = Annotated[str, typer.Option(help="Column that names the series in a long table.")]
TimeOption = Annotated[str, typer.Option(help="Column of the time in a long table.")]
GroupOption = Annotated[str, typer.Option(help="Column of the group that a split must keep together.")]
IgnoreOption = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="A column of a table to leave out. Repeatable.")
]
CategoricalOption = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="A column of text, read as one channel for each of its values. Repeatable."),
]
TimespansOption = Annotated[
    str, typer.Option(help="use: uneven times become time spans; ignore: they only order the steps.")
]
DataDirOption = Annotated[str | None, typer.Option(help="Folder with data sets, looked in first.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
LayerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME=VALUE", help="An option of the layer, e.g. -o step_size=0.5. Repeatable."
    ),
]


SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.NAME=VALUE",
        help="Any key of config.toml, e.g. --set training.ema_decay=0.99. Repeatable.",
    ),
]


def named_values(pairs: list[str] | None) -> dict[str, Any]:
    """Read ``name=value`` pairs; values are JSON where they can be, words otherwise.

    >>> named_values(["step_size=0.5", "positive=true", "map=cayley"])
    {'step_size': 0.5, 'positive': True, 'map': 'cayley'}
    """
    options: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals or not name.replace(".", "").isidentifier():
            raise InputError(f"expected NAME=VALUE, got {pair!r}.")
        try:
            options[name] = json.loads(text)
        except json.JSONDecodeError:
            options[name] = text
    return options


def seconds(text: str) -> float:
    """Read a time such as ``60s``, ``5m``, ``1h`` or a plain number of seconds.

    >>> seconds("90"), seconds("5m")
    (90.0, 300.0)
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        value = float(number) * unit
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"expected a time such as 60s, 5m or 1h, got {text!r}.")
    return value


def section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """Pick the settings of one section of the config.

    >>> section({"training.seed": 3, "data.scaling": "none"}, "training")
    {'seed': 3}
    """
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}

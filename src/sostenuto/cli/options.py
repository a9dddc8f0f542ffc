"""Options of the commands: those that are settings of a run, those that several commands share, how values are read."""

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from sostenuto.checks import InputError, require
from sostenuto.data.config import DataConfig, FileOptions, option_help
from sostenuto.training.config import ModelConfig, TrainingConfig

SECTIONS: dict[str, type] = {"data": DataConfig, "model": ModelConfig, "training": TrainingConfig}

FILE_OPTIONS = tuple(option_help(FileOptions))
"""Settings that every reader of files takes."""

DataArgument = Annotated[
    str | None, typer.Argument(metavar="[DATA]", help="A file or a data-set name; default: the embedded digits.")
]
DataDirOption = Annotated[str | None, typer.Option(help="Folder searched first for data sets.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Hide the progress bar.")]
LayerOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="Layer option, e.g. -o step_size=0.5. Repeatable."),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.NAME=VALUE",
        help="Any key of config.toml, e.g. --set training.ema_decay=0.99. Repeatable.",
    ),
]


def takes_settings(**wanted: tuple[str, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting of a run, in place of its argument ``settings``.

    ``wanted`` names sections of the config, and the settings of each (none: all that say what they are for). The
    command gets the settings that were given on the command line as a dict per section.
    """
    settings_of = {name: [*(names or option_help(SECTIONS[name]))] for name, names in wanted.items()}
    options = {(part, name): option_help(SECTIONS[part])[name] for part, names in settings_of.items() for name in names}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*arguments: Any, **values: Any) -> None:
            settings: dict[str, dict[str, Any]] = {part: {} for part in settings_of}
            for part, name in options:
                value = values.pop(name, None)
                if value not in (None, "", []):
                    settings[part][name] = value
            command(*arguments, settings=settings, **values)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command).parameters.values():
            own = [_option(name, *options[part, name]) for part, name in options]
            parameters += own if parameter.name == "settings" else [parameter]
        run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _option(name: str, hint: Any, text: str) -> inspect.Parameter:
    if hint == tuple[str, ...]:
        annotation: Any = Annotated[list[str] | None, typer.Option(metavar="NAME", help=f"{text} Repeatable.")]
    else:
        annotation = Annotated[hint | None, typer.Option(help=text)]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


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


def add_named(settings: dict[str, dict[str, Any]], pairs: list[str] | None) -> None:
    """Add what ``--set`` names to the settings of its section.

    >>> settings = {"data": {}, "training": {"epochs": 2}}
    >>> add_named(settings, ["training.seed=3"])
    >>> settings["training"]
    {'epochs': 2, 'seed': 3}
    """
    values = named_values(pairs)
    require(
        all(name.split(".")[0] in ("data", "training") for name in values),
        "expected --set data.NAME=VALUE or training.NAME=VALUE",
        f"got {', '.join(values)}",
        "options of the layer are set with --option",
    )
    for name, value in values.items():
        section, _, key = name.partition(".")
        settings[section][key] = value


def seconds(text: str, *, unitless: str = "") -> float:
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
        raise InputError(f"expected {unitless}a time such as 60s, 5m or 1h, got {text!r}.")
    return value


def check_output(out: Path, data: str | None, run: Path) -> None:
    """Refuse a file to write where a folder is, and one over the data or over what makes the run."""
    require(not out.is_dir(), f"{out}: expected a file to write", "got a folder", "name a file in it")
    if not out.exists():
        return
    taken = [*([Path(data)] if data else []), *(run / name for name in ("config.toml", "split.json", "result.json"))]
    taken += run.glob("*.safetensors")
    same = [path for path in taken if path.exists() and out.samefile(path)]
    hint = "choose another --out"
    require(not same, f"{out}: expected a file of its own to write", "got one of the data or the run", hint)

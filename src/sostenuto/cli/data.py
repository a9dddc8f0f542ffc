"""``sostenuto data``: list the known data sets, look at one, fetch one."""

import json
from typing import Annotated, Any

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import DataDirOption, JsonOption
from sostenuto.cli.tables import table

app = typer.Typer(no_args_is_help=True, help="List, show and fetch data sets.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A data-set name, such as ucr/GunPoint, or a file.")]


@app.command("list")
@guarded
def list_all(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """List the known data sets, and whether they are on this machine."""
    from sostenuto.data.registry import entries

    listed = entries(data_dir)
    if as_json:
        print(json.dumps([entry.to_dict() for entry in listed]))
        return
    rows = [(e.name, e.title, e.task, e.steps, e.channels, "here" if e.available else "to fetch") for e in listed]
    print(table(rows, ("name", "title", "task", "steps", "channels", "where")))


@app.command()
@guarded
def show(name: NameArgument, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Load a data set and summarize it."""
    facts = _facts(name, data_dir)
    print(
        json.dumps(facts)
        if as_json
        else table([(key, _lengths(value) if key == "steps" else _text(value)) for key, value in facts.items()])
    )


@app.command()
@guarded
def fetch(name: NameArgument, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Download a data set unless it is on this machine."""
    facts = _facts(name, data_dir)
    kept = {key: facts[key] for key in ("name", "train", "test", "checksum")}
    print(json.dumps(kept) if as_json else table([(key, _text(value)) for key, value in kept.items()]))


def _facts(name: str, data_dir: str | None) -> dict[str, Any]:
    import numpy as np

    from sostenuto.data.encoding import Encoding
    from sostenuto.data.source import open_dataset
    from sostenuto.training.config import DataConfig

    dataset = open_dataset(DataConfig(source=name), data_dir=data_dir)
    lengths = [len(sequence) for sequence in dataset.train.sequences]
    encoding = Encoding.fit(dataset.train, missing="interpolate")
    return {
        "name": dataset.name,
        "description": dataset.description,
        "origin": dataset.origin,
        "task": encoding.task,
        "train": len(dataset.train),
        "validation": 0 if dataset.validation is None else len(dataset.validation),
        "test": 0 if dataset.test is None else len(dataset.test),
        "channels": dataset.train.num_channels,
        "steps": [min(lengths), float(np.median(lengths)), max(lengths)],
        "classes": list(encoding.classes),
        "checksum": dataset.train.checksum(),
    }


def _lengths(steps: list[float]) -> str:
    """Write the shortest, the median and the longest length.

    >>> _lengths([64, 64.0, 64]), _lengths([30, 45.5, 70])
    ('64', '30 to 70, median 45.5')
    """
    least, median, most = steps
    return f"{least}" if least == most else f"{least} to {most}, median {median:g}"


def _text(value: Any) -> str:
    from sostenuto.checks import shown

    return shown(value, 12) if isinstance(value, list) else str(value)

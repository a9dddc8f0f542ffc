"""``sostenuto bench``: measure, side by side in one run."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import JsonOption, QuietOption
from sostenuto.cli.tables import table


@guarded
def bench(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A benchmark; default: all.")] = None,
    out: Annotated[Path | None, typer.Option(help="Store the records as JSON in this folder.")] = None,
    runs: Annotated[int, typer.Option(min=0, help="Runs whose median is taken; 0: 5 if times are stored, else 1.")] = 0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run benchmarks and print their results."""
    from sostenuto import benchmarks

    records = {}
    for one in [name] if name else benchmarks.names():
        stored = out is not None and benchmarks.is_timed(one)
        count = runs or (benchmarks.STORED_RUNS if stored else 1)
        record = benchmarks.run(one, runs=count, progress=not quiet and not as_json)
        records[one] = record
        if out is not None:
            benchmarks.store(one, record, out)
        if not as_json:
            print(f"{benchmarks.title(one)}\n{table(_flat(record))}\n")
    if as_json:
        print(json.dumps(records))


def _flat(record: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in record.items():
        if isinstance(value, dict):
            rows.extend(_flat(value, f"{prefix}{key} "))
        else:
            rows.append((f"{prefix}{key}", f"{value:.4g}" if isinstance(value, float) else str(value)))
    return rows

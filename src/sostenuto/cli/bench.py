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
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One benchmark; all of them if left out.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Store the records in this folder as JSON.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run the benchmarks and print what was measured."""
    from sostenuto import benchmarks

    records = {}
    for one in [name] if name else benchmarks.names():
        record = benchmarks.run(one, progress=not quiet and not as_json)
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

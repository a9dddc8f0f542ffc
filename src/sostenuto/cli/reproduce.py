"""``sostenuto reproduce``: run a table or figure of the papers again, beside the paper's numbers."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sostenuto.cli.errors import INTERRUPTED, guarded
from sostenuto.cli.options import DataDirOption, DeviceOption, JsonOption, QuietOption, named_values
from sostenuto.cli.tables import table

if TYPE_CHECKING:
    from sostenuto.results import ExperimentResult

STOPPED = 3
"""Exit code of a run that reached its time limit and has more to do."""


@guarded
def reproduce(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="An experiment, such as rusch2021/table-1.")] = "",
    wants_list: Annotated[bool, typer.Option("--list", help="List the experiments and their last results.")] = False,
    protocol: Annotated[
        str, typer.Option(help="paper (default), reduced (the same at smaller size), ours (our best recipe) or quick.")
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="--protocol quick: at most two minutes on two CPU cores.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Output folder; default: runs/reproduce/NAME/PROTOCOL.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    device: DeviceOption = "auto",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting, e.g. --set epochs=3. Repeatable."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Stop after the cell that passes this limit; run again to continue."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of worker processes.", min=1)] = 1,
    keep: Annotated[bool, typer.Option("--store", help="Store the result under results/experiments.")] = False,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Reproduce a table or figure of the papers and compare it with the published numbers."""
    from sostenuto.checks import require

    if wants_list:
        _list(data_dir, as_json)
        return
    require(bool(name), "expected the name of an experiment", "got none", "sostenuto reproduce --list shows them")
    require(not (quick and protocol), "expected one of --quick and --protocol", "got both")
    from sostenuto.experiments.runner import reproduce as run
    from sostenuto.experiments.stored import store
    from sostenuto.experiments.workbench import StoppedError

    try:
        result = run(
            name,
            protocol="quick" if quick else protocol,
            out=out,
            seed=seed,
            device=device,
            changes=named_values(setting),
            time_limit=time_limit,
            jobs=jobs,
            progress=not quiet and not as_json,
            data_dir=data_dir,
        )
    except StoppedError as stopped:
        _end(str(stopped), STOPPED, stopped)
    except KeyboardInterrupt as stopped:
        _end("interrupted; run the same command again to continue after the last finished cell.", INTERRUPTED, stopped)
    else:
        kept = store(result) if keep else None
        _show(result, out, as_json)
        if kept is not None and not as_json:
            print(f"The result is kept in {kept}")


def _end(message: str, code: int, cause: BaseException) -> None:
    print(f"sostenuto: {message}", file=sys.stderr)
    raise typer.Exit(code) from cause


def _show(result: "ExperimentResult", out: Path | None, as_json: bool) -> None:
    from sostenuto.experiments.stored import default_folder
    from sostenuto.report.experiment import judged, ours, theirs
    from sostenuto.report.text import shorten

    if as_json:
        print(result.to_json())
        return
    rows = [(item.name, shorten(ours(item), 70), shorten(theirs(item), 40), judged(item)) for item in result.numbers]
    print(table(rows, ("quantity", "here", "paper", "verdict")))
    for note in result.notes:
        print(f"- {note}")
    print(f"{result.name}, {result.protocol} protocol: {result.verdict}")
    print(f"The page is {(out or default_folder(result.name, result.protocol)) / 'report.html'}")


def _list(data_dir: str | None, as_json: bool) -> None:
    from sostenuto.experiments.listing import listed

    lines = listed(data_dir)
    if as_json:
        print(json.dumps([line.to_dict() for line in lines]))
        return
    rows = []
    for line in lines:
        data = ", ".join(f"{name} ({'to fetch' if name in line.missing else 'here'})" for name in line.data) or "none"
        last = (
            "; ".join(f"{result.verdict} ({result.protocol}, {result.date[:10]})" for result in line.results)
            or "not run"
        )
        rows.append((line.name, line.title, data, line.device, line.time, last))
    print(table(rows, ("name", "title", "data", "device", "time", "last result")))

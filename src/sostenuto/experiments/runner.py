"""Run an experiment: settings, bench, numbers beside the paper's, a verdict, ``result.json`` and ``report.html``."""

import datetime
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sostenuto.data.files.atomic import write_atomically
from sostenuto.experiments.catalog import ROOT, Experiment, find
from sostenuto.experiments.expectation import DATA_MISSING, NOT_MEASURED, STAND_IN, overall
from sostenuto.experiments.jobs import alongside
from sostenuto.experiments.provenance import command
from sostenuto.experiments.stored import default_folder
from sostenuto.experiments.workbench import DataMissingError, StoppedError, Workbench
from sostenuto.report.experiment import render
from sostenuto.results import ExperimentResult
from sostenuto.training.processes import environment
from sostenuto.types import PathLike
from sostenuto.version import commit


def reproduce(
    name: str,
    *,
    protocol: str = "",
    out: PathLike | None = None,
    seed: int = 0,
    device: str = "auto",
    changes: Mapping[str, Any] | None = None,
    time_limit: float | None = None,
    jobs: int = 1,
    progress: bool = True,
    data_dir: PathLike | None = None,
    root: Path = ROOT,
) -> ExperimentResult:
    """Run the experiment ``name`` again and compare it with its paper.

    ``protocol`` is ``"paper"`` (the default where the paper has one), ``"reduced"``, ``"ours"`` or ``"quick"``.
    ``out`` (``runs/reproduce/<paper>/<item>/<protocol>`` if left out) receives the cells, ``result.json`` and
    ``report.html``; a run that was stopped or killed goes on from its cells. ``changes`` replaces settings. With
    ``jobs`` above 1, so many processes share the cells that do not need one another (`Workbench.ahead`). Raises
    `sostenuto.experiments.workbench.StoppedError` when ``time_limit`` seconds have passed and more is to do.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = reproduce("wang2024/figure-1", protocol="quick", out=folder, progress=False)
    >>> result.verdict
    'reproduced'
    """
    experiment = find(name, root)
    protocol = protocol or experiment.first
    settings = experiment.settings(protocol, changes)
    folder = Path(out) if out is not None else default_folder(experiment.name, protocol)
    folder.mkdir(parents=True, exist_ok=True)
    options = {"protocol": protocol, "folder": folder, "seed": seed, "device": device, "time_limit": time_limit}
    options |= {"progress": progress, "data_dir": data_dir, "bars": jobs == 1}
    bench = Workbench(experiment, settings, **options)
    try:
        with alongside(jobs, _share, (name, root, changes, options)):
            experiment.load()(settings, bench)
        bench.require_complete()
        _mark_stand_in(bench)
        verdict = overall(tuple(bench.numbers.values()))
    except DataMissingError as error:
        _mark_missing(bench, str(error))
        verdict = DATA_MISSING
    result = _result(bench, verdict, changes)
    write_atomically(folder / "result.json", result.to_json(indent=1) + "\n")
    write_atomically(folder / "report.html", render(result, bench.drawings))
    return result


def _share(name: str, root: Path, changes: Mapping[str, Any] | None, options: dict[str, Any]) -> None:
    """Go through an experiment in a process of its own for its cells' sake; the first process tells the rest."""
    experiment = find(name, root)
    settings = experiment.settings(options["protocol"], changes)
    with suppress(StoppedError, DataMissingError):
        experiment.load()(settings, Workbench(experiment, settings, **options))


def _mark_missing(bench: Workbench, why: str) -> None:
    bench.note(why)
    for name in bench.missing():
        bench.numbers[name] = bench.experiment.expected[name].number(DATA_MISSING)


def _mark_stand_in(bench: Workbench) -> None:
    """Judge nothing where data that the experiment needs were not read: what stood in for them proves no statement."""
    read = [f"{name}/" for name in bench.checksums]
    unread = [name for name in bench.experiment.needs_data if not any(result.startswith(f"{name}/") for result in read)]
    if unread:
        bench.note(f"Run on stand-in data: {', '.join(unread)} was not read.")
        judged = {name: number for name, number in bench.numbers.items() if number.verdict != NOT_MEASURED}
        bench.numbers |= {name: replace(number, verdict=STAND_IN) for name, number in judged.items()}


def _result(bench: Workbench, verdict: str, changes: Mapping[str, Any] | None) -> ExperimentResult:
    experiment: Experiment = bench.experiment
    recipe = experiment.recipe(bench.protocol, bench.settings)
    results = (bench.numbers[name] for name in experiment.expected)
    numbers = tuple(replace(number, recipe=number.recipe or recipe) for number in results)
    return ExperimentResult(
        name=experiment.name,
        title=experiment.title,
        paper=experiment.paper,
        what=experiment.what,
        protocol=bench.protocol,
        verdict=verdict,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seed=bench.seed,
        seconds=bench.seconds,
        numbers=numbers,
        tables=tuple(bench.tables),
        notes=tuple(bench.notes),
        settings=dict(bench.settings),
        environment=environment(bench.device),
        data=bench.checksums,
        recipe=recipe,
        command=command(experiment.name, bench.protocol, bench.seed, changes),
        commit=commit(),
        code=bench.code,
        test_evaluations=bench.test_evaluations,
    )

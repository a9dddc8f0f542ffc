"""Where results lie: in the folder of a run, and in ``results/experiments`` of a checkout.

A run with another seed than 0 is a rerun: it is kept beside the result, in ``reruns/``, without its tables.
"""

from dataclasses import replace
from pathlib import Path
from typing import cast

from sostenuto.checks import FileFormatError, require
from sostenuto.data.files.atomic import write_atomically
from sostenuto.experiments.catalog import PROTOCOLS
from sostenuto.results import ExperimentResult

RUNS = Path("runs/reproduce")


def default_folder(name: str, protocol: str) -> Path:
    """Return the folder a run writes to unless it is told another."""
    return RUNS / name / protocol


def checkout() -> Path | None:
    """Return the root of the checkout the package is used from, if it is: where ``results/`` lies."""
    root = Path(__file__).parents[3]
    return root if (root / "pyproject.toml").is_file() and (root / "results").is_dir() else None


def stored_path(name: str, protocol: str, results: Path) -> Path:
    """Return the file that keeps an experiment's result under a protocol.

    >>> stored_path("rusch2021/figure-2", "paper", Path("results/experiments")).as_posix()
    'results/experiments/rusch2021_figure-2_paper.json'
    """
    return results / f"{name.replace('/', '_')}_{protocol}.json"


def store(result: ExperimentResult, results: Path | None = None) -> Path:
    """Keep a result in the place of the last one under its protocol, a rerun in that of the last with its seed."""
    root = checkout()
    require(results is not None or root is not None, "expected a checkout to store into", "found none", "name --out")
    folder = results if results is not None else cast(Path, root) / "results" / "experiments"
    path = stored_path(result.name, result.protocol, folder)
    if result.seed:
        path = folder / "reruns" / f"{path.stem}_{result.seed}.json"
        path.parent.mkdir(exist_ok=True)
        result = replace(result, tables=(), notes=())
    return write_atomically(path, result.to_json(indent=1) + "\n")


def read_result(path: Path) -> ExperimentResult:
    """Read a ``result.json``."""
    import json

    try:
        return cast(ExperimentResult, ExperimentResult.from_dict(json.loads(path.read_text(encoding="utf-8"))))
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(path, "expected a result", f"got something else ({error})", "run it again") from error


def reruns(result: ExperimentResult, folder: Path) -> list[ExperimentResult]:
    """Read what was kept beside a result: the same experiment and protocol with other seeds."""
    stem = stored_path(result.name, result.protocol, folder).stem
    results = [read_result(path) for path in folder.glob(f"reruns/{stem}_*.json")]
    return sorted(results, key=lambda result: result.seed)


def last_results(name: str, runs: Path = RUNS) -> list[ExperimentResult]:
    """Return the latest result under each protocol, the paper's first."""
    root = checkout()
    results = []
    for protocol in PROTOCOLS:
        paths = [runs / name / protocol / "result.json"]
        paths += [stored_path(name, protocol, root / "results" / "experiments")] if root is not None else []
        known = [read_result(path) for path in paths if path.is_file()]
        results += [max(known, key=lambda result: result.date)] if known else []
    return results

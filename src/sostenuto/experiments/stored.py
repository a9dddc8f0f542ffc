"""Where results lie: in the folder of a run, and in ``results/experiments`` of a checkout."""

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


def stored_path(name: str, results: Path) -> Path:
    """Return the file that keeps an experiment's result.

    >>> stored_path("rusch2021/figure-2", Path("results/experiments")).as_posix()
    'results/experiments/002_figure-2.json'
    """
    return results / f"{name.replace('/', '_')}.json"


def store(result: ExperimentResult, results: Path | None = None) -> Path:
    """Keep a result; one of a lesser protocol never takes the place of a fuller one."""
    root = checkout()
    require(results is not None or root is not None, "expected a checkout to store into", "found none", "name --out")
    folder = results if results is not None else cast(Path, root) / "results" / "experiments"
    path = stored_path(result.name, folder)
    if path.is_file():
        known = read_result(path).protocol
        fuller = PROTOCOLS.index(known) > PROTOCOLS.index(result.protocol)
        require(
            not fuller,
            f"expected a result of the {known} protocol, which {path} holds",
            f"got one of the {result.protocol} protocol",
            "remove the file first if it is no longer wanted",
        )
    return write_atomically(path, result.to_json(indent=1) + "\n")


def read_result(path: Path) -> ExperimentResult:
    """Read a ``result.json``."""
    import json

    try:
        return cast(ExperimentResult, ExperimentResult.from_dict(json.loads(path.read_text(encoding="utf-8"))))
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(path, "expected a result", f"got something else ({error})", "run it again") from error


def last_result(name: str, runs: Path = RUNS) -> ExperimentResult | None:
    """Return the fullest result there is of an experiment, the latest where several are as full."""
    root = checkout()
    paths = [runs / name / protocol / "result.json" for protocol in PROTOCOLS]
    paths += [stored_path(name, root / "results" / "experiments")] if root is not None else []
    found = [read_result(path) for path in paths if path.is_file()]
    return max(found, key=lambda one: (PROTOCOLS.index(one.protocol), one.date), default=None)

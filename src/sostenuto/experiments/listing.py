"""The list of experiments: what each needs, and what was last found."""

from dataclasses import dataclass
from pathlib import Path

from sostenuto.experiments.catalog import ROOT, find, names
from sostenuto.experiments.presence import absent_data
from sostenuto.experiments.stored import RUNS, last_results
from sostenuto.results import Record
from sostenuto.types import PathLike


@dataclass(frozen=True)
class LastResult(Record):
    """What was last found under a protocol."""

    protocol: str
    verdict: str
    date: str


@dataclass(frozen=True)
class Listed(Record):
    """One line of the list; ``missing`` names the needed data sets that are not on this machine."""

    name: str
    title: str
    data: tuple[str, ...]
    missing: tuple[str, ...]
    device: str
    time: str
    protocols: tuple[str, ...]
    results: tuple[LastResult, ...] = ()


def listed(data_dir: PathLike | None = None, *, root: Path = ROOT, runs: Path = RUNS) -> list[Listed]:
    """List every experiment with its last result under each protocol.

    >>> [line.device for line in listed() if line.name == "wang2024/figure-1"]
    ['cpu']
    """
    lines = []
    for name in names(root):
        experiment, last = find(name, root), last_results(name, runs)
        lines.append(
            Listed(
                name=name,
                title=experiment.title,
                data=experiment.needs_data,
                missing=tuple(absent_data(experiment.needs_data, data_dir)),
                device=experiment.needs_device,
                time=experiment.time,
                protocols=tuple(experiment.protocols),
                results=tuple(LastResult(each.protocol, each.verdict, each.date) for each in last),
            )
        )
    return lines

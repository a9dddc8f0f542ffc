"""Benchmarks: one comparison per file, found by name.

A benchmark is a module of this package with

- ``TITLE: str``, one line that says what is compared,
- ``run(progress: bool = True) -> dict``, which measures and returns plain numbers, strings, lists and dicts, and
- ``TIMED = True`` where the numbers are times: `store` then takes only the medians of several runs, with their spread.

Adding one is adding one file. `store` writes a record with its date, commit, device and versions.
"""

import datetime
import importlib
import json
import os
import pkgutil
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sostenuto.checks import check_choice, check_count, require
from sostenuto.data.files.atomic import write_atomically
from sostenuto.types import PathLike
from sostenuto.version import commit

STORED_RUNS = 5
"""Runs whose medians are stored where times are measured."""
_PACKAGES = ("sostenuto", "torch", "numpy", "numba", "scikit-learn", "triton")


def names() -> list[str]:
    """List the benchmarks.

    >>> "import_time" in names()
    True
    """
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def title(name: str) -> str:
    """Say in one line what the benchmark ``name`` compares.

    >>> title("import_time")
    'import sostenuto against import torch, each in fresh interpreters'
    """
    return _module(name).TITLE


def is_timed(name: str) -> bool:
    """Return whether a benchmark measures times, which differ from run to run.

    >>> is_timed("import_time"), is_timed("bounds")
    (True, False)
    """
    return getattr(_module(name), "TIMED", False)


def run(name: str, *, runs: int = 1, progress: bool = True) -> dict[str, Any]:
    """Measure the benchmark ``name`` and return its record of plain numbers, medians where ``runs`` is above 1."""
    check_count("runs", runs)
    records = [_module(name).run(progress=progress) for _ in range(runs)]
    for record in records:
        require(isinstance(record, dict), f"expected the benchmark {name!r} to return a dict", f"got {type(record)}")
    return medians(records) if runs > 1 else records[0]


def medians(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median of every number over runs, and under ``"spread"`` the least and the largest of each.

    >>> found = medians([{"a": {"s": 1.0}, "b": "x"}, {"a": {"s": 9.0}, "b": "x"}, {"a": {"s": 2.0}, "b": "x"}])
    >>> found["a"], found["b"], found["spread"], found["runs"]
    ({'s': 2.0}, 'x', {'a s': [1.0, 9.0]}, 3)
    """
    spread: dict[str, list[float]] = {}

    def middle(values: list[Any], path: str) -> Any:
        if isinstance(values[0], Mapping):
            return {key: middle([value[key] for value in values], f"{path} {key}".strip()) for key in values[0]}
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        if not numbers or len(set(values)) == 1:
            return values[0]
        spread[path] = [min(values), max(values)]
        return statistics.median(values)

    return {**middle(list(records), ""), "runs": len(records), "spread": spread}


def store(name: str, record: dict[str, Any], folder: PathLike = "results") -> Path:
    """Write ``record`` to ``folder/name.json`` with today's date, the device and the versions; return the path.

    Times are stored as medians of at least `STORED_RUNS` runs. The file is strict JSON, replaced in one step: a reader
    sees the old record or the new one, never half of one.
    """
    check_choice("name", name, names())
    count = record.get("runs", 1)
    few = is_timed(name) and count < STORED_RUNS
    hint = f"measure with runs={STORED_RUNS}"
    require(not few, f"expected medians of at least {STORED_RUNS} runs of {name!r}", f"got {count}", hint)
    page = {"benchmark": name, "title": title(name), **environment(), "record": record}
    text = json.dumps(page, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    return write_atomically(Path(folder) / f"{name}.json", text)


def environment() -> dict[str, Any]:
    """Return what a number depends on: the date, the commit, the device it was measured on, and the versions.

    >>> sorted(environment())
    ['commit', 'date', 'device', 'versions']
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    versions = {"python": platform.python_version(), **_versions()}
    return {"date": now, "commit": commit(), "device": _device(), "versions": versions}


def _module(name: str) -> Any:
    check_choice("benchmark", name, names())
    return importlib.import_module(f"{__name__}.{name}")


def _device() -> dict[str, Any]:
    import torch

    cuda = torch.cuda.is_available()
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if cuda else "",
    }


def _processor() -> str:
    """Name the CPU: Linux keeps the model's name in a file, elsewhere Python knows it."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions

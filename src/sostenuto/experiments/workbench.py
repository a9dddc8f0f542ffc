"""What an experiment's ``run.py`` works with: cells that are remembered, data, numbers, figures, time."""

import hashlib
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch

from sostenuto.checks import FileFormatError, InputError, SostenutoError, require, shown
from sostenuto.data.dataset import Dataset
from sostenuto.data.registry import load
from sostenuto.experiments.catalog import Experiment
from sostenuto.experiments.cells import CellStore
from sostenuto.experiments.expectation import (
    LAW_FAILS,
    LAW_HOLDS,
    NOT_COMPARED,
    NOT_JUDGED,
    NOT_MEASURED,
    ONE_SEED,
    UNDECIDED,
)
from sostenuto.experiments.provenance import code_digest
from sostenuto.experiments.settings import Settings
from sostenuto.report.experiment import Drawing
from sostenuto.report.figures.plot import Draw, plotted
from sostenuto.results import ExperimentNumber, ExperimentTable
from sostenuto.version import commit

Item = TypeVar("Item")


class StoppedError(SostenutoError):
    """The time limit was reached between two cells; what was computed is kept, and the same command goes on."""


class DataMissingError(SostenutoError):
    """A data set the experiment needs is neither on this machine nor to be had; the message says where to put it."""


class ClaimedError(SostenutoError):
    """Another process on the same folder computes this cell just now."""


class Workbench:
    """The bench an experiment is run on.

    ``protocol`` is ``"paper"``, ``"reduced"``, ``"ours"`` or ``"quick"``, ``device`` what torch calls it, ``seed`` the
    caller's.
    Whatever takes time goes through `cell`; whatever the paper has a number for, through `number` or `law`.
    """

    def __init__(
        self,
        experiment: Experiment,
        settings: Settings,
        *,
        protocol: str,
        folder: Path,
        seed: int = 0,
        device: str = "auto",
        time_limit: float | None = None,
        progress: bool = True,
        bars: bool = True,
        data_dir: str | Path | None = None,
    ) -> None:
        self.experiment, self.settings, self.protocol, self.folder, self.seed = (
            experiment,
            settings,
            protocol,
            folder,
            seed,
        )
        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        self.shows_progress, self.shows_bars, self.data_dir = progress, progress and bars, data_dir
        self.numbers: dict[str, ExperimentNumber] = {}
        self.tables: list[ExperimentTable] = []
        self.drawings: list[Drawing] = []
        self.notes: list[str] = []
        self.checksums: dict[str, str] = {}
        self._spent: dict[str, float] = {}
        self._tested: set[str] = set()
        self.code = code_digest(experiment.folder / "run.py")
        self._store = CellStore(folder / "cells")
        self._began, self._inside = time.perf_counter(), 0.0
        self._limit = time_limit
        self._waits = True

    # What takes time

    def cell(
        self,
        key: str,
        function: Callable[[], Any],
        *,
        depends: Mapping[str, Any] | None = None,
        here: bool = False,
        code: str = "",
        tests: bool = False,
    ) -> Any:
        """Return ``function()``, computed once: its JSON is kept under ``key`` and read back by every later run.

        A cell is taken up again only where what it depends on is the same: the code, the seed and all settings, or,
        with ``depends``, the code, the seed and these values. ``code`` is the digest of the experiment's own code and
        the library's unless it is given (for cells that two experiments share). With ``here`` the device counts too
        (for what measures time). ``tests`` marks a cell that scores a model on the test part, to be counted. torch's
        seed is set from the run's seed and the key before the function runs, so that a cell's value does not depend on
        which cells ran before it. A `StoppedError` ends the run before a new cell is begun past the time limit.
        """
        basis = self.basis(depends, here=here, code=code)
        stored = self._store.read(key, basis)
        if stored is None:
            self.check_time()
            with self._store.claimed(key, basis, wait=self._waits) as mine:
                if not mine:
                    raise ClaimedError(f"the cell {key} is being computed by another process.")
                # Where another process held it, it is there now, unless that process failed.
                stored = self._store.read(key, basis) or self._compute(key, basis, function, tests)
        path = str(self._store.path(key, basis))
        self._spent[path] = stored["seconds"]
        self._tested |= {path} if tests else set()
        return stored["value"]

    def _compute(self, key: str, basis: Mapping[str, Any], function: Callable[[], Any], tests: bool) -> dict[str, Any]:
        torch.manual_seed(self.seed_of(key))
        began = time.perf_counter()
        value = function()
        seconds = time.perf_counter() - began
        self._inside += seconds
        facts = {"seconds": seconds, "device": self.device, "commit": commit(), "tests": tests}
        stored = self._store.write(key, basis, value, **facts)
        self.say(f"{key}: {seconds:.1f} s")
        return stored

    def ahead(self, cells: Iterable[Callable[[], Item]]) -> list[Item]:
        """Compute cells that do not need one another, each a call of `cell`, and return their values in order.

        Of several processes on one folder (``--jobs``) each takes what no other has begun, so that they share the work.
        """
        left, results = dict(enumerate(cells)), {}
        for self._waits in (False, True):
            try:
                for place, cell in left.items():
                    with suppress(ClaimedError):
                        results[place] = cell()
            finally:
                self._waits = True
            left = {place: cell for place, cell in left.items() if place not in results}
        return [results[place] for place in sorted(results)]

    def remembers(
        self, key: str, *, depends: Mapping[str, Any] | None = None, here: bool = False, code: str = ""
    ) -> bool:
        """Return whether a cell is stored already."""
        return self._store.read(key, self.basis(depends, here=here, code=code)) is not None

    def scratch(self, key: str, *, depends: Mapping[str, Any] | None = None) -> Path:
        """Return a folder of a cell's own that survives a kill, for checkpoints of what it trains."""
        path = self._store.path(key, self.basis(depends))
        folder = self.folder / "scratch" / path.relative_to(self._store.folder).with_suffix("")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def check_time(self) -> None:
        """Raise `StoppedError` past the time limit; a long cell may ask too, after it has saved where it is."""
        if self._limit is not None and time.perf_counter() - self._began > self._limit:
            raise StoppedError(f"stopped after {self._limit:g} s; run the same command again to go on.")

    def seeds(self, count: int) -> range:
        """Return the seeds of ``count`` repetitions; runs with other seeds share none of them."""
        return range(self.seed * count, (self.seed + 1) * count)

    def seed_of(self, key: str) -> int:
        """Return a seed for ``key`` that follows from the run's seed alone."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{key}".encode()).digest()[:4], "big")

    def basis(self, depends: Mapping[str, Any] | None, *, here: bool = False, code: str = "") -> dict[str, Any]:
        """Return all that a cell depends on."""
        basis = dict(self.settings if depends is None else depends) | {"seed": self.seed, "code": code or self.code}
        return basis | {"device": self.device} if here else basis

    @property
    def test_evaluations(self) -> dict[str, int]:
        """Count how often a model was scored on the test part: in this folder, and for what this run shows."""
        return {"made": self._store.test_evaluations(), "shown": len(self._tested)}

    @property
    def seconds(self) -> float:
        """Seconds of all cells, those of earlier runs too, and of what this run did outside of them."""
        return sum(self._spent.values()) + time.perf_counter() - self._began - self._inside

    # What is read

    def data(self, name: str) -> Dataset:
        """Load a data set and note its checksum; where it is not to be had, the verdict is *data missing*."""
        try:
            dataset = load(name, self.data_dir)
        except FileFormatError:
            raise
        except InputError as error:
            advice = "put it into a folder and name that folder in SOSTENUTO_DATA or --data-dir"
            raise DataMissingError(f"the data set {name!r} is missing: {error} To mend it, {advice}.") from error
        parts = (dataset.train, dataset.validation, dataset.test)
        self.checksums[name] = " ".join(part.checksum() for part in parts if part is not None)
        return dataset

    # What is found

    def number(
        self, name: str, value: float | Sequence[float], spread: float | None = None, n: int = 1, *, recipe: str = ""
    ) -> None:
        """Put a number beside the paper's entry ``name``; a sequence is summed up by its mean and deviation.

        ``recipe`` says in words how it came about; without it the page says how the protocol differs from the paper's.
        """
        expectation = self._expectation(name)
        if isinstance(value, Sequence):
            require(len(value) > 0, f"expected at least one value of {name!r}", "got none")
            n, values = len(value), [float(part) for part in value]
            value, spread = statistics.fmean(values), statistics.stdev(values) if n > 1 else None
        compared = self.protocol in self.experiment.comparable or expectation.value is None
        verdict = expectation.judge(float(value), spread, n) if compared else NOT_COMPARED
        why = ONE_SEED if verdict == UNDECIDED else ""
        results = {"value": float(value), "spread": spread, "count": n, "seeds": tuple(self.seeds(n))}
        self.numbers[name] = expectation.number(verdict, **results, recipe=recipe, why=why)

    def law(
        self, name: str, holds: bool, evidence: str = "", *, seeds: int = 0, undecided: str = "", not_judged: str = ""
    ) -> None:
        """Say whether the law ``name`` of ``[expected]`` held, and what was seen.

        A law about trained networks gives the number of their ``seeds``: one decides nothing. ``undecided`` and
        ``not_judged`` say why nothing can be said: a difference within two standard errors, a baseline that had less.
        Under a protocol that may not be compared no law is judged.
        """
        expectation = self._expectation(name)
        require(bool(expectation.law), f"expected a law under {name!r} in [expected]", "got a number")
        undecided = undecided or (ONE_SEED if seeds == 1 else "")
        verdict = LAW_HOLDS if holds else LAW_FAILS
        if self.protocol not in self.experiment.comparable:
            verdict, undecided, not_judged = NOT_COMPARED, "", ""
        elif not_judged or undecided:
            verdict = NOT_JUDGED if not_judged else UNDECIDED
        self.numbers[name] = expectation.number(verdict, evidence=evidence, why=not_judged or undecided)

    def skip(self, name: str, why: str) -> None:
        """Leave an entry out and say why: a device that is not here, a package that is not installed."""
        self.numbers[name] = self._expectation(name).number(NOT_MEASURED, evidence=why)

    def table(self, caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Add a table to the page; floats are written with four digits."""
        written = tuple(tuple(f"{item:.4g}" if isinstance(item, float) else str(item) for item in row) for row in rows)
        self.tables.append(ExperimentTable(caption, tuple(columns), written))

    def figure(self, name: str, draw: Draw, *, caption: str = "", width: int = 430, height: int = 280) -> None:
        """Draw a figure: ``draw(axes)`` gets matplotlib axes; `sostenuto.report.figures.plot` has the usual marks."""
        self.drawings.append(Drawing(name, plotted(draw, width=width, height=height), caption))

    def note(self, text: str) -> None:
        """Add a sentence to the page and the result: a choice, a reduction, what was found."""
        self.notes.append(text)

    def _expectation(self, name: str) -> Any:
        known = self.experiment.expected
        hint = "give it an entry, if only with a remark"
        require(name in known, f"expected an entry of {self.experiment.name}'s [expected]", f"got {name!r}", hint)
        return known[name]

    # What the person at the screen sees

    def progress(self, items: Iterable[Item], what: str = "") -> Iterator[Item]:
        """Go through items with a progress bar."""
        from tqdm import tqdm

        yield from tqdm(items, desc=what or self.experiment.name, disable=not self.shows_bars)

    def say(self, text: str) -> None:
        """Print a line to standard error unless the run is quiet."""
        if self.shows_progress:
            print(f"{self.experiment.name}: {text}", file=sys.stderr, flush=True)

    def missing(self) -> list[str]:
        """List the entries of ``[expected]`` that were not measured."""
        return [name for name in self.experiment.expected if name not in self.numbers]

    def require_complete(self) -> None:
        """Refuse an experiment that leaves entries of ``[expected]`` out without saying why."""
        absent = self.missing()
        require(not absent, f"expected {self.experiment.name} to measure every entry", f"missed {shown(absent)}")

"""Tables 1 and 2 of alemohammad2021: every column on every data set, the paper's rows, and the measures over both."""

import re
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from sostenuto.data.dataset import Dataset
from sostenuto.experiments.catalog import find
from sostenuto.experiments.cells import CellStore
from sostenuto.experiments.provenance import code_digest
from sostenuto.experiments.settings import Settings
from sostenuto.experiments.tasks.ucr_kernels import KERNELS, RULES, kernel_accuracy
from sostenuto.experiments.tasks.ucr_networks import COLUMNS as NETWORKS
from sostenuto.experiments.tasks.ucr_networks import Training, network_accuracy
from sostenuto.experiments.tasks.ucr_wide_choice import COLUMNS as WIDE_COLUMNS
from sostenuto.experiments.tasks.ucr_wide_choice import wide_choice_accuracy
from sostenuto.experiments.workbench import Workbench

COLUMNS = (*KERNELS, *NETWORKS)
WIDE_RECURRENT = tuple(WIDE_COLUMNS["RNTK"])
WIDE = tuple(column for columns in WIDE_COLUMNS.values() for column in columns)
TABLES = ("table-1", "table-2")
OF_ANOTHER_SET = "MiddlePhalanxOutlineCorrect"
MEASURES = ("mean accuracy, %", "P90, %", "P95, %", "PMA, %", "Friedman rank")
Rows = dict[str, dict[str, float]]
"""Accuracies in percent by data set and column."""
_COLUMN = re.compile(rf"({'|'.join(COLUMNS[1:])}) (\d+(?:\.\d+)?)")


def accuracies(settings: Settings, bench: Workbench) -> Rows:
    """Run every column on every set; the first ``network_sets`` sets have the trained networks too.

    On sets named in ``thinned`` every second value of each axis of the two large grids is tried.

    One cell for each set and column (and size of network), the kernels of the largest sets first. What the other of the
    two tables has computed with the same settings is taken over.
    """
    sets = {name: _part(bench.data(name), settings) for name in settings.sets}
    with_networks = settings.sets[: settings.network_sets]
    kernels = [(name, column) for name in sorted(sets, key=lambda name: -_pair_steps(sets[name])) for column in KERNELS]
    bench.ahead(
        [partial(_kernel_cell, settings, bench, name, sets[name], column) for name, column in kernels]
        + [
            partial(_network_cell, settings, bench, name, sets[name], column, size)
            for name in with_networks
            for column in NETWORKS
            for size in _sizes(settings)
        ]
    )
    rows: Rows = {}
    results: dict[str, list[dict[str, float]]] = {column: [] for column in KERNELS}
    for name in bench.progress(settings.sets, "sets"):
        row = rows[name.removeprefix("ucr/")] = {}
        for column in KERNELS:
            results[column].append(_kernel_cell(settings, bench, name, sets[name], column)["test"])
            row[column] = results[column][-1][settings.rule]
        for column in NETWORKS if name in with_networks else ():
            row[column] = _chosen_network(settings, bench, name, sets[name], column)
    bench.table(
        f"Mean test accuracy in % over {len(rows)} sets, by the rule of choice; the table has {settings.rule!r}",
        ("", *KERNELS, "what it takes"),
        [
            (rule, *(f"{np.mean([each[rule] for each in results[column]]):.2f}" for column in KERNELS), said)
            for rule, said in RULES.items()
        ],
    )
    return rows


def wide_accuracies(settings: Settings, bench: Workbench) -> Rows:
    """Run the kernels chosen from wider families, which the paper does not have.

    The recurrent kernel is run on ``wide_sets``, the others on those of at most ``widened_most`` training sequences (0
    for all): with a kernel that is nearly linear, at a high cost, libsvm hardly ends on many that overlap.
    """
    sets = {name: _part(bench.data(name), settings) for name in settings.wide_sets}
    needed = {key: settings[key] for key in ("folds", "every", "most_train", "most_test")}
    asked = [
        (name, family)
        for name in settings.wide_sets
        for family in WIDE_COLUMNS
        if family == "RNTK" or not settings.widened_most or len(sets[name].train) <= settings.widened_most
    ]

    def cell(name: str, family: str) -> dict[str, Any]:
        measure = partial(
            wide_choice_accuracy, sets[name], family, folds=settings.folds, every=settings.every, seed=bench.seed
        )
        return _shared_cell(
            bench, f"{name}/{family.lower()}-wide", measure, needed | {"columns": list(WIDE_COLUMNS[family])}
        )

    results = bench.ahead([partial(cell, name, family) for name, family in asked])
    rows: Rows = {}
    for (name, _), each in zip(asked, results, strict=True):
        rows.setdefault(name.removeprefix("ucr/"), {}).update(each["test"])
    return rows


def _kernel_cell(settings: Settings, bench: Workbench, name: str, dataset: Dataset, column: str) -> dict[str, Any]:
    every = 2 * settings.every if name in settings.thinned else settings.every
    needed = {key: settings[key] for key in ("folds", "most_train", "most_test")} | {"every": every}
    measure = partial(kernel_accuracy, dataset, column, folds=settings.folds, every=every, seed=bench.seed)
    return _shared_cell(bench, f"{name}/{column.lower()}", measure, needed | {"rules": list(RULES)})


def _sizes(settings: Settings) -> list[tuple[int, int]]:
    return [(layers, width) for layers in settings.layers for width in settings.widths]


def _network_cell(
    settings: Settings, bench: Workbench, name: str, dataset: Dataset, column: str, size: tuple[int, int]
) -> dict[str, Any]:
    training = Training(settings.network_folds, settings.epochs, settings.patience, settings.batch_size)
    keys = ("network_folds", "epochs", "patience", "batch_size", "learning_rates", "most_train", "most_test")
    measure = partial(network_accuracy, dataset, column, *size, settings.learning_rates, training, bench.seed)
    key = f"{name}/{column.lower().replace(' ', '-')}/layers={size[0]},width={size[1]}"
    return _shared_cell(bench, key, measure, {key: settings[key] for key in keys})


def _chosen_network(settings: Settings, bench: Workbench, name: str, dataset: Dataset, column: str) -> float:
    """Choose size and rate by the folds held out, and average the chosen networks on the test part."""
    best = (-1.0, 0.0)
    for size in _sizes(settings):
        results = _network_cell(settings, bench, name, dataset, column, size)
        validated, test = (np.mean(results[part], axis=1) for part in ("validated", "test"))
        best = max(best, (float(validated.max()), float(test[validated.argmax()])), key=lambda each: each[0])
    return best[1]


def _pair_steps(dataset: Dataset) -> int:
    """Say how large a set is to a kernel: pairs of training sequences times steps."""
    return len(dataset.train) ** 2 * len(dataset.train.sequences[0])


def _shared_cell(bench: Workbench, key: str, function: Any, needed: Mapping[str, Any]) -> Any:
    """Compute a cell, or take it over from the other table where the two stand beside each other."""
    code = code_digest(Path(__file__))
    if not bench.remembers(key, depends=needed, code=code):
        basis = bench.basis(needed, code=code)
        own = CellStore(bench.folder / "cells").path(key, basis)
        for table in TABLES:
            other = CellStore(bench.folder.parent.parent / table / bench.folder.name / "cells").path(key, basis)
            if other.is_file() and other != own:
                own.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(other, own)
    return bench.cell(key, function, depends=needed, code=code, tests=True)


def _part(dataset: Dataset, settings: Settings) -> Dataset:
    """Keep the first sequences of each part where a protocol says so; 0 keeps all."""
    assert dataset.test is not None
    train, test = (
        part.take(np.arange(min(most, len(part)))) if most else part
        for part, most in ((dataset.train, settings.most_train), (dataset.test, settings.most_test))
    )
    return Dataset(name=dataset.name, train=train, test=test, description=dataset.description, origin=dataset.origin)


def paper_rows() -> Rows:
    """Read the paper's Table 2 from the experiment's ``[expected]``: the value is RNTK's, the remark has the rest.

    >>> paper_rows()["Coffee"]["RBF"]
    92.86
    """
    rows: Rows = {}
    for name, entry in find("alemohammad2021/table-2").expected.items():
        if entry.value is not None and ":" not in name:
            rest = {column: float(value) for column, value in _COLUMN.findall(entry.remark)}
            rows[name] = {"RNTK": entry.value, **rest}
    return rows


def compared_rows() -> Rows:
    """Return the paper's rows without the one whose kernels are of another set: multiples of 1/154, not of 1/291.

    >>> len(paper_rows()) - len(compared_rows())
    1
    """
    return {name: row for name, row in paper_rows().items() if name != OF_ANOTHER_SET}


def matrix(rows: Rows, names: Sequence[str], columns: Sequence[str]) -> Float64[np.ndarray, "set column"]:
    """Lay rows out, set by column."""
    return np.array([[rows[name][column] for column in columns] for name in names])


def measures(values: Float64[np.ndarray, "set column"]) -> Float64[np.ndarray, "measure column"]:
    """Return `MEASURES` of every column (alemohammad2021, eqs. (21)–(23)); ties share the best rank, as there.

    >>> measures(np.array([[100.0, 90.0], [50.0, 60.0]])).round(2).tolist()
    [[75.0, 75.0], [50.0, 100.0], [50.0, 50.0], [91.67, 95.0], [1.5, 1.5]]
    """
    share = values / values.max(axis=1, keepdims=True)
    ranks = 1 + (values[:, None, :] > values[:, :, None]).sum(axis=2)
    near = [100 * (share >= part - 1e-12).mean(axis=0) for part in (0.9, 0.95)]
    return np.stack([values.mean(axis=0), *near, 100 * share.mean(axis=0), ranks.mean(axis=0)])


def compare_means(bench: Workbench, rows: Rows, paper: Rows) -> None:
    """Report, for each column, the mean of ours minus the paper's over the sets that were run."""
    for column in COLUMNS:
        names = [name for name in rows if column in rows[name] and name in paper]
        differences = [rows[name][column] - paper[name][column] for name in names]
        name = f"{column}: mean accuracy against the paper's on the same sets"
        if differences:
            bench.number(name, float(np.mean(differences)))
        else:
            leave_out(bench, name)


def compare_wide(bench: Workbench, wide: Rows, paper: Rows) -> None:
    """Report, for each wider choice of the RNTK, the mean minus the paper's RNTK over the sets that were run."""
    known = [each for each in wide if each in paper]
    for column in WIDE_RECURRENT:
        name = f"{column}: mean accuracy against the paper's RNTK on the same sets"
        if known:
            bench.number(name, float(np.mean([wide[each][column] - paper[each]["RNTK"] for each in known])))
        else:
            leave_out(bench, name)


def leave_out(bench: Workbench, name: str, verdict: str = "not compared") -> None:
    """Say of an entry that this protocol does not measure it."""
    bench.numbers[name] = bench.experiment.expected[name].number(verdict)

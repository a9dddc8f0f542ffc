"""One setting of a recipe taken through a list of values, everything else held: each value trained and tested."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sostenuto.data.dataset import Dataset
from sostenuto.experiments.tasks.contest import candidates
from sostenuto.experiments.tasks.recipe import Recipe, with_seed
from sostenuto.experiments.tasks.trained_cells import Probe, scored_cell, train_cell
from sostenuto.experiments.workbench import Workbench
from sostenuto.training.trainer import DivergedError


@dataclass(frozen=True)
class Swept:
    """One value: the history of its training, validation and test accuracy in percent.

    A training whose loss is infinite before it is scored for the first time has no history; it answers nothing, so that
    both accuracies are 0. ``diverged`` also says of a later end that it came early.
    """

    value: float
    history: list[dict[str, Any]]
    validation: float
    test: float
    diverged: bool


def sweep(
    bench: Workbench,
    settings: Mapping[str, Any],
    dataset: Dataset,
    prefix: str,
    part: str = "",
    probe: Probe | None = None,
) -> list[Swept]:
    """Train a classifier at every value listed under ``<prefix>.try.<name>``, in order, and test each once.

    Recipes are read as for `sostenuto.experiments.tasks.contest.compete`, whose ``part`` this is too; exactly one
    setting is tried. Nothing is chosen, so every value may be tested.
    """
    bench.checksums.setdefault(dataset.name, dataset.train.checksum())
    lead = f"{part}/" if part else ""
    tried = candidates(settings, prefix, part)
    recipes = {f"{lead}{key}": with_seed(recipe, bench.seed) for key, recipe in tried.items()}
    bench.ahead(partial(_trained, bench, key, dataset, recipe, probe) for key, recipe in recipes.items())
    return [_tested(bench, key, dataset, recipe, probe) for key, recipe in recipes.items()]


def _tested(bench: Workbench, key: str, dataset: Dataset, recipe: Recipe, probe: Probe | None) -> Swept:
    record, value = _trained(bench, key, dataset, recipe, probe), float(key.rpartition("=")[2])
    if "lost" in record:
        bench.note(f"{key}: {record['lost']}")
        return Swept(value, [], 0.0, 0.0, True)
    test = scored_cell(bench, key, dataset, recipe)["score"]
    # None where the validation loss was infinite whenever it was asked for.
    validation = 100 * (record["validation"] or 0.0)
    return Swept(value, record["history"], validation, 100 * test, record["diverged"])


def _trained(bench: Workbench, key: str, dataset: Dataset, recipe: Recipe, probe: Probe | None) -> dict[str, Any]:
    """Train, or remember that the training was lost from the start."""
    lost = f"{key}/lost"
    depends = {"recipe": recipe.to_dict(), "data": bench.checksums[dataset.name]}
    if not bench.remembers(lost, depends=depends):
        try:
            return train_cell(bench, key, dataset, recipe, probe=probe)
        except DivergedError as error:
            why = str(error)
            return bench.cell(lost, lambda: {"lost": why}, depends=depends)
    return bench.cell(lost, dict, depends=depends)

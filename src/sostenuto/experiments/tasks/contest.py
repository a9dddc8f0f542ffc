"""Models trained on the same data and set side by side: choose on validation, repeat over seeds, test once."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sostenuto.checks import require
from sostenuto.data.dataset import Dataset
from sostenuto.experiments.tasks.device_training import scored_cell, train_cell
from sostenuto.experiments.tasks.recipe import Recipe, make_recipe, with_seed
from sostenuto.experiments.workbench import Workbench
from sostenuto.report.figures.plot import lines

SHARED, TRIED, LAYER = "all", "try", "option"


@dataclass(frozen=True)
class Trained:
    """What became of one contestant: the recipe chosen; one cell, record, test score and test loss per seed."""

    name: str
    key: str
    cells: dict[str, Recipe]
    records: list[dict[str, Any]]
    scores: list[float]
    losses: list[float]
    is_accuracy: bool

    @property
    def mean(self) -> float:
        """Mean of the test scores over the seeds."""
        return sum(self.scores) / len(self.scores)


def candidates(settings: Mapping[str, Any], prefix: str, part: str = "") -> dict[str, Recipe]:
    """Read the recipes of a contestant from flat settings: ``all.*``, ``<part>.*``, ``<prefix>.*``, both together.

    Later ones prevail; ``<part>.<prefix>.*`` are for that contestant on that data set alone.
    ``<prefix>.try.<name>`` and ``all.try.<name>`` list values to choose from on the validation part; several such lists
    are combined. The key of a recipe names what it tries.

    >>> settings = {"all.layer": "lstm", "small.hidden_size": 4, "small.try.learning_rate": [0.1, 0.2]}
    >>> [(key, one.run.training.learning_rate) for key, one in candidates(settings, "small").items()]
    [('small/learning_rate=0.1', 0.1), ('small/learning_rate=0.2', 0.2)]
    """
    own: dict[str, Any] = {}
    for lead in (SHARED, part, prefix, f"{part}.{prefix}"):
        own |= {key.removeprefix(f"{lead}."): value for key, value in settings.items() if _is_under(key, lead)}
    tried = {key.removeprefix(f"{TRIED}."): own.pop(key) for key in list(own) if key.startswith(f"{TRIED}.")}
    empty = [name for name, values in tried.items() if not values]
    require(not empty, "expected values to choose from", f"got none for {empty}")
    found = {}
    for values in itertools.product(*tried.values()):
        choice = dict(zip(tried, values, strict=True))
        key = "/".join([prefix, *(f"{name}={_told(value)}" for name, value in choice.items())])
        found[key] = make_recipe(own | choice)
    return found


def compete(
    bench: Workbench, settings: Mapping[str, Any], dataset: Dataset, contestants: Mapping[str, str], part: str = ""
) -> dict[str, Trained]:
    """Train every contestant (prefix of its settings → name) and test what validation chose, ``seeds`` times.

    Where one experiment has several data sets, ``part`` names this one: it goes before the keys of the cells, and
    settings under it are for this data set. The page gets a table of the trainings and their validation curves.
    """
    bench.checksums.setdefault(dataset.name, dataset.train.checksum())
    tried = {prefix: candidates(settings, prefix, part) for prefix in contestants}
    lead = f"{part}/" if part else ""
    where = dataset.name if part in dataset.name else f"{dataset.name}, {part}"
    firsts = [_cells(bench, f"{lead}{key}", one, 1) for recipes in tried.values() for key, one in recipes.items()]
    bench.ahead(partial(train_cell, bench, *cell) for cells in firsts for cell in _placed(cells, dataset))
    chosen = {
        prefix: _choice(bench, dataset, tried[prefix], f"{name}, {where}", lead) for prefix, name in contestants.items()
    }
    repeated = {
        prefix: _cells(bench, f"{lead}{key}", tried[prefix][key], settings["seeds"]) for prefix, key in chosen.items()
    }
    bench.ahead(partial(train_cell, bench, *cell) for cells in repeated.values() for cell in _placed(cells, dataset))
    found, rows, curves = {}, [], {}
    for prefix, name in contestants.items():
        trained = _tested(bench, dataset, repeated[prefix], name, chosen[prefix])
        found[prefix] = trained
        for seed, record, score in zip(bench.seeds(settings["seeds"]), trained.records, trained.scores, strict=True):
            told = trained.key.removeprefix(prefix).strip("/") or "–"
            measured = [_percent(trained, value) for value in (record["validation"], score)]
            measured += [record["seconds"], record["steps_per_second"]]
            rows.append((name, told, seed, record["parameters"], record["history"][-1]["epoch"], *measured))
        curves[name] = trained.records[0]["history"]
    columns = ("model", "chosen", "seed", "parameters", "epochs", "validation", "test", "seconds", "steps a second")
    bench.table(f"Trainings on {where}", columns, rows)
    bench.figure(f"Validation, {where}", partial(_draw, curves=curves), caption="One line a model, first seed.")
    return found


def _is_under(key: str, lead: str) -> bool:
    """Whether a setting is of this group itself, and not of a contestant in it."""
    if not key.startswith(f"{lead}."):
        return False
    first, _, more = key.removeprefix(f"{lead}.").partition(".")
    return not more or first in (TRIED, LAYER)


def _choice(bench: Workbench, dataset: Dataset, recipes: Mapping[str, Recipe], name: str, lead: str) -> str:
    """Name the recipe that did best on the validation part; one that diverged before it was scored comes last."""
    first = {
        key: train_cell(bench, *cell)
        for key, recipe in recipes.items()
        for cell in _placed(_cells(bench, f"{lead}{key}", recipe, 1), dataset)
    }
    sign = 1 if _is_classification(dataset) else -1
    scores = {key: -math.inf if one["validation"] is None else sign * one["validation"] for key, one in first.items()}
    chosen = max(scores, key=scores.__getitem__)
    if len(first) > 1:
        tried = ", ".join(f"{key} {sign * score:.4g}" for key, score in scores.items())
        bench.note(f"{name}: chosen on the validation part: {chosen} (of {tried}).")
    return chosen


def _cells(bench: Workbench, key: str, recipe: Recipe, seeds: int) -> dict[str, Recipe]:
    """Name the trainings of a recipe, one per seed: other weights, order and dropout, the same validation part."""
    return {f"{key}/seed={seed}": with_seed(recipe, seed) for seed in bench.seeds(seeds)}


def _placed(cells: Mapping[str, Recipe], dataset: Dataset) -> list[tuple[str, Dataset, Recipe]]:
    return [(key, dataset, recipe) for key, recipe in cells.items()]


def _tested(bench: Workbench, dataset: Dataset, cells: dict[str, Recipe], name: str, key: str) -> Trained:
    records = [train_cell(bench, *cell) for cell in _placed(cells, dataset)]
    diverged = [one for one, record in zip(cells, records, strict=True) if record["diverged"]]
    if diverged:
        bench.note(f"{name}: the loss of {', '.join(diverged)} lost its way; the best weights until then were taken.")
    tested = [scored_cell(bench, *cell) for cell in _placed(cells, dataset)]
    scores, losses = ([one[which] for one in tested] for which in ("score", "loss"))
    return Trained(name, key, cells, records, scores, losses, _is_classification(dataset))


def _is_classification(dataset: Dataset) -> bool:
    return dataset.train.task in ("classification", None)


def _told(value: Any) -> str:
    """Write a tried value as a cell's key can hold it: the numbers of a list are joined by plus signs."""
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def _percent(trained: Trained, value: float | None) -> float | str:
    if value is None:
        return "–"
    return 100 * value if trained.is_accuracy else value


def _draw(axes: Any, *, curves: Mapping[str, list[dict[str, Any]]]) -> None:
    for name, history in curves.items():
        rows = [row for row in history if "validation" in row]
        lines(axes, [row["epoch"] for row in rows], {name: [row["validation"] for row in rows]}, labels=("epoch", ""))
    axes.legend()

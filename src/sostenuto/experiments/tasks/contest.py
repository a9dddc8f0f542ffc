"""Models trained on the same data and set side by side: choose on validation, repeat over seeds, test once."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sostenuto.checks import require
from sostenuto.data.dataset import Dataset
from sostenuto.experiments.expectation import ONE_SEED, STANDARD_ERRORS
from sostenuto.experiments.tasks.recipe import Recipe, in_words, make_recipe, with_seed
from sostenuto.experiments.tasks.trained_cells import scored_cell, train_cell
from sostenuto.experiments.workbench import Workbench
from sostenuto.report.figures.plot import lines

SHARED, TRIED, LAYER, VIEWS = "all", "try", "option", "views"
NO_VIEWS = "this protocol has no views"


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
    tried: int = 1

    @property
    def recipe(self) -> Recipe:
        """The recipe of the first seed."""
        return next(iter(self.cells.values()))

    @property
    def words(self) -> str:
        """What the training does, in words."""
        chosen = f"; the best of {self.tried} settings on the validation part" if self.tried > 1 else ""
        return in_words(self.recipe) + chosen

    @property
    def error(self) -> float:
        """Standard error of the mean; with one seed it is not known, and infinite."""
        return standard_error(self.scores)

    @property
    def mean(self) -> float:
        """Mean of the test scores over the seeds."""
        return sum(self.scores) / len(self.scores)


def candidates(settings: Mapping[str, Any], prefix: str, part: str = "") -> dict[str, Recipe]:
    """Read the recipes of a contestant from flat settings: ``all.*``, ``<part>.*``, ``<prefix>.*``, both together.

    Later ones prevail; ``<part>.<prefix>.*`` are for that contestant on that data set alone. A twin (`with_views`) has
    its contestant's settings and then ``views.*``, ``<part>.views.*`` and its own.
    ``<prefix>.try.<name>`` and ``all.try.<name>`` list values to choose from on the validation part; several such lists
    are combined. The key of a recipe names what it tries.

    >>> settings = {"all.layer": "lstm", "small.hidden_size": 4, "small.try.learning_rate": [0.1, 0.2]}
    >>> [(key, one.run.training.learning_rate) for key, one in candidates(settings, "small").items()]
    [('small/learning_rate=0.1', 0.1), ('small/learning_rate=0.2', 0.2)]
    """
    own: dict[str, Any] = {}
    twin = prefix.removesuffix(f"_{VIEWS}")
    viewed = (VIEWS, f"{part}.{VIEWS}", prefix, f"{part}.{prefix}") if twin != prefix else ()
    for lead in (SHARED, part, twin, f"{part}.{twin}", *viewed):
        own |= {key.removeprefix(f"{lead}."): value for key, value in settings.items() if _is_under(key, lead)}
    tried = {key.removeprefix(f"{TRIED}."): own.pop(key) for key in list(own) if key.startswith(f"{TRIED}.")}
    empty = [name for name, values in tried.items() if not values]
    require(not empty, "expected values to choose from", f"got none for {empty}")
    results = {}
    for values in itertools.product(*tried.values()):
        choice = dict(zip(tried, values, strict=True))
        key = "/".join([prefix, *(f"{name}={_told(value)}" for name, value in choice.items())])
        results[key] = make_recipe(own | choice)
    return results


def compete(
    bench: Workbench, settings: Mapping[str, Any], dataset: Dataset, contestants: Mapping[str, str], part: str = ""
) -> dict[str, Trained]:
    """Train every contestant (prefix of its settings → name) and test what validation chose, ``seeds`` times.

    Where one experiment has several data sets, ``part`` names this one: it prefixes the keys of the cells, and
    settings under it are for this data set. The page gets a table of the trainings and their validation curves.
    """
    bench.checksums.setdefault(dataset.name, dataset.train.checksum())
    tried = {prefix: candidates(settings, prefix, part) for prefix in contestants}
    lead = f"{part}/" if part else ""
    where = dataset.name if part in dataset.name else f"{dataset.name}, {part}"
    firsts = [_cells(bench, f"{lead}{key}", recipe, 1) for recipes in tried.values() for key, recipe in recipes.items()]
    bench.ahead(partial(train_cell, bench, *cell) for cells in firsts for cell in _placed(cells, dataset))
    chosen = {
        prefix: _choice(bench, dataset, tried[prefix], f"{name}, {where}", lead) for prefix, name in contestants.items()
    }
    repeated = {
        prefix: _cells(bench, f"{lead}{key}", tried[prefix][key], settings["seeds"]) for prefix, key in chosen.items()
    }
    bench.ahead(partial(train_cell, bench, *cell) for cells in repeated.values() for cell in _placed(cells, dataset))
    results, rows, curves = {}, [], {}
    for prefix, name in contestants.items():
        trained = replace(_tested(bench, dataset, repeated[prefix], name, chosen[prefix]), tried=len(tried[prefix]))
        results[prefix] = trained
        for seed, record, score in zip(bench.seeds(settings["seeds"]), trained.records, trained.scores, strict=True):
            told = trained.key.removeprefix(prefix).strip("/") or "–"
            measured = [_percent(trained, value) for value in (record["validation"], score)]
            measured += [record["seconds"], record["steps_per_second"]]
            rows.append((name, told, seed, record["parameters"], record["history"][-1]["epoch"], *measured))
        curves[name] = trained.records[0]["history"]
    columns = ("model", "chosen", "seed", "parameters", "epochs", "validation", "test", "seconds", "steps a second")
    bench.table(f"Trainings on {where}", columns, rows)
    bench.figure(f"Validation, {where}", partial(_draw, curves=curves), caption="One line a model, first seed.")
    return results


def with_views(names: Mapping[str, str]) -> dict[str, str]:
    """Name the twins of contestants, trained the same but for the views they are given of training images.

    >>> with_views({"lstm": "LSTM, 128 units"})
    {'lstm_views': 'LSTM, 128 units, with views'}
    """
    return {f"{prefix}_{VIEWS}": f"{name}, with views" for prefix, name in names.items()}


def report(bench: Workbench, name: str, trained: Trained) -> None:
    """Put the test scores of a contestant, in percent where they are accuracies, beside the paper's entry ``name``."""
    scale = 100 if trained.is_accuracy else 1
    bench.number(name, [scale * score for score in trained.scores], recipe=trained.words)


def report_all(bench: Workbench, results: Mapping[str, Trained], names: Mapping[str, str], *, after: str = "") -> None:
    """Report every contestant as ``<its name><after>``; a twin with views that this protocol has not is left out."""
    for prefix, name in names.items():
        if prefix in results:
            report(bench, f"{name}{after}", results[prefix])
        else:
            bench.skip(f"{name}{after}", NO_VIEWS)


def judge_lead(
    bench: Workbench, name: str, pairs: Sequence[tuple[Trained, Trained]], evidence: str, *, margin: float = 0.0
) -> None:
    """Judge the law ``name``: the first of each pair is ahead of the second by more than ``margin``.

    It is not judged where a second had fewer epochs, settings to choose from or views than the first, and undecided
    where a difference is within two standard errors, which with one seed it always is.
    """
    unfair = [said for first, second in pairs for said in [less_budget(first, second)] if said]
    gaps = [_lead(first, second) - margin for first, second in pairs]
    doubts = [unsure(gap, [key.error for key in pair]) for gap, pair in zip(gaps, pairs, strict=True)]
    lost = any(gap < 0 and not doubt for gap, doubt in zip(gaps, doubts, strict=True))
    undecided = "" if lost else next((doubt for doubt in doubts if doubt), "")
    bench.law(name, not lost, evidence, undecided=undecided, not_judged="; ".join(dict.fromkeys(unfair)))


def less_budget(first: Trained, second: Trained) -> str:
    """Say what the second contestant had less of than the first; nothing where the comparison is fair."""
    ours, theirs = (item.recipe.run.training.epochs for item in (first, second))
    said = [f"{second.name} had {theirs} epochs, {first.name} {ours}"] if theirs < ours else []
    if second.tried < first.tried:
        said.append(f"{second.name} had {second.tried} settings to choose from, {first.name} {first.tried}")
    if first.recipe.variation.views and not second.recipe.variation.views:
        said.append(f"{first.name} was trained with views, {second.name} without")
    return ", ".join(said)


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean; of one value it is not known, and infinite.

    >>> standard_error([1.0, 2.0, 3.0]) * 3**0.5, standard_error([1.0])
    (1.0, inf)
    """
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def unsure(gap: float, errors: Sequence[float]) -> str:
    """Say why a difference of means decides nothing, where it does not: one seed, or two standard errors.

    >>> unsure(1.0, [0.1, 0.1]), unsure(1.0, [0.5, 0.5]), unsure(1.0, [math.inf])
    ('', 'within two standard errors', 'one seed')
    """
    error = math.hypot(*errors)
    if math.isinf(error):
        return ONE_SEED
    return "within two standard errors" if abs(gap) <= STANDARD_ERRORS * error else ""


def _lead(first: Trained, second: Trained) -> float:
    gap = first.mean - second.mean
    return gap if first.is_accuracy else -gap


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
    scores = {
        key: -math.inf if number["validation"] is None else sign * number["validation"] for key, number in first.items()
    }
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
    diverged = [cell for cell, record in zip(cells, records, strict=True) if record["diverged"]]
    if diverged:
        bench.note(f"{name}: the loss of {', '.join(diverged)} lost its way; the best weights until then were taken.")
    tested = [scored_cell(bench, *cell) for cell in _placed(cells, dataset)]
    scores, losses = ([cell[which] for cell in tested] for which in ("score", "loss"))
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

"""What `sostenuto fit` chooses when no model is named, beside each of its candidates fitted by itself.

Real sets of small and middle size with the archive's own training and test parts, default settings, one seed. A choice
sees the training part alone and takes at most ``budget`` seconds of the processor, as many machines share one; then
every candidate is fitted on the whole training part and scored on the test part, by accuracy, or by R² where the
targets are numbers. Settings of the choice were fixed on `CHOSEN_ON`; the other sets were looked at once. The best
candidate of a set is known in hindsight only, from the test part: no choice can know it.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from sostenuto import datasets
from sostenuto.data.config import DataConfig
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.estimators.runs import Conditions, model_of
from sostenuto.estimators.runs.choice import candidate_configs, choose_model, kernel_seconds
from sostenuto.training.config import RunConfig

TITLE = "The model that sostenuto fit chooses within 60 s, beside each candidate fitted by itself"
JOINED = "joined/Epilepsy"
"""A target per step: two sequences of Epilepsy one after the other, and at every step the activity at hand."""
CHOSEN_ON = (
    "uea/AtrialFibrillation", "ucr/PickupGestureWiimoteZ", "ucr/ArrowHead", "ucr/SmoothSubspace", "ucr/UMD",
    "uea/RacketSports", "tser/Tecator", "digits/noise-padded", "ucr/Beef", "ucr/SyntheticControl",
)  # fmt: skip
OTHERS = (
    "uea/StandWalkJump", "uea/PenDigits", "tser/CardanoSentiment", "tser/Covid3Month", JOINED, "ucr/Lightning7",
    "ucr/MiddlePhalanxTW", "ucr/Meat", "ucr/FacesUCR", "uea/Epilepsy", "ucr/PLAID",
)  # fmt: skip
BUDGET = 60.0
MOST_SECONDS = 300.0
"""A kernel machine that would take longer is not fitted in hindsight either."""


def run(
    progress: bool = True,
    sets: tuple[str, ...] = (*CHOSEN_ON, *OTHERS),
    budget: float = BUDGET,
    data_dir: str | None = None,
) -> dict[str, Any]:
    """Return, for every set, the choice, its time and the candidates' accuracies, and the means of both groups."""
    results = {}
    for name in tqdm(sets, desc="default choice", unit="set", disable=not progress):
        results[name] = measured(_load(name, data_dir), budget)
    groups = {"chosen_on": CHOSEN_ON, "others": OTHERS, "all": tuple(sets)}
    means = {group: summary([results[name] for name in names if name in results]) for group, names in groups.items()}
    return {"budget": budget, "chosen_on": list(CHOSEN_ON), "sets": results, "mean": means}


def _load(name: str, data_dir: str | None) -> Dataset:
    if name != JOINED:
        return datasets.load(name, data_dir=data_dir)
    whole = datasets.load("uea/Epilepsy", data_dir=data_dir)
    assert whole.test is not None
    return Dataset(JOINED, _joined(whole.train), _joined(whole.test))


def _joined(part: SequenceSet) -> SequenceSet:
    """Join every sequence to one drawn at random, with the class of the one at hand at every step."""
    after = np.random.default_rng(0).permutation(len(part))
    pairs = [(row, int(other)) for row, other in enumerate(after)]
    labels = np.asarray(part.targets)
    return SequenceSet(
        [np.concatenate([part.sequences[each] for each in pair]) for pair in pairs],
        [np.concatenate([np.repeat(labels[each], len(part.sequences[each])) for each in pair]) for pair in pairs],
        "sequence",
    )


def measured(dataset: Dataset, budget: float) -> dict[str, Any]:
    """Choose within the budget, then fit every candidate and score it on the test part."""
    data = DataConfig(validation=0.0)
    began = time.process_time()
    choice = choose_model(dataset, data, budget=budget, clock=time.process_time)
    row: dict[str, Any] = {"chosen": choice.name, "seconds": round(time.process_time() - began, 1), "candidates": {}}
    encoding = Encoding.fit(dataset.train, scaling=data.scaling, missing=data.missing)
    configs = candidate_configs(dataset, data)
    for tried in choice.candidates:
        left_out = (
            tried.name == "rntk"
            and tried.score is None
            and kernel_seconds(encoding, dataset.train, time.process_time) > MOST_SECONDS
        )
        accuracy, seconds = (None, None) if left_out else _fitted(dataset, configs[tried.name])
        row["candidates"][tried.name] = {
            "unseen": tried.score, "lead": tried.lead, "standard_error": tried.standard_error, "note": tried.note,
            "accuracy": accuracy, "seconds": seconds,
        }  # fmt: skip
    accuracies = {
        name: candidate["accuracy"]
        for name, candidate in row["candidates"].items()
        if candidate["accuracy"] is not None
    }
    best = max(accuracies, key=lambda name: accuracies[name])
    # A network that the budget cuts short is not that of the whole recipe.
    whole = choice.config == configs[choice.name]
    accuracy = accuracies[choice.name] if whole else _fitted(dataset, choice.config)[0]
    return row | {"accuracy": accuracy, "best": best, "best_accuracy": accuracies[best]}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Average over sets: the choice, each model, None where it was not fitted everywhere, and the best of each set.

    >>> tried = {"a": {"accuracy": 0.5}, "b": {"accuracy": 0.75}}
    >>> row = {"accuracy": 0.5, "best_accuracy": 0.75, "seconds": 2.0, "candidates": tried}
    >>> summary([row])
    {'choice': 0.5, 'a': 0.5, 'b': 0.75, 'best_in_hindsight': 0.75, 'seconds': 2.0, 'most_seconds': 2.0, 'sets': 1}
    """
    if not rows:
        return {"sets": 0}
    means: dict[str, Any] = {"choice": float(np.mean([row["accuracy"] for row in rows]))}
    for name in dict.fromkeys(name for row in rows for name in row["candidates"]):
        accuracies = [row["candidates"].get(name, {}).get("accuracy") for row in rows]
        means[name] = None if None in accuracies else float(np.mean(accuracies))
    seconds = [row["seconds"] for row in rows]
    return means | {
        "best_in_hindsight": float(np.mean([row["best_accuracy"] for row in rows])),
        "seconds": float(np.mean(seconds)),
        "most_seconds": max(seconds),
        "sets": len(rows),
    }


def _fitted(dataset: Dataset, config: RunConfig) -> tuple[float, float]:
    """Fit one candidate as the command line would; return its accuracy or R² on the test part, and the seconds."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        fitted = model_of(config.model.layer).fit(dataset, config, Path(folder), Conditions(progress=False))
    assert fitted is not None
    assert fitted.result is not None
    numbers = fitted.result.regression
    score = fitted.result.score if numbers is None else numbers.r2
    return score, round(time.process_time() - began, 1)

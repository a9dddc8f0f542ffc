"""Trainings of UnICORNN that the figures of rusch2021 share, and the small data that stand in for theirs."""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.experiments.tasks.recipe import Recipe, VariationConfig, make_recipe
from sostenuto.experiments.tasks.trained_cells import scored_cell, train_cell
from sostenuto.experiments.workbench import Workbench
from sostenuto.training.config import DataConfig, TrainingConfig

_MODEL = ("hidden_size", "num_layers", "step_size", "stiffness", "dropout", "skip", "learn_step", "readout_dropout")
_KNOWN = {*_MODEL, "tf32"} | {
    field.name for kind in (DataConfig, TrainingConfig, VariationConfig) for field in fields(kind)
}
NOISY_DIGITS = "digits/noise-padded"
"""The embedded digits, eight rows of eight pixels and then noise: the stand-in of noise-padded CIFAR-10."""


def oscillator_recipe(settings: Mapping[str, Any], *, seed: int = 0, **changes: Any) -> Recipe:
    """Build a training of UnICORNN from flat settings; what a training does not know is left out.

    >>> recipe = oscillator_recipe({"hidden_size": 8, "epochs": 2, "lengths": [3]}, step_size=0.5)
    >>> recipe.run.model.options, recipe.run.training.epochs
    ({'hidden_size': 8, 'step_size': 0.5}, 2)
    """
    known = {name: value for name, value in {**settings, **changes}.items() if name in _KNOWN}
    return make_recipe({"layer": "unicornn", **known, "seed": seed})


def accuracies(
    bench: Workbench, settings: Mapping[str, Any], points: Mapping[str, tuple[Dataset, dict[str, Any]]]
) -> dict[str, list[float]]:
    """Train at every point of a study with every seed, and give the test scores of each in percent.

    ``points`` are data and changes of the settings by the key of their cells. The weights are those of the best
    validation score.
    """
    trainings = {
        (key, seed): (f"{key}/seed={seed}", data, oscillator_recipe(settings, seed=seed, **changes))
        for key, (data, changes) in points.items()
        for seed in bench.seeds(settings["seeds"])
    }
    for data, _ in points.values():
        bench.checksums.setdefault(data.name, data.train.checksum())
    bench.ahead(partial(train_cell, bench, *training) for training in trainings.values())
    scores: dict[str, list[float]] = {key: [] for key in points}
    for (key, _), training in trainings.items():
        train_cell(bench, *training)
        scores[key].append(100 * scored_cell(bench, *training)["score"])
    return scores


def images_before_noise(bench: Workbench, name: str) -> Dataset:
    """Load CIFAR-10 row by row, or its stand-in, the embedded digits; the training appends the noise."""
    if name != NOISY_DIGITS:
        return bench.data(name)
    digits = bench.data("digits")

    def rows(part: SequenceSet | None) -> SequenceSet | None:
        return (
            None if part is None else replace(part, sequences=[sequence.reshape(8, 8) for sequence in part.sequences])
        )

    train = rows(digits.train)
    assert train is not None
    return replace(digits, name=NOISY_DIGITS, train=train, test=rows(digits.test))


def worms_stand_in(seed: int, *, count: int, num_steps: int) -> Dataset:
    """Draw five classes of six channels whose mark, a slow frequency, is faint and spread over the whole sequence.

    The shape of EigenWorms where ``count`` is 259 and ``num_steps`` 17984: more entries read, more of it is known.
    """
    rng = np.random.default_rng(seed)
    kinds = np.arange(count) % 5
    time = np.arange(num_steps)[None, :, None]
    rates = 2 * np.pi * (1 + kinds)[:, None, None] / 200
    phases = rng.uniform(0, 2 * np.pi, (count, 1, 6))
    values = 0.8 * np.sin(rates * time + phases) + rng.normal(size=(count, num_steps, 6))
    names = np.array([f"type {kind}" for kind in kinds])
    part = SequenceSet(list(values), names, "classification")
    return Dataset("eigenworms/stand-in", part, description="Faint waves in noise, five frequencies.")


def joined(dataset: Dataset) -> Dataset:
    """Put the train and test part together, to be divided anew."""
    if dataset.test is None:
        return dataset
    train, test = dataset.train, dataset.test
    assert isinstance(train.targets, np.ndarray)
    assert isinstance(test.targets, np.ndarray)
    sequences = [*train.sequences, *test.sequences]
    targets = np.concatenate([train.targets, test.targets])
    return replace(dataset, train=replace(train, sequences=sequences, targets=targets), test=None)


def shortened(dataset: Dataset, entries: int, how: str, seed: int = 0) -> Dataset:
    """Keep so many entries of every sequence: the ``"last"``, or a ``"random"`` subset in order."""
    rng = np.random.default_rng(seed)

    def cut(sequence: np.ndarray) -> np.ndarray:
        if entries >= len(sequence):
            return sequence
        if how == "last":
            return sequence[-entries:]
        return sequence[np.sort(rng.choice(len(sequence), entries, replace=False))]

    short = replace(dataset.train, sequences=[cut(sequence) for sequence in dataset.train.sequences])
    return replace(dataset, name=f"{dataset.name}/{how}/{entries}", train=short)

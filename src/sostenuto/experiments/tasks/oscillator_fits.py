"""Trainings of UnICORNN that the figures of paper 002 share, and the small data that stand in for theirs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.sources.noise_padding import NoisePadding
from sostenuto.experiments.tasks.training import fit_cell, score_cell
from sostenuto.experiments.workbench import Workbench
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig

_DATA = ("scaling", "validation", "test_fraction")
_MODEL = ("hidden_size", "num_layers", "step_size", "stiffness", "dropout", "skip", "learn_step")
_TRAINING = (
    "epochs",
    "batch_size",
    "learning_rate",
    "schedule",
    "step_epochs",
    "step_factor",
    "optimizer",
    "gradient_clip",
)
NOISY_DIGITS = "digits/noise-padded"
"""The embedded digits, eight rows of eight pixels and then noise: the stand-in of noise-padded CIFAR-10."""


def oscillator_config(settings: Mapping[str, Any], *, seed: int = 0, **changes: Any) -> RunConfig:
    """Build a run of UnICORNN from flat settings; what a run does not know is left out.

    >>> config = oscillator_config({"hidden_size": 8, "epochs": 2, "lengths": [3]}, step_size=0.5)
    >>> config.model.options, config.training.epochs
    ({'hidden_size': 8, 'step_size': 0.5}, 2)
    """
    values = {**settings, **changes}
    known: dict[str, Any] = {name: tuple(value) if name == "step_epochs" else value for name, value in values.items()}
    return RunConfig(
        data=DataConfig(**{name: known[name] for name in _DATA if name in known}),
        model=ModelConfig(layer="unicornn", options={name: known[name] for name in _MODEL if name in known}),
        training=TrainingConfig(seed=seed, **{name: known[name] for name in _TRAINING if name in known}),
    )


def accuracies(
    bench: Workbench,
    key: str,
    dataset: Dataset,
    settings: Mapping[str, Any],
    *,
    seeds: int,
    **changes: Any,
) -> list[float]:
    """Train with each seed, keep the weights of the best validation score, and give the test scores in percent."""
    scores = []
    for seed in range(seeds):
        config = oscillator_config(settings, seed=bench.seed + seed, **changes)
        name = f"{key}/seed={bench.seed + seed}"
        fit_cell(bench, name, dataset, config)
        scores.append(100 * score_cell(bench, name, dataset, config))
    return scores


def noise_padded(bench: Workbench, name: str, steps: int) -> Dataset:
    """Load noise-padded CIFAR-10, or make its stand-in from the embedded digits: eight rows, then noise."""
    if name != NOISY_DIGITS:
        return bench.data(name)
    digits = bench.data("digits")

    def rows(part: SequenceSet | None) -> SequenceSet | None:
        return None if part is None else replace(part, sequences=[one.reshape(8, 8) for one in part.sequences])

    train = rows(digits.train)
    assert train is not None
    return replace(
        digits, name=NOISY_DIGITS, train=train, test=rows(digits.test), batch_transform=NoisePadding(steps=steps)
    )


def worms_stand_in(seed: int, *, count: int, num_steps: int) -> Dataset:
    """Draw five classes of six channels whose mark, a slow frequency, is faint and spread over the whole sequence.

    The shape of EigenWorms where ``count`` is 259 and ``num_steps`` 17984: more entries read, more of it is known.
    """
    rng = np.random.default_rng(seed)
    kinds = np.arange(count) % 5
    time = np.arange(num_steps)[None, :, None]
    rates = 2 * np.pi * (1 + kinds)[:, None, None] / 200
    phases = rng.uniform(0, 2 * np.pi, (count, 1, 6))
    values = 0.3 * np.sin(rates * time + phases) + rng.normal(size=(count, num_steps, 6))
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

    short = replace(dataset.train, sequences=[cut(one) for one in dataset.train.sequences])
    return replace(dataset, name=f"{dataset.name}/{how}/{entries}", train=short)

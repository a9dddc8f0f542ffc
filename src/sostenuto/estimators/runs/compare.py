"""Networks that are trained beside a model, each within the same time."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from sostenuto.data.dataset import Dataset
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.parts import divide, training_count
from sostenuto.estimators.runs import Conditions
from sostenuto.report.page import render
from sostenuto.results import FitResult
from sostenuto.training import recipes
from sostenuto.training.config import DataConfig, RunConfig
from sostenuto.training.run import fit_parts, run
from sostenuto.training.run_folder import run_folder


def train_compared(
    names: tuple[str, ...], dataset: Dataset, settings: RunConfig, folder: Path, limit: float, conditions: Conditions
) -> list[FitResult]:
    """Train every layer by its recipe on the same parts, into a run folder of its own inside ``folder``.

    There are as many epochs as the recipe asks for, or as few as fit into ``limit`` seconds.
    """
    data = replace(settings.data, validation=DataConfig.validation)
    device, results = conditions.device, []
    for name in names:
        chosen = {"model": {"layer": name}, "training": {"seed": settings.training.seed}}
        config = recipes.run_config(data, dataset.train, training_count(dataset, data), chosen)
        epochs = min(config.training.epochs, max(1, int(limit / _epoch_seconds(dataset, config, device))))
        # The schedule of the learning rate is over these epochs.
        config = replace(config, training=replace(config.training, epochs=epochs))
        with run_folder(folder / name, overwrite=True) as place:
            result = run(dataset, config, place, device=device, progress=conditions.progress)
            if result is not None:
                write_atomically(place / "report.html", render(result))
                results.append(result)
    return results


def _epoch_seconds(dataset: Dataset, config: RunConfig, device: str) -> float:
    """Say how long an epoch takes, from one over a few batches, after one that compiles what has to be."""
    parts = divide(dataset, config.data, seed=config.training.seed)
    few = min(len(parts.train), 4 * config.training.batch_size)
    sample = replace(parts, train=parts.train.take(np.arange(few)), validation=None)
    short = replace(config, training=replace(config.training, epochs=1))
    fit_parts(sample, short, device=device, progress=False)
    seconds = fit_parts(sample, short, device=device, progress=False).progress.seconds
    return seconds * len(parts.train) / few

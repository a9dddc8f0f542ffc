"""The networks that ``sostenuto fit --compare`` trains beside the model, each within the same time."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sostenuto.data.dataset import Dataset
    from sostenuto.results import FitResult
    from sostenuto.training.config import RunConfig


def check_compared(names: list[str]) -> None:
    """Refuse names that are no layer to train."""
    from sostenuto.checks import check_choice
    from sostenuto.nn import LAYERS

    for name in names:
        check_choice("compare", name, LAYERS)


def train_compared(
    names: list[str], dataset: "Dataset", settings: "RunConfig", folder: Path, limit: float, **how: Any
) -> "list[FitResult]":
    """Train every layer by its recipe on the same parts, into a run folder of its own inside ``folder``.

    There are as many epochs as the recipe asks for, or as few as fit into ``limit`` seconds.
    """
    from sostenuto.report.page import save
    from sostenuto.training import recipes
    from sostenuto.training.config import DataConfig
    from sostenuto.training.data import training_count
    from sostenuto.training.run import run
    from sostenuto.training.run_folder import create_folder

    data = replace(settings.data, validation=DataConfig.validation)
    results = []
    for name in names:
        said = {"model": {"layer": name}, "training": {"seed": settings.training.seed}}
        config = recipes.run_config(data, dataset.train, training_count(dataset, data), said)
        epochs = min(config.training.epochs, max(1, int(limit / _epoch_seconds(dataset, config, how["device"]))))
        # The schedule of the learning rate is over these epochs.
        config = replace(config, training=replace(config.training, epochs=epochs))
        result = run(dataset, config, create_folder(folder / name, overwrite=True), **how)
        if result is not None:
            save(result, folder / name / "report.html")
            results.append(result)
    return results


def _epoch_seconds(dataset: "Dataset", config: "RunConfig", device: str) -> float:
    """Say how long an epoch takes, from one over a few batches, after one that compiles what has to be."""
    import numpy as np

    from sostenuto.training.data import divide
    from sostenuto.training.run import fit_parts

    parts = divide(dataset, config.data, seed=config.training.seed)
    few = min(len(parts.train), 4 * config.training.batch_size)
    sample = replace(parts, train=parts.train.take(np.arange(few)), validation=None)
    short = replace(config, training=replace(config.training, epochs=1))
    fit_parts(sample, short, device=device, progress=False)
    seconds = fit_parts(sample, short, device=device, progress=False).progress.seconds
    return seconds * len(parts.train) / few

"""Trainings as cells: what a recipe says, by the library's trainer, with checkpoints, and the test part scored once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sostenuto.checks import require
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import divide
from sostenuto.experiments.tasks.recipe import Recipe
from sostenuto.experiments.tasks.variation import Variation, with_noise_after
from sostenuto.experiments.workbench import Workbench
from sostenuto.models.base import SequenceModel
from sostenuto.training.batches import BatchSource
from sostenuto.training.objective import Objective
from sostenuto.training.run_folder import MODEL, StoredModel, count_parameters, load_model, rebuild, save_model
from sostenuto.training.state import Progress
from sostenuto.training.step import evaluate, matmul_precision
from sostenuto.training.trainer import DivergedError, Trainer

Build = Callable[[Encoding, Recipe, Dataset], SequenceModel]
"""Makes the model of a recipe; `new_model` where none is given."""
Probe = Callable[[SequenceModel], dict[str, float]]
"""Reads numbers off the trained weights."""


@dataclass(frozen=True, eq=False)
class Training:
    """A training of a recipe, ready to run."""

    encoding: Encoding
    model: SequenceModel
    trainer: Trainer

    def run(self) -> Progress:
        """Train to the end; the model holds the selected weights when this returns.

        A loss that becomes infinite ends the training with the best weights until then; with none yet it is an error.
        """
        try:
            return self.trainer.run()
        except DivergedError:
            if self.trainer.state.progress.best_epoch is None:
                raise
            return self.trainer.state.progress


def prepare(
    dataset: Dataset,
    recipe: Recipe,
    device: str,
    folder: Path | None = None,
    *,
    build: Build | None = None,
    probe: Probe | None = None,
    say: Callable[[str], object] = str,
    after_checkpoint: Callable[[], None] | None = None,
) -> Training:
    """Encode the data and build the model of a recipe, and the trainer that goes on where ``folder`` was left.

    ``build`` makes the model where it is not one of the library's layers; what ``after_checkpoint`` raises ends the run
    where it can go on later.
    """
    training, variation = recipe.run.training, recipe.variation
    parts = divide(dataset, recipe.run.data, seed=0)
    vocabulary = dataset.extras.get("vocabulary", ())
    scaling = recipe.run.data.scaling
    encoding = Encoding.fit(parts.train, scaling=scaling, vocabulary_size=len(vocabulary))
    train = encoding.encode(parts.train)
    fits = not (variation.noise_steps and train.is_ragged)
    require(fits, "expected sequences of one length for noise_steps", "got several", "set noise_steps to 0")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        model = (build or new_model)(encoding, recipe, dataset)
    order = dataset.extras.get("order")
    places = None if order is None else torch.as_tensor(order, device=device)
    trainer = Trainer(
        model,
        Objective.of(encoding, training, train),
        training,
        train,
        None if parts.validation is None else encoding.encode(parts.validation),
        folder=folder,
        resume=folder is not None,
        device=device,
        probes={} if probe is None else {"probe": lambda model, _: probe(model)},  # pyright: ignore[reportArgumentType]
        batch_transform=partial(with_noise_after, steps=variation.noise_steps),
        augmentation=Variation(variation, places, len(encoding.classes)),
        after_epoch=lambda row: say(", ".join(f"{name} {value:.5g}" for name, value in row.items())),
        after_checkpoint=after_checkpoint,
        progress=False,
    )
    return Training(encoding, model, trainer)


def train_cell(
    bench: Workbench, key: str, dataset: Dataset, recipe: Recipe, *, probe: Probe | None = None
) -> dict[str, Any]:
    """Train ``recipe``'s model as the cell ``key`` and score it on the validation part alone.

    Returns ``validation`` (accuracy, or root mean square error), ``best_epoch``, ``parameters`` (the embedding left
    out), ``seconds``, ``steps_per_second``, ``history`` and ``diverged``: whether the loss became infinite, upon which
    the best weights until then are taken (with none yet, the error is raised). The weights stay in ``bench.scratch``,
    for `scored_cell` and `trained_model`. The cell depends on the recipe and the data. A checkpoint is written every
    few seconds; past the time limit the run ends after one, to go on later. What ``probe`` finds in the trained weights
    whenever they are scored stands in the rows of ``history``.
    """
    depends = _depends(bench, dataset, recipe)

    def train() -> dict[str, Any]:
        folder = bench.scratch(key, depends=depends)
        say = partial(_say, bench, key)
        training = prepare(
            dataset, recipe, bench.device, folder, probe=probe, say=say, after_checkpoint=bench.check_time
        )
        progress, model = training.run(), training.model
        save_model(folder / MODEL, StoredModel(model.cpu(), training.encoding, recipe.run.model))
        return {
            "validation": None if progress.best_score is None else abs(progress.best_score[0]),
            "best_epoch": progress.best_epoch,
            "parameters": count_parameters(model) - _embedded(model),
            "seconds": progress.seconds,
            "steps_per_second": progress.step / max(progress.seconds, 1e-9),
            "history": [_plain(row) for row in progress.history],
            "diverged": bool(progress.diverged),
        }

    return bench.cell(key, train, depends=depends)


def scored_cell(bench: Workbench, key: str, dataset: Dataset, recipe: Recipe) -> dict[str, float]:
    """Score the weights of the cell ``key`` on the test part, once they are chosen: ``loss`` and ``score``.

    The score is the accuracy, or the root mean square error.
    """
    depends = _depends(bench, dataset, recipe)

    def measure() -> dict[str, float]:
        stored = trained_model(bench, key, dataset, recipe)
        parts = divide(dataset, recipe.run.data, seed=0)
        require(parts.test is not None, f"expected a test part of {dataset.name}", "got none")
        assert parts.test is not None
        loss, metric = score(stored.model, stored.encoding, parts.test, recipe, bench.device)
        return {"loss": loss, "score": metric}

    return bench.cell(f"{key}/test", measure, depends=depends, tests=True)


def trained_model(bench: Workbench, key: str, dataset: Dataset, recipe: Recipe) -> StoredModel:
    """Load what `train_cell` trained."""
    path = bench.scratch(key, depends=_depends(bench, dataset, recipe)) / MODEL
    hint = f"remove the cell {key} to train it again"
    require(path.is_file(), f"expected the weights of the cell {key} in {path}", "found none", hint)
    return load_model(path)


def score(
    model: SequenceModel, encoding: Encoding, part: SequenceSet, recipe: Recipe, device: str
) -> tuple[float, float]:
    """Return the mean loss, and accuracy or root mean square error in the target's unit, of a model on a part."""
    training, data = recipe.run.training, encoding.encode(part)
    noise = partial(with_noise_after, steps=recipe.variation.noise_steps)
    source = BatchSource(
        data, training.evaluation_batch, torch.device(device), transform=noise, borders=training.buckets
    )
    objective = Objective(bool(encoding.classes), encoding.has_step_targets, encoding.target_scale)
    model.packs = not training.graph
    with matmul_precision(training.precision):
        return evaluate(model.to(device), objective, source)


def new_model(encoding: Encoding, recipe: Recipe, dataset: Dataset) -> SequenceModel:
    """Build the model of a recipe, with the data set's word vectors where their size is the recipe's."""
    return rebuild(encoding, recipe.run.model, word_vectors(dataset, recipe))


def word_vectors(dataset: Dataset, recipe: Recipe) -> torch.Tensor | None:
    """Return the word vectors that come with a data set, where their size is the recipe's."""
    vectors = dataset.extras.get("embedding")
    fits = vectors is not None and vectors.shape[1] == recipe.run.model.embedding_size
    return torch.as_tensor(vectors) if fits else None


def _say(bench: Workbench, key: str, text: str) -> None:
    bench.say(f"{key}: {text}")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Name the metric of a row plainly, whichever it is, and what a probe found by its own name."""
    names = {"validation_accuracy": "validation", "validation_rmse": "validation"}
    return {names.get(name, name.removeprefix("probe/")): value for name, value in row.items()}


def _embedded(model: SequenceModel) -> int:
    table = getattr(model, "embedding", None)
    return 0 if table is None else table.weight.numel()


def _depends(bench: Workbench, dataset: Dataset, recipe: Recipe) -> dict[str, Any]:
    known = bench.checksums.get(dataset.name, dataset.name)
    return {"recipe": recipe.to_dict(), "data": known, "steps": sum(map(len, dataset.train.sequences))}

"""A fast training as a cell: data on the device, steps as graphs, checkpoints, and the test part evaluated once."""

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sostenuto.checks import require
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import divide
from sostenuto.experiments.tasks.device_part import DevicePart, epoch_batches
from sostenuto.experiments.tasks.device_step import (
    DeviceStep,
    losses,
    matmul_precision,
    metric_sums,
    predict,
)
from sostenuto.experiments.tasks.recipe import Recipe
from sostenuto.experiments.tasks.variation import with_noise_after
from sostenuto.experiments.workbench import Workbench
from sostenuto.models.base import SequenceModel
from sostenuto.models.build import build_model
from sostenuto.training.checkpoint import Checkpoint, newest_checkpoint, write_checkpoint
from sostenuto.training.optimizers import learning_rate
from sostenuto.training.run_folder import MODEL, StoredModel, count_parameters, load_model, save_model
from sostenuto.training.state import Progress, random_states, set_random_states, snapshot
from sostenuto.training.trainer import DivergedError

Build = Callable[[Encoding, Recipe, Dataset], SequenceModel]
"""Makes the model of a recipe; `new_model` where none is given."""
Probe = Callable[[SequenceModel], dict[str, float]]
"""Reads numbers off the trained weights."""
_NOISE_SEED = 968
"""Noise after the signal is the same whenever a part is scored."""


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
        training = DeviceTraining(
            dataset,
            recipe,
            bench.device,
            folder,
            after_checkpoint=bench.check_time,
            say=lambda text: bench.say(f"{key}: {text}"),
            probe=probe,
        )
        progress = training.run()
        model = training.step.model
        save_model(folder / MODEL, StoredModel(model.cpu(), training.encoding, recipe.run.model))
        return {
            "validation": None if progress.best_score is None else abs(progress.best_score[0]),
            "best_epoch": progress.best_epoch,
            "parameters": count_parameters(model) - _embedded(model),
            "seconds": progress.seconds,
            "steps_per_second": progress.step / max(progress.seconds, 1e-9),
            "history": progress.history,
            "diverged": training.diverged,
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
        loss, metric = score(stored, parts.test, recipe, bench.device)
        return {"loss": loss, "score": metric}

    return bench.cell(f"{key}/test", measure, depends=depends, tests=True)


def trained_model(bench: Workbench, key: str, dataset: Dataset, recipe: Recipe) -> StoredModel:
    """Load what `train_cell` trained."""
    path = bench.scratch(key, depends=_depends(bench, dataset, recipe)) / MODEL
    hint = f"remove the cell {key} to train it again"
    require(path.is_file(), f"expected the weights of the cell {key} in {path}", "found none", hint)
    return load_model(path)


def score(stored: StoredModel, part: SequenceSet, recipe: Recipe, device: str) -> tuple[float, float]:
    """Give the mean loss and the metric of a model on a part."""
    data = DevicePart.of(stored.encoding.encode(part), device)
    return evaluate(stored.model.to(device), stored.encoding, data, recipe)


@torch.no_grad()
def evaluate(model: SequenceModel, encoding: Encoding, data: DevicePart, recipe: Recipe) -> tuple[float, float]:
    """Give the mean loss, and accuracy or root mean square error in the target's unit, batch by batch."""
    model.eval()
    device = data.values.device
    scale = None if encoding.classes else torch.tensor(encoding.target_scale, device=device, dtype=torch.float32)
    generator = torch.Generator(device).manual_seed(_NOISE_SEED)
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    with matmul_precision(recipe.device.tf32):
        for bucket in data.buckets(recipe.device.evaluation_batch, recipe.device.buckets):
            for index in bucket.members.to(device).split(bucket.batch_size):
                drawn = with_noise_after(data.drawn(index, bucket.steps), recipe.device.noise_steps, generator)
                scores = predict(model, drawn)
                sums += torch.stack([losses(scores, drawn).double().sum(), metric_sums(scores, drawn, scale)])
    loss, metric = (sums / len(data)).tolist()
    return loss, metric if encoding.classes else math.sqrt(metric)


@dataclass
class _Best:
    weights: dict[str, Tensor] | None = None


class DeviceTraining:
    """A training from start to end, which goes on where its newest checkpoint left it.

    ``folder`` receives ``checkpoints/``; what ``after_checkpoint`` raises ends the run where it can go on later.
    ``build`` makes the model where it is not one of the library's layers.
    """

    def __init__(
        self,
        dataset: Dataset,
        recipe: Recipe,
        device: str,
        folder: Path | None = None,
        *,
        after_checkpoint: Callable[[], None] | None = None,
        say: Callable[[str], object] = str,
        build: Build | None = None,
        probe: Probe | None = None,
    ) -> None:
        self.recipe, self.folder, self.after_checkpoint = recipe, folder, after_checkpoint
        self.say, self.probe = say, probe
        training = recipe.run.training
        parts = divide(dataset, recipe.run.data, seed=0)
        vocabulary = dataset.extras.get("vocabulary", ())
        self.encoding = Encoding.fit(
            parts.train,
            scaling=recipe.run.data.scaling,  # pyright: ignore[reportArgumentType]
            vocabulary_size=len(vocabulary),
        )
        part = DevicePart.of(self.encoding.encode(parts.train), device, order=dataset.extras.get("order"))
        self.validation = None
        if parts.validation is not None:
            self.validation = DevicePart.of(self.encoding.encode(parts.validation), device)
        torch.manual_seed(training.seed)
        model = (build or new_model)(self.encoding, recipe, dataset).to(device)
        self.buckets = part.buckets(training.batch_size, recipe.device.buckets)
        self.step = DeviceStep(model, recipe, part, self.buckets)
        self.progress, self.best, self.diverged = Progress(), _Best(), False
        self.digest = hashlib.sha256(json.dumps(recipe.to_dict(), sort_keys=True).encode()).hexdigest()

    @property
    def steps_per_epoch(self) -> int:
        """Count the whole batches of an epoch."""
        return sum(len(bucket.members) // bucket.batch_size for bucket in self.buckets)

    def run(self) -> Progress:
        """Train to the end; the model holds the selected weights when this returns."""
        self._resume()
        progress, epochs = self.progress, self.recipe.run.training.epochs
        self._clock = time.perf_counter() - progress.seconds
        self._saved = time.perf_counter()
        with matmul_precision(self.recipe.device.tf32):
            while progress.epoch < epochs and not self.diverged:
                self._train_epoch()
                self._finish_epoch()
                self._save_when_due()
        self._save()
        if self.best.weights is not None:
            self.step.model.load_state_dict(self.best.weights)
        elif self.step.average is not None:
            self.step.model.load_state_dict(self.step.average.tensors)
        self.step.model.eval()
        return progress

    def _train_epoch(self) -> None:
        progress, training = self.progress, self.recipe.run.training
        device = self.step.part.values.device
        batches = epoch_batches(self.buckets, training.seed, progress.epoch)
        # One copy to the device an epoch; what a step needs of it is then a view.
        indices = torch.cat([index for _, index in batches]).to(device).split([len(index) for _, index in batches])
        for (bucket, _), index in list(zip(batches, indices, strict=True))[progress.batch :]:
            rate = learning_rate(training, progress.step, self.steps_per_epoch)
            decay = min(training.ema_decay, (progress.step + 1) / (progress.step + 10))
            self.step.take(bucket, index, rate, 1 - decay)
            progress.step, progress.batch = progress.step + 1, progress.batch + 1
            self._save_when_due()
        progress.epoch, progress.batch = progress.epoch + 1, 0

    def _finish_epoch(self) -> None:
        progress, training = self.progress, self.recipe.run.training
        last = progress.epoch == training.epochs
        if progress.epoch % self.recipe.device.evaluate_every and not last:
            return
        since = progress.step - int(progress.units)
        loss = float(self.step.loss_sum) / max(since, 1)
        self.step.loss_sum.zero_()
        progress.units = float(progress.step)
        if not math.isfinite(loss) and self.best.weights is not None:
            self.diverged = True
            self.say(
                f"the loss is {loss} in epoch {progress.epoch}: ends with the weights of epoch {progress.best_epoch}"
            )
            return
        if not math.isfinite(loss):
            hint = "lower learning_rate, or set gradient_clip"
            raise DivergedError(f"expected a finite loss, got {loss} in epoch {progress.epoch}; {hint}.")
        progress.seconds = time.perf_counter() - self._clock
        row: dict[str, Any] = {"epoch": progress.epoch, "train_loss": loss, "seconds": round(progress.seconds, 2)}
        if self.validation is not None:
            row |= self._validate()
        if self.probe is not None:
            row |= self.probe(self.step.model)
        progress.history.append(row)
        self.say(", ".join(f"{name} {value:.5g}" for name, value in row.items()))

    def _validate(self) -> dict[str, float]:
        assert self.validation is not None
        step, progress, classes = self.step, self.progress, bool(self.encoding.classes)
        trained = snapshot(step.model)
        if step.average is not None:
            step.model.load_state_dict(step.average.tensors)
        loss, metric = evaluate(step.model, self.encoding, self.validation, self.recipe)
        score = [metric if classes else -metric, -loss]
        if math.isfinite(loss) and (progress.best_score is None or score > progress.best_score):
            progress.best_score, progress.best_epoch = score, progress.epoch
            if self.recipe.run.training.select == "best":
                self.best.weights = snapshot(step.model)
        step.model.load_state_dict(trained)
        return {"validation_loss": loss, "validation": metric}

    def _save_when_due(self) -> None:
        late = time.perf_counter() - self._saved > self.recipe.run.training.checkpoint_seconds
        if late and self.folder is not None:
            self._save()
            if self.after_checkpoint is not None:
                self.after_checkpoint()

    def _save(self) -> None:
        if self.folder is None:
            return
        progress = self.progress
        tensors = {**self.step.tensors()}
        tensors |= {f"best/{name}": value for name, value in (self.best.weights or {}).items()}
        tensors |= {f"random/{number}": state for number, state in enumerate(random_states())}
        progress.seconds = time.perf_counter() - self._clock
        values = {"recipe": self.digest, "progress": vars(progress)}
        write_checkpoint(self.folder / "checkpoints", Checkpoint(tensors, values), progress.epoch, progress.batch)
        self._saved = time.perf_counter()

    def _resume(self) -> None:
        found = newest_checkpoint(self.folder / "checkpoints") if self.folder is not None else None
        if found is None:
            return
        hint = "give another --out"
        same = found.values["recipe"] == self.digest
        require(same, f"{self.folder}: expected a checkpoint of this recipe", "got another's", hint)
        self.step.restore(found.tensors)
        self.progress = Progress(**found.values["progress"])
        device = self.step.part.values.device
        best = {
            name.removeprefix("best/"): value.to(device)
            for name, value in found.tensors.items()
            if name.startswith("best/")
        }
        self.best.weights = best or None
        states = sorted(name for name in found.tensors if name.startswith("random/"))
        set_random_states([found.tensors[name] for name in states])
        self.say(f"goes on at epoch {self.progress.epoch}, step {self.progress.step}")


def new_model(encoding: Encoding, recipe: Recipe, dataset: Dataset) -> SequenceModel:
    """Build the model of a recipe, with the data set's word vectors where their size is the recipe's."""
    model = recipe.run.model
    vectors = dataset.extras.get("embedding")
    fits = vectors is not None and vectors.shape[1] == model.embedding_size
    return build_model(
        encoding,
        model.layer,
        readout=model.readout,  # pyright: ignore[reportArgumentType]
        embedding_size=model.embedding_size,
        embedding_dropout=model.embedding_dropout,
        embedding=torch.as_tensor(vectors) if fits else None,
        **model.options,
    )


def _embedded(model: SequenceModel) -> int:
    table = getattr(model, "embedding", None)
    return 0 if table is None else table.weight.numel()


def _depends(bench: Workbench, dataset: Dataset, recipe: Recipe) -> dict[str, Any]:
    known = bench.checksums.get(dataset.name, dataset.name)
    return {"recipe": recipe.to_dict(), "data": known, "steps": sum(map(len, dataset.train.sequences))}

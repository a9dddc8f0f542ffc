"""The training loop."""

import hashlib
import json
import math
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from tqdm import tqdm

from sostenuto.checks import InputError, SostenutoError, Stopped, require
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import BatchTransform
from sostenuto.data.files.atomic import write_atomically
from sostenuto.models.base import SequenceModel
from sostenuto.training.batches import BatchSource
from sostenuto.training.checkpoint import Checkpoint, newest_checkpoint, write_checkpoint
from sostenuto.training.config import TrainingConfig
from sostenuto.training.objective import Objective
from sostenuto.training.optimizers import learning_rate, make_optimizer, set_learning_rate
from sostenuto.training.probes import Probe
from sostenuto.training.processes import gc_frozen, make_accelerator, signals_noted, unwrap
from sostenuto.training.state import (
    Progress,
    TrainingState,
    WeightAverage,
    random_numbers,
    random_states,
    set_random_states,
    snapshot,
)
from sostenuto.training.step import GraphStep, Penalty, Step, evaluate, matmul_precision

CLOCK_BATCHES = 16
EPOCH_SECONDS = 1.0
"""After an epoch that ends sooner than this since the last checkpoint, none is written; after the last one always."""


DIVERGED = 1e4
"""A loss that grows past this has diverged: targets are classes, or numbers of unit variance."""


class DivergedError(SostenutoError):
    """The loss or the weights became NaN or infinite, or the loss grows far beyond what a constant answer has."""


class Trainer:
    """Fit a model to a batch of sequences, on any device, in any number of processes, with exact resumption.

    ``folder`` receives ``metrics.jsonl`` and ``checkpoints/``; without it nothing is written. With ``resume`` the
    newest whole checkpoint there is taken up; its settings must be these, or with ``retrain`` its model and data alone.
    Every process of an ``accelerate launch`` builds its own Trainer. ``batch_transform`` is applied to every batch,
    ``augmentation`` to those of the training in its place. On CUDA ``config.graph`` records the whole step once.
    ``after_epoch`` gets each row of the log. ``after_checkpoint`` is called whenever one was written: what it raises
    ends the run where it can be resumed.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        config: TrainingConfig,
        train: SequenceBatch,
        validation: SequenceBatch | None = None,
        *,
        folder: Path | None = None,
        resume: bool = False,
        retrain: bool = False,
        device: str = "auto",
        probes: dict[str, Probe] | None = None,
        batch_transform: BatchTransform | None = None,
        augmentation: BatchTransform | None = None,
        after_epoch: Callable[[dict[str, Any]], object] | None = None,
        after_checkpoint: Callable[[], None] | None = None,
        progress: bool = True,
    ) -> None:
        self.objective, self.config, self.folder = objective, config, folder
        self.probes, self.shows_progress = probes or {}, progress
        self.after_epoch, self.after_checkpoint = after_epoch, after_checkpoint
        self.accelerator = make_accelerator(device, config.precision)
        self.plain_model = model.to(self.accelerator.device)
        records = config.graph and self.accelerator.device.type == "cuda"
        if config.gradient_window or config.graph:
            expected = "expected a SequenceModel for gradient_window and graph"
            require(isinstance(model, SequenceModel), expected, f"got {type(model)}")
            model.gradient_window = config.gradient_window or None  # pyright: ignore[reportArgumentType]
            model.packs = not config.graph  # pyright: ignore[reportArgumentType]
        # Accelerate would wrap the optimizer, the backward pass and the clipping for scaled losses and sharded weights,
        # which are not used here, at a third of a millisecond a step.
        optimizer = make_optimizer(self.plain_model, config, graph=records)
        self.model = self.accelerator.prepare(self.plain_model)
        options: dict[str, Any] = {"drop_last": config.drop_last, "on_device": records}
        options["pads_to_bucket"] = bool(config.gradient_window)
        self.train_source = self._source(train, config.batch_size, augmentation or batch_transform, **options)
        self.validation_source = None
        if validation is not None:
            self.validation_source = self._source(validation, config.evaluation_batch, batch_transform)
        average = WeightAverage(self.plain_model, config.ema_decay) if config.ema_decay else None
        self.state = TrainingState(self.plain_model, optimizer, average, Progress())
        step = GraphStep if records else Step
        penalty = _penalty(config, self.plain_model)
        self.step = step(self.model, self.state, objective, config, self.train_source, self.accelerator, penalty)
        self.material = _digest(self.plain_model, train, validation)
        self.digest = _settings_digest(config, self.material)
        self._signals: list[int] = []
        self._resumes, self._retrains = resume, retrain

    def run(self) -> Progress:
        """Train to the end; the model holds the selected weights when this returns.

        A training that diverges ends with a `DivergedError`. The model then holds the best weights of the epochs before
        (the last finite ones where none was scored), and ``state.progress`` says so.
        """
        diverged = None
        with random_numbers(self.config.seed + 7919 * self.accelerator.process_index, self.accelerator.device):
            if self._resumes:
                self._resume()
            self._rewrite_log()
            noting = signals_noted() if self.folder is not None else nullcontext([])
            with gc_frozen(), matmul_precision(self.config.precision), noting as self._signals:
                try:
                    self._epochs()
                except DivergedError as error:
                    diverged = error
                    self._give_up(str(error))
        unwrap(self.plain_model)
        if self.state.best is not None:
            self.plain_model.load_state_dict(self.state.best)
        elif self.state.average is not None:
            self.plain_model.load_state_dict(self.state.average.tensors)
        self.plain_model.eval()
        if diverged is not None:
            raise diverged
        return self.state.progress

    def _give_up(self, why: str) -> None:
        """Go back to the weights before the divergence and end the training there."""
        progress = self.state.progress
        progress.diverged, progress.finished = why, True
        self.state.best = self.state.best or self._finite
        self.plain_model.load_state_dict(self.state.best)
        self.step.loss_sum.zero_()
        progress.loss_sum = 0.0
        self._save()

    def _epochs(self) -> None:
        progress = self.state.progress
        main = self.accelerator.is_main_process
        bar = tqdm(
            total=self.config.epochs,
            initial=progress.epoch,
            desc="training",
            unit="epoch",
            disable=not (self.shows_progress and main),
        )
        self._clock = time.perf_counter() - progress.seconds
        self._last_checkpoint = time.perf_counter()
        self._finite = snapshot(self.plain_model)
        with bar:
            while not progress.finished:
                self._train_epoch()
                row = self._finish_epoch() if self._epoch_is_scored() else {}
                bar.update()
                bar.set_postfix({name: f"{row[name]:.4g}" for name in ("train_loss", self._metric_key) if name in row})
                if progress.finished or self._epoch_is_worth_keeping():
                    self._save()

    def _epoch_is_scored(self) -> bool:
        epoch = self.state.progress.epoch
        return epoch >= self.config.epochs or epoch % self.config.evaluate_every == 0

    def _train_epoch(self) -> None:
        progress, step = self.state.progress, self.step
        self.model.train()
        for take, whole in step.epoch(progress.epoch, progress.batch):
            set_learning_rate(self.state.optimizer, learning_rate(self.config, progress.step, len(self.train_source)))
            if self.state.average is not None:
                self.state.average.advance()
            take()
            progress.units += step.units(whole)
            progress.step, progress.batch = progress.step + 1, progress.batch + 1
            if self._checkpoint_is_due():
                self._save()
            if self._signals:
                self._stop()
        progress.epoch, progress.batch = progress.epoch + 1, 0

    def _stop(self) -> None:
        """End where a signal asks for it, with a checkpoint unless other processes would have to take part in it."""
        kept = "the last checkpoint is kept"
        if self.accelerator.num_processes == 1:
            self._save()
            kept = "a checkpoint was written"
        name = signal.Signals(self._signals[0]).name
        reached = f"stopped by {name} in epoch {self.state.progress.epoch + 1}; {kept}"
        raise Stopped(f"{reached}, and sostenuto fit --resume {self.folder} continues from there.", self._signals[0])

    def _finish_epoch(self) -> dict[str, Any]:
        progress, config = self.state.progress, self.config
        rate = learning_rate(config, progress.step - 1, len(self.train_source))
        self._collect_loss()
        row: dict[str, Any] = {"epoch": progress.epoch, "train_loss": progress.loss_sum / progress.units}
        self._check_convergence(row["train_loss"])
        progress.loss_sum = progress.units = 0.0
        weights = self.state.average.in_place(self.plain_model) if self.state.average is not None else nullcontext()
        with weights:
            if self.validation_source is not None:
                loss, metric = self._evaluate(self.validation_source)
                row |= {"validation_loss": loss, self._metric_key: metric}
                self._keep_best(loss, metric)
            if self.state.best is None:
                self._finite = snapshot(self.plain_model)
            for name, probe in self.probes.items():
                row |= {f"{name}/{key}": float(value) for key, value in probe(self.plain_model, progress.epoch).items()}
        progress.seconds = time.perf_counter() - self._clock
        row |= {"learning_rate": rate, "seconds": round(progress.seconds, 3)}
        progress.history.append(row)
        out_of_patience = config.patience > 0 and progress.stale >= config.patience
        progress.finished = progress.epoch >= config.epochs or out_of_patience
        if self.folder is not None and self.accelerator.is_main_process:
            with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as log:
                log.write(_line(row))
        if self.after_epoch is not None:
            self.after_epoch(row)
        return row

    def _check_convergence(self, loss: float) -> None:
        progress = self.state.progress
        hint = "lower learning_rate or the layer's step_size, set gradient_clip, or check the scale of the data"
        if not all(bool(parameter.isfinite().all()) for parameter in self.step.parameters):
            raise DivergedError(f"expected finite weights, got NaN or infinity in epoch {progress.epoch}; {hint}.")
        if progress.history and loss > max(DIVERGED, progress.history[-1]["train_loss"]):
            got = f"got {loss:.3g} in epoch {progress.epoch}"
            raise DivergedError(f"expected a loss that falls, or stays below {DIVERGED:g}, {got}; {hint}.")

    def _keep_best(self, loss: float, metric: float) -> None:
        """Compare by the metric, ties by the loss; what is not finite is never the best.

        Where classes have weights the loss alone decides: it has them too, and the metric does not.
        """
        progress = self.state.progress
        score = [metric if self.objective.higher_is_better else -metric, -loss]
        if self.objective.class_weights is not None:
            score = [-loss]
        finite = math.isfinite(metric) and math.isfinite(loss)
        if not finite or (progress.best_score is not None and score <= progress.best_score):
            progress.stale += 1
            return
        progress.best_score, progress.best_epoch, progress.stale = score, progress.epoch, 0
        if self.config.select == "best":
            self.state.best = snapshot(self.plain_model)

    def _evaluate(self, source: BatchSource) -> tuple[float, float]:
        return evaluate(self.model, self.objective, source, autocast=self.accelerator.autocast, total=self._total)

    def _collect_loss(self) -> None:
        """Move the loss summed on the devices into the progress; the device is read once, not at every step."""
        progress = self.state.progress
        progress.loss_sum += float(self._total(self.step.loss_sum))
        self.step.loss_sum.zero_()
        if not progress.loss_sum < float("inf"):
            raise DivergedError(
                f"expected a finite loss, got {progress.loss_sum} in epoch {progress.epoch + (progress.batch > 0)}; "
                "lower learning_rate, set gradient_clip, or check the scale of the data."
            )

    def _total(self, sums: Tensor) -> Tensor:
        """Add up over all processes."""
        total = self.accelerator.reduce(sums, "sum")
        assert isinstance(total, Tensor)
        return total

    @property
    def _metric_key(self) -> str:
        return f"validation_{self.objective.metric}"

    def _source(
        self, data: SequenceBatch, batch_size: int, transform: BatchTransform | None, **options: Any
    ) -> BatchSource:
        return BatchSource(
            data,
            batch_size,
            self.accelerator.device,
            seed=self.config.seed,
            process=self.accelerator.process_index,
            num_processes=self.accelerator.num_processes,
            transform=transform,
            borders=self.config.buckets,
            **options,
        )

    def _checkpoint_is_due(self) -> bool:
        """Look at the clock; several processes do so together and seldom, since they have to save at the same step."""
        if self.folder is None:
            return False
        late = time.perf_counter() - self._last_checkpoint > self.config.checkpoint_seconds
        if self.accelerator.num_processes == 1:
            return late
        if self.state.progress.batch % CLOCK_BATCHES:
            return False
        return bool(self._total(torch.tensor(float(late), device=self.accelerator.device)) > 0)

    def _epoch_is_worth_keeping(self) -> bool:
        """Several processes, whose clocks differ, keep every epoch."""
        late = time.perf_counter() - self._last_checkpoint > min(EPOCH_SECONDS, self.config.checkpoint_seconds)
        return late or self.accelerator.num_processes > 1

    def _save(self) -> None:
        self._last_checkpoint = time.perf_counter()
        if self.folder is None:
            return
        self._collect_loss()
        mine = random_states()
        gathered = gather_object([mine]) if self.accelerator.num_processes > 1 else [mine]
        if self.accelerator.is_main_process:
            named = {f"{p}/{i}": state for p, states in enumerate(gathered) for i, state in enumerate(states)}
            checkpoint = self.state.to_checkpoint(self.digest, named)
            checkpoint.values["material"] = self.material
            progress = self.state.progress
            write_checkpoint(self.folder / "checkpoints", checkpoint, progress.epoch, progress.batch)
        if self.after_checkpoint is not None:
            self.after_checkpoint()

    def _resume(self) -> None:
        assert self.folder is not None
        checkpoint = newest_checkpoint(self.folder / "checkpoints")
        if checkpoint is None:
            return
        same = checkpoint.values["config"] == self.digest
        if not same and not (self._retrains and checkpoint.values["material"] == self.material):
            raise InputError(
                f"{self.folder}: expected the settings and data the run was started with, got others; "
                "resume with the run's own config.toml and data, or start anew with --overwrite."
            )
        named = self.state.restore(checkpoint) if same else self._restart(checkpoint)
        mine = [named[key] for key in sorted(named) if key.startswith(f"{self.accelerator.process_index}/")]
        if mine:
            set_random_states(mine)

    def _restart(self, checkpoint: Checkpoint) -> dict[str, Tensor]:
        """Go on from the weights with other settings; the optimizer and the average begin anew."""
        groups = self.state.optimizer.state_dict()["param_groups"]
        plain = checkpoint.values | {"optimizer_groups": groups, "optimizer_values": {}, "average_steps": 0}
        begins_anew = ("optimizer/", "average/")
        kept = {name: value for name, value in checkpoint.tensors.items() if not name.startswith(begins_anew)}
        named = self.state.restore(Checkpoint(kept, plain))
        progress = self.state.progress
        if progress.diverged and self.state.best is not None:
            self.plain_model.load_state_dict(self.state.best)
        if progress.diverged:
            progress.epoch = progress.history[-1]["epoch"] if progress.history else 0
        progress.batch, progress.loss_sum, progress.units = 0, 0.0, 0.0
        progress.step = progress.epoch * len(self.train_source)
        progress.diverged, progress.stale, progress.finished = "", 0, progress.epoch >= self.config.epochs
        return named

    def _rewrite_log(self) -> None:
        """Cut the log to the epoch that training resumes from: one that was logged but not saved comes again."""
        if self.folder is not None and self.accelerator.is_main_process:
            write_atomically(self.folder / "metrics.jsonl", "".join(map(_line, self.state.progress.history)))


def _penalty(config: TrainingConfig, model: nn.Module) -> Penalty | None:
    if not config.rkhs_penalty:
        return None
    from sostenuto.training.objective import RKHSPenalty

    return RKHSPenalty.of(config, model)


def _line(row: dict[str, Any]) -> str:
    """Write one line of the log, strict JSON: what is not finite becomes null."""
    kept = {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
    return json.dumps(kept) + "\n"


def _settings_digest(config: TrainingConfig, material: str) -> str:
    """Identify settings, model and data: what must be the same for a run to be resumed."""
    settings = {name: value for name, value in asdict(config).items() if name != "checkpoint_seconds"}
    return hashlib.sha256((json.dumps(settings, sort_keys=True) + material).encode()).hexdigest()


def _digest(model: nn.Module, train: SequenceBatch, validation: SequenceBatch | None) -> str:
    """Identify model and data."""
    digest = hashlib.sha256(repr(model).encode())
    for part in (train, validation):
        tensors = [] if part is None else [part.values, part.lengths, part.targets, part.timespans]
        for tensor in tensors:
            if tensor is not None:
                digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
                digest.update(memoryview(tensor.detach().cpu().contiguous().numpy()).cast("B"))
    return digest.hexdigest()

"""A small training: twenty short sequences in four uneven batches, a two-layer model with dropout."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sostenuto.data.batch import SequenceBatch
from sostenuto.models.base import SequenceModel
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor, SequenceToSequence
from sostenuto.nn import UnICORNN
from sostenuto.training.config import TrainingConfig
from sostenuto.training.objective import Objective
from sostenuto.training.trainer import Trainer

BATCHES = 4
CLASSES = Objective(classes=True, steps=False)
NUMBERS = Objective(classes=False, steps=False, target_scale=(1.0,))
STEPS = Objective(classes=False, steps=True, target_scale=(1.0,))


def make_data(count: int = 20, *, ragged: bool = True, objective: Objective = CLASSES, seed: int = 0) -> SequenceBatch:
    """Draw sequences whose target is the sign, or the size, of their mean."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, 7, 2, generator=generator)
    values = values + (torch.arange(count) % 2)[:, None, None] * 1.5
    lengths = torch.randint(2, 8, (count,), generator=generator) if ragged else torch.full((count,), 7)
    values[torch.arange(7) >= lengths[:, None]] = 0.0
    if objective.steps:
        return SequenceBatch(values, lengths, values.cumsum(1)[..., :1], has_step_targets=True)
    targets = torch.arange(count) % 2 if objective.classes else values.sum((1, 2))[:, None] / 7
    return SequenceBatch(values, lengths, targets)


def make_model(objective: Objective = CLASSES, **options: Any) -> SequenceModel:
    torch.manual_seed(5)
    layer = UnICORNN(2, 4, **{"num_layers": 2, "dropout": 0.3, "batch_first": True, "step_size": 0.5, **options})
    if objective.steps:
        return SequenceToSequence(layer, 1)
    return SequenceClassifier(layer, 2) if objective.classes else SequenceRegressor(layer)


def settings(**options: Any) -> TrainingConfig:
    return TrainingConfig(**{"epochs": 4, "batch_size": 6, "learning_rate": 0.05, **options})


def make_trainer(config: TrainingConfig, folder: Path | None = None, **options: Any) -> Trainer:
    objective = options.pop("objective", CLASSES)
    model = options.pop("model", None) or make_model(objective)
    train = options.pop("train", None) or make_data(objective=objective)
    validation = options.pop("validation", make_data(9, objective=objective, seed=1))
    options = {"device": "cpu", "progress": False, **options}
    return Trainer(model, objective, config, train, validation, folder=folder, **options)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trainer.plain_model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class PowerCutError(Exception):
    """The machine goes dark."""


@dataclass
class Interruption:
    """Raise at call number ``at`` of a probe or of a batch transform; the transform also draws random numbers."""

    at: int
    calls: int = field(default=0)

    def probe(self, model: torch.nn.Module, epoch: int) -> dict[str, float]:
        self.count()
        return {}

    def transform(self, batch: SequenceBatch) -> SequenceBatch:
        self.count()
        return noisy(batch)

    def count(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise PowerCutError


def noisy(batch: SequenceBatch) -> SequenceBatch:
    noise = 0.1 * torch.randn_like(batch.values) * batch.mask[..., None]
    return SequenceBatch(batch.values + noise, batch.lengths, batch.targets, batch.timespans, batch.has_step_targets)

"""Networks fitted to functionals of known memory, and the error that is left when their weights move (paper 003)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sostenuto.audits import perturbation_error
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.tasks.linear_functional import linear_functional
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from sostenuto.training.run_folder import StoredModel

PART_SIZES = {"num_validation": 1280, "num_test": 1280}


def functional(seed: int, *, num_train: int, num_steps: int, gain: float = 0.0, **memory: Any) -> Dataset:
    """Draw inputs and a functional of them: y = ∫ρ x, or tanh(gain · ∫ρ x) where ``gain`` is above 0.

    The second is nonlinear with the same memory: its answer to a step moves by sech²(·)·gain·ρ(t).

    >>> data = functional(0, num_train=2, num_steps=8, gain=3.0, memory="polynomial", exponent=1.5, step_size=0.1)
    >>> data.train.targets[0].shape, bool(abs(data.train.targets[0]).max() < 1)
    ((8, 1), True)
    """
    drawn = linear_functional(seed, num_train=num_train, num_steps=num_steps, **PART_SIZES, **memory)

    def bent(part: SequenceSet | None) -> SequenceSet | None:
        if part is None or gain == 0 or part.targets is None:
            return part
        return replace(part, targets=[np.tanh(gain * target) for target in part.targets])

    train = bent(drawn.train)
    assert train is not None
    return replace(drawn, train=train, validation=bent(drawn.validation), test=bent(drawn.test))


def functional_config(
    settings: Mapping[str, Any], layer: str, width: int, *, seed: int = 0, **options: Any
) -> RunConfig:
    """Build the paper's training: Adam at a constant rate, mean squared error, nothing scaled."""
    training = {name: settings[name] for name in ("epochs", "batch_size", "learning_rate", "schedule")}
    chosen = {"hidden_size": width, "num_layers": 1, "step_size": settings["step_size"], **options}
    return RunConfig(
        data=DataConfig(scaling="none"),
        model=ModelConfig(layer=layer, options=chosen),
        training=TrainingConfig(optimizer="adam", gradient_clip=0.0, seed=seed, **training),
    )


def error_curve(
    stored: StoredModel, part: SequenceSet, betas: list[float], *, draws: int, seed: int, count: int = 128
) -> dict[str, Any]:
    """Return E(β) of a fitted model on the first ``count`` sequences, and the error without a change.

    Errors are the largest over sequences and steps, over the largest input, in units of the target's deviation.
    """
    batch = stored.encoding.encode(part.take(np.arange(count)))
    model = stored.model.cpu()
    found = perturbation_error(model, betas, batch.values, target=batch.targets, draws=draws, ascent_steps=0, seed=seed)
    return {"still": found.start, "errors": list(found.error)}

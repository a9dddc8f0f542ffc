"""Default settings of a fit, for every way to call it; those of a layer are in its `Recipe`.

``docs/training.md`` says how they were chosen, and on what data.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sostenuto.data.dataset import SequenceSet
from sostenuto.data.targets import task_of
from sostenuto.nn import LAYERS
from sostenuto.nn.base import Recipe
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig, overlaid

TASK_OPTIONS: dict[str, dict[str, Any]] = {
    "classification": {"label_smoothing": 0.1, "input_noise": 0.1},
}
"""What small sets of classes need against over-fitting; numbers to predict are left without noise."""

LONGEST_TIME = 1600.0
"""Most time, steps times step_size, for UnICORNN: gradients of layers of undamped oscillators grow with it."""
LONG_SPAN = 0.9
"""Quantile of the time spans that UnICORNN's first steps read stably (`UnICORNN.longest_span`)."""
STEPS, LEAST_EPOCHS, MOST_EPOCHS = 1200, 20, 500
LEAST_IN_BATCH, MOST_IN_BATCH = 8, 64


def run_config(data: DataConfig, train: SequenceSet, count: int, said: Mapping[str, dict[str, Any]]) -> RunConfig:
    """Fill in a run's settings for ``train``, of which ``count`` sequences are trained on, where they are not ``said``.

    ``said`` holds what the caller chose, under ``"model"`` (``layer``, ``readout`` …), ``"options"`` (those of the
    layer) and ``"training"``. The command line, the search for settings and the estimators all come here.

    >>> train = SequenceSet([np.zeros((20, 1))] * 40, np.array(["a", "b"] * 20))
    >>> config = run_config(DataConfig(), train, 34, {"options": {"hidden_size": 8}, "training": {"epochs": 3}})
    >>> config.model.readout, config.model.options["num_layers"], config.training.epochs, config.training.learning_rate
    ('max', 3, 3, 0.004)
    """
    model, training = said.get("model", {}), said.get("training", {})
    layer, task = model.get("layer", ModelConfig.layer), task_of(train)
    longest = max(len(sequence) for sequence in train.sequences)
    recipe = model_config(layer, task, longest, _long_span(train), **said.get("options", {}))
    batch = {name: value for name, value in training.items() if name == "batch_size"}
    return RunConfig(
        data, overlaid(recipe, dict(model)), overlaid(training_config(layer, task, count, **batch), dict(training))
    )


def model_config(
    layer: str, task: str = "", longest: int = 0, long_span: float = 1.0, /, **options: Any
) -> ModelConfig:
    """Fill in a layer's read-out for a task, and its default options where ``options`` leaves them out.

    Oscillators that read ``longest`` steps take steps so small that all of them make no more than `LONGEST_TIME`, and
    that a time span of ``long_span`` is stable at the start.

    >>> model_config("gru", num_layers=2).options
    {'hidden_size': 64, 'num_layers': 2}
    >>> [model_config("unicornn", "", steps).options["step_size"] for steps in (500, 100_000)]
    [0.78, 0.016]
    >>> model_config("unicornn", "", 500, 3.3).options["step_size"]
    0.252
    """
    recipe = _recipe(layer)
    chosen = {**recipe.options, **options}
    if layer == "unicornn" and "step_size" not in options:
        from sostenuto.nn.oscillator_layer import MARGIN

        # Units start at half the step, with weights up to 1.
        stable = 4 * MARGIN / (long_span * math.sqrt(float(chosen["stiffness"]) + 1))
        largest = min(stable, LONGEST_TIME / max(longest, 1))
        if largest < chosen["step_size"]:
            chosen["step_size"] = float(f"{largest:.3g}")
    # Dropout acts between layers: a single one that was given no dropout is not to be warned about ours.
    if chosen.get("num_layers") == 1 and "dropout" not in options:
        chosen.pop("dropout", None)
    return ModelConfig(layer=layer, readout=recipe.readouts.get(task, "last"), options=chosen)


def training_config(layer: str, task: str = "", count: int = 0, /, **options: Any) -> TrainingConfig:
    """Fill in how a layer is trained for a task on ``count`` sequences where ``options`` leaves it out.

    Weights move in steps, not in epochs: a batch is at most a sixteenth of the data (and 8 to 64 sequences), and there
    are as many epochs as give about 1200 steps, from 20 to 500.

    >>> [(c.batch_size, c.epochs) for c in (training_config("unicornn", "", n) for n in (40, 1222, 50_000))]
    [(8, 240), (64, 60), (64, 20)]
    """
    batch_size = options.get("batch_size") or min(MOST_IN_BATCH, max(LEAST_IN_BATCH, count // 16))
    epochs = -(-STEPS // -(-max(count, 1) // batch_size)) if count else TrainingConfig.epochs
    size = {"batch_size": batch_size, "epochs": min(MOST_EPOCHS, max(LEAST_EPOCHS, epochs))}
    return TrainingConfig(**{**size, **_recipe(layer).training, **TASK_OPTIONS.get(task, {}), **options})


def _recipe(layer: str) -> Recipe:
    return LAYERS[layer].recipe if layer in LAYERS else Recipe()


def _long_span(train: SequenceSet) -> float:
    """Return a long time span in units of the median one."""
    if train.timespans is None:
        return 1.0
    spans = np.concatenate([np.asarray(span, dtype=float).reshape(-1) for span in train.timespans])
    return float(np.quantile(spans, LONG_SPAN) / np.median(spans))

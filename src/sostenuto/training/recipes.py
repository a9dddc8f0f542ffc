"""Settings that serve when nothing is said: the options of each layer and how it is trained.

How they were chosen, and on what, is told in ``docs/training.md``.
"""

from typing import Any

from sostenuto.training.config import ModelConfig, TrainingConfig

_GATED = {"hidden_size": 64, "num_layers": 1}

LAYER_OPTIONS: dict[str, dict[str, Any]] = {
    "unicornn": {"hidden_size": 128, "num_layers": 3, "dropout": 0.1, "step_size": 0.78, "stiffness": 2.7},
    "lstm": _GATED,
    "gru": _GATED,
    "rnn": _GATED,
    "residual-gru": _GATED,
    "residual-lstm": _GATED,
}
TRAINING_OPTIONS: dict[str, dict[str, Any]] = {
    "unicornn": {"learning_rate": 0.02, "weight_decay": 0.01},
}
TASK_OPTIONS: dict[str, dict[str, Any]] = {
    "classification": {"label_smoothing": 0.1, "input_noise": 0.1},
}
"""What small sets of classes need against over-fitting; numbers to predict are left without noise."""

READOUTS = {("unicornn", "classification"): "max"}
"""Read-outs other than the last state, by layer and task."""
STEPS, LEAST_EPOCHS, MOST_EPOCHS = 1200, 20, 500
LEAST_IN_BATCH, MOST_IN_BATCH = 8, 64


def model_config(layer: str, task: str = "", /, **options: Any) -> ModelConfig:
    """Fill in a layer's read-out for a task, and its default options where ``options`` leaves them out.

    >>> model_config("gru", num_layers=2).options
    {'hidden_size': 64, 'num_layers': 2}
    """
    chosen = {**LAYER_OPTIONS.get(layer, _GATED), **options}
    # Dropout acts between layers: a single one that was given no dropout is not to be warned about ours.
    if chosen.get("num_layers") == 1 and "dropout" not in options:
        chosen.pop("dropout", None)
    return ModelConfig(layer=layer, readout=READOUTS.get((layer, task), "last"), options=chosen)


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
    return TrainingConfig(**{**size, **TRAINING_OPTIONS.get(layer, {}), **TASK_OPTIONS.get(task, {}), **options})

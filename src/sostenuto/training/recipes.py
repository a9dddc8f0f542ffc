"""Settings that serve when nothing is said: the options of each layer and how it is trained.

They were chosen on validation splits of the sequential digits, never on a test part; see ``docs/training.md``.
"""

from typing import Any

from sostenuto.training.config import ModelConfig, TrainingConfig

_GATED = {"hidden_size": 64, "num_layers": 1}

LAYER_OPTIONS: dict[str, dict[str, Any]] = {
    "unicornn": {"hidden_size": 64, "num_layers": 3, "dropout": 0.1, "step_size": 1.0, "stiffness": 1.0},
    "lstm": _GATED,
    "gru": _GATED,
    "rnn": _GATED,
    "residual-gru": _GATED,
    "residual-lstm": _GATED,
}
TRAINING_OPTIONS: dict[str, dict[str, Any]] = {
    "unicornn": {"epochs": 60, "batch_size": 32, "learning_rate": 0.02},
}


def model_config(layer: str, **options: Any) -> ModelConfig:
    """Fill in a layer's default options where ``options`` leaves them out.

    >>> model_config("gru", num_layers=2).options
    {'hidden_size': 64, 'num_layers': 2}
    """
    chosen = {**LAYER_OPTIONS.get(layer, _GATED), **options}
    # Dropout acts between layers: a single one that was given no dropout is not to be warned about ours.
    if chosen.get("num_layers") == 1 and "dropout" not in options:
        chosen.pop("dropout", None)
    return ModelConfig(layer=layer, options=chosen)


def training_config(layer: str, **options: Any) -> TrainingConfig:
    """Fill in how a layer is trained where ``options`` leaves it out."""
    return TrainingConfig(**{**TRAINING_OPTIONS.get(layer, {}), **options})

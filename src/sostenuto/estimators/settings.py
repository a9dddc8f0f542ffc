"""From an estimator's parameters to the config of a run: what is None comes from the recipe of the layer."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from sostenuto.checks import InputError, check_choice, check_fraction, require, shown
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.parts import training_count
from sostenuto.nn import LAYERS
from sostenuto.training import recipes
from sostenuto.training.config import DataConfig, RunConfig, overlaid

_TRAINING = ("epochs", "batch_size", "learning_rate", "schedule", "patience")


def run_config(parameters: dict[str, Any], data: SequenceSet) -> RunConfig:
    """Check an estimator's parameters and fill in, where they are None, what the command line does for ``data``."""
    objects = ("random_state", "device")
    values = {name: plain(value, name) for name, value in parameters.items() if name not in objects}
    layer, fraction = values["layer"], values["validation_fraction"]
    fraction = DataConfig.validation if fraction is None else fraction
    check_choice("layer", layer, LAYERS)
    check_fraction("validation_fraction", fraction)
    size = {name: values[name] for name in ("hidden_size", "num_layers")}
    training = {name: values[name] for name in _TRAINING} | {"seed": draw_seed(parameters["random_state"])}
    said = {
        "model": {name: values[name] for name in ("layer", "readout") if values[name] is not None},
        "options": _options(values, "layer_options", size),
        "training": _options(values, "training_options", training),
    }
    own = {"source": "array", "validation": fraction, "test_fraction": 0.0}
    own |= {name: values[name] for name in ("layout", "missing", "scaling")}
    chosen = overlaid(DataConfig(), own)
    config = recipes.run_config(chosen, data, training_count(Dataset("array", data), chosen), said)
    require(
        config.training.patience == 0 or fraction > 0,
        "expected validation_fraction above 0 together with patience",
        f"got patience={config.training.patience} and nothing to measure it on",
        "pass validation_fraction=0.2, for one",
    )
    return config


def draw_seed(random_state: Any) -> int:
    """Return the seed of a run: a whole number is the seed itself, a generator (None: numpy's own) draws one.

    >>> draw_seed(7)
    7
    """
    generator = check_random_state(random_state)
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(generator.randint(np.iinfo(np.int32).max))


def plain(value: Any, name: str) -> Any:
    """Turn numpy's numbers into Python's, as searches pass them; refuse what a config file cannot hold.

    >>> plain({"dropout": np.float64(0.5), "sizes": (1, 2)}, "layer_options")
    {'dropout': 0.5, 'sizes': [1, 2]}
    """
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist(), name)
    if isinstance(value, (list, tuple)):
        return [plain(item, name) for item in value]
    if isinstance(value, dict):
        return {plain(key, name): plain(item, name) for key, item in value.items()}
    raise InputError(f"expected {name} to be made of numbers, text, lists and dicts, got {type(value).__name__}.")


def _options(values: dict[str, Any], name: str, named: dict[str, Any]) -> dict[str, Any]:
    """Join the parameters that have a name of their own with the dict for all others."""
    others = {} if values[name] is None else values[name]
    require(isinstance(others, dict), f"expected {name} to be a dict or None", f"got {others!r}")
    said = {key: value for key, value in named.items() if value is not None}
    twice = [key for key in others if key in said]
    require(not twice, f"expected every option once, {name} without {shown(twice)}", "got it twice", "drop one of them")
    return {**others, **said}

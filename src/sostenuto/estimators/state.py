"""A fitted estimator as the content of one safetensors file: tensors and JSON, no module and nothing to execute."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from sostenuto.checks import FileFormatError, InputError, require
from sostenuto.data.files.atomic import write_atomically
from sostenuto.estimators.settings import plain
from sostenuto.training.config import RunConfig
from sostenuto.training.run_folder import StoredModel, pack_model, unpack_model
from sostenuto.types import PathLike

FITTED = ("model_", "encoding_", "config_", "history_")
"""Attributes that live in the packed content; the others are plain values and arrays."""

_ARRAYS = ("classes_", "feature_names_in_")
_VALUES = ("n_features_in_", "uses_timespans_")


def pack(estimator: Any, notes: dict[str, str] | None = None) -> bytes:
    """Lay the fitted model, its encoding, config and history out as safetensors."""
    run = json.dumps({"config": estimator.config_.to_dict(), "history": estimator.history_})
    return pack_model(
        StoredModel(estimator.model_, estimator.encoding_, estimator.config_.model, {**(notes or {}), "run": run})
    )


def unpack(estimator: Any, content: bytes, origin: PathLike) -> dict[str, str]:
    """Give ``estimator`` the fitted attributes that `pack` laid out; return the notes."""
    stored = unpack_model(content, origin)
    if "run" not in stored.notes:
        raise FileFormatError(origin, "expected a saved estimator", "got a model without one", "fit the estimator anew")
    run = json.loads(stored.notes["run"])
    estimator.model_, estimator.encoding_ = stored.model, stored.encoding
    estimator.config_, estimator.history_ = RunConfig.from_dict(run["config"]), run["history"]
    return stored.notes


def save_estimator(estimator: Any, path: PathLike) -> None:
    """Write a fitted estimator; a generator given as random_state is stored as the seed it drew."""
    parameters = estimator.get_params(deep=False)
    if hasattr(parameters["random_state"], "randint"):
        parameters["random_state"] = estimator.config_.training.seed
    parameters["device"] = str(parameters["device"])
    note = {
        "class": type(estimator).__name__,
        "parameters": {name: _paired(plain(value, name)) for name, value in parameters.items()},
        "arrays": {name: _listed(getattr(estimator, name)) for name in _ARRAYS if hasattr(estimator, name)},
        "values": {name: getattr(estimator, name) for name in _VALUES if hasattr(estimator, name)},
    }
    write_atomically(path, pack(estimator, {"estimator": json.dumps(note)}))


def load_estimator(cls: Any, path: PathLike) -> Any:
    """Read what `save_estimator` wrote into a new ``cls``; another kind of file is refused."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(path, "expected a saved estimator", f"got {error.strerror}", "save one first") from error
    estimator = cls()
    notes = unpack(estimator, content, path)
    try:
        note = json.loads(notes["estimator"])
        name = note["class"]
        require(name == cls.__name__, f"expected a {cls.__name__}", f"got a {name}", f"load it with {name}.load")
        estimator.set_params(**{key: _unpaired(value) for key, value in note["parameters"].items()})
        fitted = {key: np.asarray(values, dtype=np.dtype(kind)) for key, (kind, values) in note["arrays"].items()}
        vars(estimator).update({key: fitted[key] for key in _ARRAYS if key in fitted})
        vars(estimator).update({key: note["values"][key] for key in _VALUES if key in note["values"]})
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(path, "expected a saved estimator", f"got a damaged file ({error})") from error
    return estimator


def _listed(array: np.ndarray) -> tuple[str, list[Any]]:
    return array.dtype.str, plain(array, "classes")


def _paired(value: Any) -> Any:
    """Write dicts as lists of pairs: JSON would turn the labels of class_weight into text."""
    if isinstance(value, dict):
        return {"pairs": [[key, _paired(item)] for key, item in value.items()]}
    return value


def _unpaired(value: Any) -> Any:
    return {key: _unpaired(item) for key, item in value["pairs"]} if isinstance(value, dict) else value

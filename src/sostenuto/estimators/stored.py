"""A fitted kernel estimator as one safetensors file: sequences, coefficients and JSON, nothing to execute."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from sostenuto.checks import FileFormatError, InputError
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.files.sealed import UNREADABLE, seal, unseal
from sostenuto.estimators.settings import plain
from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.kernels.recurrent_ntk import RecurrentNTK
from sostenuto.types import PathLike

FORMAT = "sostenuto-kernel-1"
_LABELS = ("classes_", "feature_names_in_")


def save_kernel_estimator(estimator: Any, path: PathLike, notes: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator; ``notes`` are further values of JSON that travel with it."""
    write_atomically(path, pack(estimator, notes))


def load_kernel_estimator(classes: dict[str, Any], path: PathLike) -> tuple[Any, dict[str, Any]]:
    """Read what was saved, as the one of ``classes`` (by name) that wrote it; return it and the notes."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(path, "expected a saved estimator", f"got {error.strerror}", "save one first") from error
    return unpack(classes, content, path)


def pack(estimator: Any, notes: dict[str, Any] | None = None) -> bytes:
    """Lay an estimator out as bytes; the same one gives the same bytes."""
    parameters = estimator.get_params(deep=False)
    if hasattr(parameters["random_state"], "randint"):
        parameters["random_state"] = estimator.seed_
    fitted = {name: value for name, value in vars(estimator).items() if name.endswith("_") and name not in _LABELS}
    tensors: dict[str, np.ndarray] = {}
    values: dict[str, Any] = {}
    for name, value in fitted.items():
        if isinstance(value, PackedSequences):
            tensors[f"{name}.values"], tensors[f"{name}.borders"] = value.values, value.borders
        elif isinstance(value, np.ndarray):
            tensors[name] = value
        elif isinstance(value, RecurrentNTK):
            values[name] = {"kernel": plain(value.get_params(), name)}
        elif name == "kernels_":
            values[name] = {"kernels": [plain(each.get_params(), name) for each in value]}
        else:
            values[name] = plain(value, name)
    texts = {
        "class": type(estimator).__name__,
        "parameters": plain(parameters, "parameters"),
        "values": values,
        "labels": {name: _listed(getattr(estimator, name)) for name in _LABELS if hasattr(estimator, name)},
        "notes": notes or {},
    }
    laid_out = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in sorted(tensors.items())}
    return seal(FORMAT, texts, laid_out)


def unpack(classes: dict[str, Any], content: bytes, origin: PathLike) -> tuple[Any, dict[str, Any]]:
    """Read what `pack` laid out; what is altered, damaged or of another class is refused."""
    try:
        texts, tensors = unseal(FORMAT, content)
        name = texts["class"]
        if name in classes:
            return _restored(classes[name](), texts, {key: value.numpy() for key, value in tensors.items()})
    except UNREADABLE as error:
        raise FileFormatError(
            origin, "expected a kernel estimator written by sostenuto", f"got another ({str(error).rstrip('.')})"
        ) from error
    raise InputError(f"{origin}: expected a {' or '.join(classes)}, got a {name}; load it with {name}.load.")


def _restored(estimator: Any, texts: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[Any, dict[str, Any]]:
    estimator.set_params(**texts["parameters"])
    fitted = vars(estimator)
    for name, value in texts["values"].items():
        fitted[name] = value
        if isinstance(value, dict) and set(value) == {"kernel"}:
            fitted[name] = RecurrentNTK(**value["kernel"])
        elif name == "kernels_":
            fitted[name] = [RecurrentNTK(**each) for each in value["kernels"]]
    for name, array in arrays.items():
        stem, _, part = name.partition(".")
        if part == "values":
            fitted[stem] = PackedSequences(array, arrays[f"{stem}.borders"])
        elif not part:
            fitted[name] = array
    for name, (kind, values) in texts["labels"].items():
        fitted[name] = np.asarray(values, dtype=np.dtype(kind))
    return estimator, texts["notes"]


def _listed(array: np.ndarray) -> tuple[str, list[Any]]:
    return array.dtype.str, plain(array, "classes")

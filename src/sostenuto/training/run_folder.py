"""A run on disk: ``config.toml``, ``model.safetensors``, ``metrics.jsonl``, ``predictions.csv``, ``report.html``."""

import contextlib
import csv
import hashlib
import io
import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sostenuto.checks import FileFormatError, InputError, require, shown
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.files.atomic import locked, write_atomically
from sostenuto.data.files.cells import plain_text
from sostenuto.data.files.sealed import UNREADABLE, seal, unseal
from sostenuto.models.base import SequenceModel
from sostenuto.models.build import build_model
from sostenuto.training.config import ModelConfig, RunConfig
from sostenuto.training.predict import Predictions
from sostenuto.types import PathLike

MODEL = "model.safetensors"
FORMAT = "sostenuto-model-1"
SPLIT = "split.json"
MARK = "run_mark"
"""The note of a stored model that says which run it belongs to."""
_ASIDE, _CHECKPOINTS = ".replaced", "checkpoints"
# The config goes last: without it a folder is no run, and half of one could neither be resumed nor replaced.
_FILES = (
    MODEL,
    _CHECKPOINTS,
    "metrics.jsonl",
    "predictions.csv",
    "report.html",
    "result.json",
    "kernel.json",
    "choice.json",
    SPLIT,
    "audit.json",
    "config.toml",
)


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A model with all that is needed to use it; ``notes`` are further texts that travel in the same file."""

    model: SequenceModel
    encoding: Encoding
    config: ModelConfig
    notes: dict[str, str] = field(default_factory=dict)


@contextmanager
def run_folder(path: PathLike, *, overwrite: bool = False, resume: bool = False) -> Iterator[Path]:
    """Hold a folder for the fit inside the block: no other process may, and nothing but the run in it is touched.

    An earlier run is only replaced when asked. Its files wait in ``.replaced`` until the block ends well; when it ends
    badly they come back, unless the new run has checkpoints to resume from.
    """
    folder = Path(path)
    _check_place(folder, overwrite=overwrite, resume=resume)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: expected a folder that can be made, got {error.strerror}.") from error
    hint = "wait for it or choose another --out"
    with locked(folder, f"{folder}: expected a run that no other process uses, got one with another fit in it; {hint}"):
        _check_place(folder, overwrite=overwrite, resume=resume)
        aside = folder / _ASIDE
        if not resume:
            _set_aside(folder, aside)
        try:
            yield folder
        except BaseException as error:
            goes_on = resume or (any((folder / _CHECKPOINTS).glob("*.json")) and not isinstance(error, InputError))
            if not goes_on:
                _put_back(folder, aside)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _check_place(folder: Path, *, overwrite: bool, resume: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: expected a folder for the run, got a file; choose another --out.")
    if resume or not folder.is_dir() or not any(folder.iterdir()):
        return
    is_run = (folder / "config.toml").is_file() or (folder / _ASIDE).is_dir()
    if not (overwrite and is_run):
        hint = "pass --overwrite to replace it or --resume to continue it" if is_run else "choose another --out"
        kind = "an earlier run" if is_run else "other files"
        raise InputError(f"{folder}: expected a new or empty folder, got one with {kind}; {hint}.")


def _set_aside(folder: Path, aside: Path) -> None:
    """Move the run away, or drop it where it never stood: then what it was to replace is still aside.

    The config moves last: without it aside, the run was not moved whole, and the rest of it follows.
    """
    if (folder / "config.toml").is_file() and not (aside / "config.toml").is_file():
        aside.mkdir(exist_ok=True)
        try:
            _move(folder, aside)
        except OSError:
            _move(aside, folder)
            aside.rmdir()
            raise
    elif aside.is_dir():
        _remove(folder)


def _move(source: Path, target: Path) -> None:
    for name in _FILES:
        if (source / name).exists():
            (source / name).rename(target / name)


def _put_back(folder: Path, aside: Path) -> None:
    _remove(folder)
    if aside.is_dir():
        for file in aside.iterdir():
            file.rename(folder / file.name)
        aside.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _remove(folder: Path) -> None:
    shutil.rmtree(folder / _CHECKPOINTS, ignore_errors=True)
    for name in _FILES:
        if name != _CHECKPOINTS:
            (folder / name).unlink(missing_ok=True)


def new_folder(data: str, model: str) -> Path:
    """Make a folder of its own for a run: runs/DATA-MODEL, then runs/DATA-MODEL-2 and so on."""
    stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in f"{data}-{model}")
    for number in itertools.count(1):
        folder = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError


def open_folder(path: PathLike) -> tuple[Path, RunConfig]:
    """Find an existing run and its config."""
    folder = Path(path)
    if not (folder / "config.toml").is_file():
        raise InputError(
            f"{folder}: expected a run folder with a config.toml, got none; sostenuto fit --out makes one."
        )
    return folder, RunConfig.load(folder / "config.toml")


def save_model(path: PathLike, stored: StoredModel) -> Path:
    """Write weights, encoding and model config into one safetensors file."""
    return write_atomically(path, pack_model(stored))


def load_model(path: PathLike) -> StoredModel:
    """Read what `save_model` wrote; a damaged or foreign file is refused."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(path, "expected a trained model", f"got {error.strerror}", "train it first") from error
    return unpack_model(content, path)


def run_mark(config: RunConfig) -> str:
    """Identify a run by its model, training and data: a file that carries another mark belongs to another run."""
    training = {name: value for name, value in asdict(config.training).items() if name != "checkpoint_seconds"}
    identity = {"model": asdict(config.model), "training": training, "checksum": config.data.checksum}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def check_mark(path: PathLike, notes: dict[str, Any], config: RunConfig) -> None:
    """Refuse a model that was put into the folder of another run."""
    mark = run_mark(config)
    require(
        notes.get(MARK, mark) == mark,
        f"{path}: expected the model of this run's config.toml",
        "got that of another run",
        "bring the run's own files back, or resume the run",
    )


def load_run(folder: PathLike, config: RunConfig) -> StoredModel:
    """Load the model of a run, which must be the one that its config describes."""
    stored = load_model(Path(folder) / MODEL)
    check_mark(Path(folder) / MODEL, stored.notes, config)
    return stored


def pack_model(stored: StoredModel) -> bytes:
    """Lay weights, encoding, model config and notes out as the content of one safetensors file."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in stored.model.state_dict().items()}
    texts = {"encoding": stored.encoding.to_dict(), "model": asdict(stored.config), "notes": stored.notes}
    return seal(FORMAT, texts, tensors)


def unpack_model(content: bytes, origin: PathLike) -> StoredModel:
    """Read what `pack_model` laid out; ``origin`` is the name an error gives to damaged or foreign content."""
    try:
        texts, tensors = unseal(FORMAT, content)
        encoding, config = Encoding.from_dict(texts["encoding"]), ModelConfig(**texts["model"])
        notes = dict(texts["notes"])
        _check_size(encoding, config, tensors)
        model = rebuild(encoding, config)
        model.load_state_dict(tensors)
        check_finite(model)
    except UNREADABLE as error:
        raise FileFormatError(
            origin, "expected a model written by sostenuto", f"got a damaged file ({str(error).rstrip('.')})"
        ) from error
    return StoredModel(model.eval(), encoding, config, notes)


def check_finite(model: nn.Module) -> None:
    """Refuse a model with NaN or infinity among its weights.

    >>> check_finite(nn.Linear(1, 1))
    """
    bad = [name for name, value in model.state_dict().items() if not bool(value.isfinite().all())]
    require(not bad, "expected finite weights", f"got NaN or infinity in {shown(bad)}", "train the model anew")


def _check_size(encoding: Encoding, config: ModelConfig, tensors: dict[str, Tensor]) -> None:
    """Compare the declared architecture with the weights that are there, before memory is taken for it."""
    layers = config.options.get("num_layers", 1)
    require(layers <= len(tensors), f"expected at most {len(tensors)} layers of so many weights", f"got {layers}")
    with torch.device("meta"):
        declared = {name: value.shape for name, value in rebuild(encoding, config).state_dict().items()}
    shapes = {name: value.shape for name, value in tensors.items()}
    other = sorted(name for name in declared.keys() | shapes.keys() if declared.get(name) != shapes.get(name))
    require(not other, "expected weights of the declared sizes", f"got others for {shown(other)}")


def rebuild(encoding: Encoding, config: ModelConfig, embedding: Tensor | None = None) -> SequenceModel:
    """Build the model that a config and an encoding describe."""
    options = dict(config.options)
    return build_model(
        encoding,
        config.layer,
        readout=config.readout,
        readout_dropout=config.readout_dropout,
        embedding_size=config.embedding_size,
        embedding_dropout=config.embedding_dropout,
        embedding=embedding,
        **options,
    )


def predictions_csv(encoding: Encoding, predicted: Predictions, data: SequenceSet) -> str:
    """Lay the predictions for ``data`` out as CSV: one row per sequence, or per step where every step has a target.

    ``sequence`` is the name of the series, or its position in the file. Steps have their ``time`` where it is known; a
    forecast has the ``last_time`` of what it was made from. A text that is a formula has a quote before it.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names, times = data.numbered().ids, data.times
    assert names is not None
    columns, actual = _columns(encoding), data.targets
    known = [] if actual is None else [f"actual{suffix}" for suffix in columns]
    answers = [*(f"predicted{s}" for s in columns), *known, *(f"probability:{name}" for name in encoding.classes)]
    if encoding.has_step_targets:
        writer.writerow(["sequence", "step", *([] if times is None else ["time"]), *answers])
        for index, rows in enumerate(predicted.labels):
            for step in range(len(rows)):
                when = [] if times is None else [times[index][step]]
                truth = [] if actual is None else _cells(actual[index][step])
                chances = [] if predicted.probabilities is None else _cells(predicted.probabilities[index][step])
                writer.writerow(map(plain_text, (names[index], step, *when, *_cells(rows[step]), *truth, *chances)))
        return text.getvalue()
    has_time = encoding.task == "forecast" and times is not None
    writer.writerow(["sequence", *(["last_time"] if has_time else []), *answers])
    for index, row in enumerate(predicted.labels):
        when = [times[index][-1]] if has_time and times is not None else []
        truth = [] if actual is None else _cells(actual[index])
        chances = [] if predicted.probabilities is None else _cells(predicted.probabilities[index])
        writer.writerow(map(plain_text, (names[index], *when, *_cells(row), *truth, *chances)))
    return text.getvalue()


def count_parameters(model: nn.Module) -> int:
    """Count the trained numbers."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _columns(encoding: Encoding) -> list[str]:
    if encoding.classes or encoding.output_size == 1:
        return [""]
    if encoding.task != "forecast" or not encoding.forecast_channels:
        return [f":{index}" for index in range(encoding.output_size)]
    horizon, own = encoding.target_shape[0], encoding.forecast_channels
    channels = [""] if len(own) == 1 else [f":{(encoding.channel_names or range(len(own)))[i]}" for i in own]
    steps = [""] if horizon == 1 else [f":+{step}" for step in range(1, horizon + 1)]
    return [channel + step for step in steps for channel in channels]


def _cells(row: Any) -> list[Any]:
    flat = np.asarray(row).reshape(-1).tolist()
    return ["" if cell != cell else f"{cell:.9g}" if isinstance(cell, float) else cell for cell in flat]

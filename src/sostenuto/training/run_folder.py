"""A run on disk: ``config.toml``, ``model.safetensors``, ``metrics.jsonl``, ``predictions.csv``, ``report.html``."""

import contextlib
import csv
import hashlib
import io
import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from sostenuto.checks import FileFormatError, InputError, require
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.files.cells import plain_text
from sostenuto.models.base import SequenceModel
from sostenuto.models.build import build_model
from sostenuto.training.config import ModelConfig, RunConfig
from sostenuto.training.predict import Predictions
from sostenuto.types import PathLike
from sostenuto.version import __version__

MODEL = "model.safetensors"
FORMAT = "sostenuto-model-1"
_HEADER = "sostenuto"
# The config goes last: without it a folder is no run, and half of one could neither be resumed nor replaced.
_FILES = (
    MODEL,
    "metrics.jsonl",
    "predictions.csv",
    "report.html",
    "result.json",
    "kernel.json",
    "choice.json",
    "config.toml",
)


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A model with all that is needed to use it; ``notes`` are further texts that travel in the same file."""

    model: SequenceModel
    encoding: Encoding
    config: ModelConfig
    notes: dict[str, str] = field(default_factory=dict)


def create_folder(path: PathLike, *, overwrite: bool = False) -> Path:
    """Make a folder for a new run; an earlier run in it is only replaced when asked, and nothing else is touched."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: expected a folder for the run, got a file; choose another --out.")
    if folder.is_dir() and any(folder.iterdir()):
        is_run = (folder / "config.toml").is_file()
        if not (overwrite and is_run):
            cure = "pass --overwrite to replace it or --resume to go on" if is_run else "choose another --out"
            kind = "an earlier run" if is_run else "other files"
            raise InputError(f"{folder}: expected a new or empty folder, got one with {kind}; {cure}.")
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: expected a folder that can be made, got {error.strerror}.") from error
    return folder


def discard_folder(path: PathLike) -> None:
    """Take a run away that was refused before it began: its config, an empty log, and the folder if it is empty."""
    folder = Path(path)
    if (folder / "checkpoints").exists():
        return
    for name in ("metrics.jsonl", "config.toml"):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


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


def pack_model(stored: StoredModel) -> bytes:
    """Lay weights, encoding, model config and notes out as the content of one safetensors file.

    The same model gives the same bytes, so all texts stand in one entry: safetensors writes entries in any order.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in stored.model.state_dict().items()}
    texts = {
        "format": FORMAT,
        "version": __version__,
        "encoding": stored.encoding.to_dict(),
        "model": asdict(stored.config),
        "notes": stored.notes,
    }
    header = json.dumps(texts, sort_keys=True)
    return save(tensors, metadata={_HEADER: json.dumps({"header": header, "sha256": _digest(header, tensors)})})


def unpack_model(content: bytes, origin: PathLike) -> StoredModel:
    """Read what `pack_model` laid out; ``origin`` is the name an error gives to damaged or foreign content."""
    try:
        header_size = int.from_bytes(content[:8], "little")
        envelope = json.loads(json.loads(content[8 : 8 + header_size])["__metadata__"][_HEADER])
        header, tensors = envelope["header"], load(content)
        whole = envelope["sha256"] == _digest(header, tensors)
        require(whole, "expected the content that was written", "got altered bytes")
        texts = json.loads(header)
        require(texts["format"] == FORMAT, f"expected a model of format {FORMAT}", f"got {texts['format']!r}")
        encoding, config = Encoding.from_dict(texts["encoding"]), ModelConfig(**texts["model"])
        notes = dict(texts["notes"])
        model = rebuild(encoding, config)
        model.load_state_dict(tensors)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise FileFormatError(
            origin, "expected a model written by sostenuto", f"got a damaged file ({str(error).rstrip('.')})"
        ) from error
    return StoredModel(model.eval(), encoding, config, notes)


def rebuild(encoding: Encoding, config: ModelConfig, embedding: Tensor | None = None) -> SequenceModel:
    """Build the model that a config and an encoding describe."""
    options = dict(config.options)
    return build_model(
        encoding,
        config.layer,
        readout=config.readout,  # pyright: ignore[reportArgumentType]
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
    return [f"{cell:.9g}" if isinstance(cell, float) else cell for cell in flat]


def _digest(header: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()

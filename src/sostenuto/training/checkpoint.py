"""Checkpoints: safetensors beside JSON, each with a digest, so that a damaged one is known and the one before is used.

``checkpoints/000012-000000.safetensors`` holds the tensors after epoch 12, batch 0 of the next; the ``.json`` of the
same name holds everything else and both digests. The JSON is written last: without it there is no checkpoint.
"""

import hashlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from sostenuto.checks import SostenutoError
from sostenuto.data.files.atomic import write_atomically

KEPT = 2


class CheckpointError(SostenutoError):
    """A checkpoint is damaged or missing; the message says which and what is done instead."""


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and the plain values that go with them."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]


def write_checkpoint(folder: Path, checkpoint: Checkpoint, epoch: int, batch: int = 0) -> Path:
    """Write a checkpoint; of the others only the one before it stays, and nothing that a killed run left half done."""
    path = folder / f"{epoch:06d}-{batch:06d}.json"
    tensors = save({name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()})
    write_atomically(path.with_suffix(".safetensors"), tensors)
    body = json.dumps(checkpoint.values, sort_keys=True)
    envelope = {"tensors_sha256": _digest(tensors), "values_sha256": _digest(body.encode()), "values": body}
    write_atomically(path, json.dumps(envelope))
    # What lies after this one in time is damaged, or of a run that was given up: it must not be taken for the newest.
    kept = sorted(old.stem for old in _whole_files(folder) if old.stem <= path.stem)[-KEPT:]
    for file in [*folder.glob("*.json"), *folder.glob("*.safetensors")]:
        if file.stem not in kept:
            file.unlink(missing_ok=True)
    return path


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint, or raise `CheckpointError` if a byte of it is wrong."""
    try:
        envelope = json.loads(path.read_bytes())
        body, tensors = envelope["values"], path.with_suffix(".safetensors").read_bytes()
        whole = envelope["values_sha256"] == _digest(body.encode()) and envelope["tensors_sha256"] == _digest(tensors)
        if not whole:
            raise CheckpointError(f"{path}: expected the content that was written, got a truncated or altered file.")
        return Checkpoint(load(tensors), json.loads(body))
    except OSError as error:
        raise CheckpointError(f"{error.filename}: expected a whole checkpoint, got {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise CheckpointError(f"{path}: expected a whole checkpoint, got a damaged file ({error}).") from error


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the newest whole checkpoint; damaged ones are named in a warning and passed over.

    Returns None where none was ever written, and raises when there are some and all are damaged.
    """
    problems = []
    for path in _newest_first(folder):
        try:
            checkpoint = read_checkpoint(path)
        except CheckpointError as error:
            problems.append(str(error))
            continue
        for problem in problems:
            warnings.warn(f"{problem} Resuming from {path.name} instead.", stacklevel=2)
        return checkpoint
    if problems:
        raise CheckpointError(f"{problems[0]} No other checkpoint is whole; start the run anew with --overwrite.")
    return None


def _newest_first(folder: Path) -> Iterator[Path]:
    return iter(sorted(_whole_files(folder), reverse=True))


def _whole_files(folder: Path) -> Iterator[Path]:
    """List checkpoints; a name that begins with a dot was being written when its run was killed."""
    return (path for path in folder.glob("*.json") if not path.name.startswith("."))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

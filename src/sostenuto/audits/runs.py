"""Audits of what lies in a run folder, and of modules of the user's own code."""

import importlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from sostenuto.audits.adapter import adapt
from sostenuto.audits.audit import AuditReport
from sostenuto.audits.audit import audit as audited
from sostenuto.audits.context import BUDGETS
from sostenuto.checks import InputError, check_choice, require
from sostenuto.data.config import DataConfig
from sostenuto.data.dataset import BatchTransform, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import divide, read_rows
from sostenuto.data.source import open_dataset, open_for_prediction, with_checksum
from sostenuto.nn import LAYERS
from sostenuto.training.run_folder import SPLIT, load_run, open_folder
from sostenuto.types import PathLike


@dataclass(frozen=True, eq=False)
class AuditData:
    """What a model is audited on: a part of the data, the part it was trained on, what is done to every batch."""

    name: str
    chosen: SequenceSet
    train: SequenceSet | None = None
    transform: BatchTransform | None = None


def audit_run(path: PathLike, source: str = "", *, data_dir: PathLike | None = None, **options: Any) -> AuditReport:
    """Audit a run's model on its own test part, or on other data encoded as the run did.

    Its training part is opened too, for the generalization gap; other data than the run was trained on are refused.
    ``options`` go to `sostenuto.audit`.
    """
    folder, config = open_folder(path)
    require(
        config.model.layer in LAYERS,
        "expected a run of a recurrent network",
        f"got one of {config.model.layer}, which has no trained state to audit",
        "fit one with --model unicornn, for one",
    )
    stored = load_run(folder, config)
    seed = config.training.seed
    dataset = open_dataset(config.data, data_dir=data_dir, seed=seed)
    with_checksum(config.data, dataset.train)
    parts = divide(dataset, config.data, seed=seed, rows=read_rows(folder / SPLIT, dataset))
    name, chosen = parts.held_out()
    name, transform = f"{config.data.source}, {name} part", parts.whole.batch_transform
    if source:
        chosen, transform = open_for_prediction(config.data, source, data_dir=data_dir, seed=seed)
        name = source
    train = None if chosen is parts.train else parts.train
    try:
        return _audit(stored.model, stored.encoding, AuditData(name, chosen, train, transform), options)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error


def audit_module(name: str, source: str, *, data_dir: PathLike | None = None, **options: Any) -> AuditReport:
    """Audit ``package.module:name``: a torch module, or a function or class that makes one without arguments.

    It reads and answers in the units of the data, unlike a run's model, whose encoding is known.
    """
    module, _, attribute = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"expected package.module:name of a torch module, got {name!r}: {error}.") from error
    model = made if isinstance(made, nn.Module) else made()
    good = isinstance(model, nn.Module)
    require(good, f"expected {name} to be or make a torch module", f"got {type(model).__name__}")
    dataset = open_dataset(DataConfig(source=source), data_dir=data_dir, seed=0)
    train = dataset.train if dataset.test is not None else None
    part = "train" if train is None else "test"
    data = AuditData(f"{source}, {part} part", dataset.test or dataset.train, train, dataset.batch_transform)
    encoding = Encoding.fit(dataset.train, scaling="none")
    count = len(encoding.target_scale)
    encoding = replace(encoding, target_center=(0.0,) * count, target_scale=(1.0,) * count)
    return _audit(model, encoding, data, options)


def _audit(model: nn.Module, encoding: Encoding, data: AuditData, options: dict[str, Any]) -> AuditReport:
    """Audit a model on what its encoding makes of the sequences; errors of a regression in the target's own unit."""
    require(
        not encoding.is_tokens,
        "expected a model of real-valued sequences",
        "got one of tokens, which have no small changes to audit",
        "ask so.audits.token_memory for its memory",
    )
    check_choice("budget", options.get("budget", "quick"), BUDGETS)
    most = BUDGETS[options.get("budget", "quick")].answers
    values, targets, lengths = _encoded(encoding, data.chosen, data.transform, most)
    parts: dict[str, Any] = {"lengths": lengths}
    if data.train is not None and targets is not None:
        parts["train"] = _encoded(encoding, data.train, data.transform, most)
    asked = model
    if encoding.task == "forecast":
        # A forecast of several steps is one answer of several numbers.
        asked = adapt(model, output=lambda answer: answer.flatten(1), lengths="lengths")
    if not encoding.classes:
        parts["target_scale"] = encoding.target_scale
    report = audited(asked, values, targets, **parts, **options)
    return replace(report, model=type(model).__name__, data=data.name, checksum=data.chosen.checksum())


def _encoded(encoding: Encoding, sequences: SequenceSet, transform: Any, most: int) -> tuple[Any, Any, Any]:
    """Encode at most so many sequences, spread evenly: values, targets where known, lengths where they differ."""
    if len(sequences) > most:
        sequences = sequences.take(np.linspace(0, len(sequences) - 1, most).round().astype(int))
    batch = encoding.encode(sequences)
    batch = batch if transform is None else transform(batch)
    require(
        batch.timespans is None,
        "expected evenly sampled sequences",
        "got time spans, which the checks of an audit do not have",
    )
    targets = batch.targets
    if targets is not None and encoding.task == "forecast":
        targets = targets.flatten(1)
    ragged = bool((batch.lengths != batch.values.shape[1]).any())
    return batch.values, targets, batch.lengths if ragged else None

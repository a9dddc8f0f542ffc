"""Audit what the command line names: a run's model on its own data, or a module of the user's own code."""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from sostenuto.audits.adapter import adapt
from sostenuto.audits.audit import AuditReport, audit
from sostenuto.audits.context import BUDGETS
from sostenuto.audits.recognize import BlackBox
from sostenuto.checks import FileFormatError, InputError, check_choice, require
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import divide, read_rows
from sostenuto.data.source import open_dataset, open_for_prediction, with_checksum
from sostenuto.training.config import DataConfig, RunConfig
from sostenuto.training.run_folder import SPLIT, load_run, open_folder

Load = Callable[[Path, RunConfig], tuple[Any, Encoding]]
"""Loads what a run fitted, a module or an estimator on encoded sequences, and the encoding."""


def load_network(folder: Path, config: RunConfig) -> tuple[nn.Module, Encoding]:
    """Load a run of a trained network."""
    stored = load_run(folder, config)
    return stored.model, stored.encoding


class Material(NamedTuple):
    """What a model is audited on: a part of the data, the part it was trained on, what is done to every batch."""

    name: str
    chosen: SequenceSet
    train: SequenceSet | None = None
    transform: Callable[[SequenceBatch], SequenceBatch] | None = None


def names_module(name: str) -> bool:
    """Say whether ``package.module:name`` is meant, and no run folder.

    >>> names_module("mine:Net"), names_module("runs/mine")
    (True, False)
    """
    return ":" in name and not Path(name).is_dir()


def check_named(name: str, data: str, option: str, *, weighted: bool) -> None:
    """Refuse a module without data, and ``option``, which asks for other weights, of what is none."""
    module = names_module(name)
    require(module or not weighted, f"expected {option} with a module", f"got {name or 'none'}")
    require(bool(data) or not module, "expected DATA beside a module", "got none", "name a file or a data set")


def audit_source(
    name: str,
    data: str,
    data_dir: str | None,
    options: Mapping[str, Any],
    *,
    weights: Path | None = None,
    untrained: bool = False,
    load: Load = load_network,
) -> AuditReport:
    """Audit a run folder, which ``load`` opens, or ``package.module:name``."""
    check_named(name, data, "--weights and --untrained", weighted=untrained or weights is not None)
    if not names_module(name):
        return audit_run(Path(name), data, data_dir, options, load=load)
    return audit_module(name, data, data_dir, options, weights=weights, untrained=untrained)


def audit_run(
    folder: Path, data: str, data_dir: str | None, options: Mapping[str, Any], *, load: Load = load_network
) -> AuditReport:
    """Audit a run's model, as ``load`` gives it, on its own test part, or on other data encoded as the run did.

    Its training part is opened too, for the generalization gap; other data than it was trained on are refused.
    """
    folder, config = open_folder(folder)
    (model, encoding), seed = load(folder, config), config.training.seed
    dataset = open_dataset(config.data, data_dir=data_dir, seed=seed)
    with_checksum(config.data, dataset.train)
    parts = divide(dataset, config.data, seed=seed, rows=read_rows(folder / SPLIT, dataset))
    transform = parts.whole.batch_transform
    if data:
        chosen, transform = open_for_prediction(config.data, data, data_dir=data_dir, seed=seed)
        name = data
    else:
        part, chosen = parts.held_out()
        name = f"{config.data.source}, {part} part"
    train = None if chosen is parts.train else parts.train
    try:
        return audit_encoded(model, encoding, Material(name, chosen, train, transform), options)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error


def audit_module(
    name: str,
    data: str,
    data_dir: str | None,
    options: Mapping[str, Any],
    *,
    weights: Path | None = None,
    untrained: bool = False,
) -> AuditReport:
    """Audit a module of the user's own code: an instance, or a class or function that makes one without arguments.

    It reads and answers in the units of the data, unlike a run's model, whose encoding is known. One that is made here
    has random weights: a file of ``weights`` is loaded into it, or ``untrained`` says that this is meant.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        named = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a user's code may raise anything
        hint = "run this where the module lies, or install its package"
        raise InputError(f"expected package.module:name of a torch module, got {name!r}: {error}; {hint}.") from error
    made = not isinstance(named, nn.Module)
    require(
        not made or not isinstance(named, type) or weights is not None or untrained,
        f"expected trained weights for {name}, which is a class",
        "got none",
        "pass --weights FILE.safetensors, name a function or an instance that is trained, or say --untrained",
    )
    try:
        model: Any = named() if made and callable(named) else named
    except Exception as error:
        hint = "write a function that makes the model, and name that"
        raise InputError(f"expected {name} to make a model without arguments, got {error}; {hint}.") from error
    good = isinstance(model, nn.Module)
    require(good, f"expected {name} to be or make a torch module", f"got {type(model).__name__}")
    if weights is not None:
        load_weights(model, weights)
    dataset = open_dataset(DataConfig(source=data), data_dir=data_dir, seed=0)
    train = dataset.train if dataset.test is not None else None
    part = "train" if train is None else "test"
    material = Material(f"{data}, {part} part", dataset.test or dataset.train, train, dataset.batch_transform)
    encoding = Encoding.fit(dataset.train, scaling="none")
    count = len(encoding.target_scale)
    encoding = replace(encoding, target_center=(0.0,) * count, target_scale=(1.0,) * count)
    return audit_encoded(model, encoding, material, options)


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a safetensors file into a model; every name and shape must fit."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        state = load(path.read_bytes())
    except OSError as error:
        raise FileFormatError(path, "expected a safetensors file", f"got {error.strerror}") from error
    except SafetensorError as error:
        hint = "write one by safetensors.torch.save_file(model.state_dict(), path)"
        raise FileFormatError(path, "expected a safetensors file", f"got {error}", hint) from error
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        name, reason = type(model).__name__, " ".join(str(error).split()).rstrip(".")
        hint = "make the model as it was when these weights were saved"
        raise InputError(f"expected weights of {name} in {path}, got {reason}; {hint}.") from error


def audit_encoded(model: Any, encoding: Encoding, material: Material, options: Mapping[str, Any]) -> AuditReport:
    """Audit a model on what its encoding makes of the sequences; errors of a regression in the target's own unit.

    An estimator is asked for its answers alone.
    """
    require(
        not encoding.is_tokens,
        "expected a model of real-valued sequences",
        "got one of tokens, which have no small changes to audit",
        "ask so.audits.token_memory for its memory",
    )
    budget = options.get("budget", "quick")
    check_choice("budget", budget, BUDGETS)
    most = BUDGETS[budget].answers
    values, targets, lengths = _encoded(encoding, material.chosen, material.transform, most)
    parts: dict[str, Any] = {"lengths": lengths}
    if material.train is not None and targets is not None:
        parts["train"] = _encoded(encoding, material.train, material.transform, most)
    box = None if isinstance(model, nn.Module) else BlackBox(model)
    read = model if box is None else box
    if encoding.task == "forecast":
        # A forecast of several steps is one answer of several numbers.
        read = adapt(read, output=lambda output: output.flatten(1), lengths="lengths")
    if not encoding.classes:
        parts["target_scale"] = encoding.target_scale
    report = audit(read, values, targets, **parts, **options)
    return replace(
        report,
        model=type(model).__name__,
        notes=report.notes if box is None else (box.note, *report.notes),
        data=material.name,
        checksum=material.chosen.checksum(),
        classes=encoding.classes or report.classes,
    )


def _encoded(encoding: Encoding, sequences: SequenceSet, transform: Any, most: int) -> tuple[Any, Any, Any]:
    """Encode at most so many sequences, drawn by chance: values, targets where known, lengths where they differ."""
    if len(sequences) > most:
        chosen = np.sort(np.random.default_rng(0).permutation(len(sequences))[:most])
        sequences = sequences.take(chosen)
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

"""``sostenuto audit``: what a trained model remembers, whether it is stable, whether it can be fooled."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import ESTIMATORS, DataDirOption, JsonOption, QuietOption

if TYPE_CHECKING:
    from torch import nn

    from sostenuto.audits.audit import AuditReport
    from sostenuto.data.batch import SequenceBatch
    from sostenuto.data.dataset import SequenceSet
    from sostenuto.data.encoding import Encoding


@guarded
def audit(
    model: Annotated[
        str, typer.Argument(metavar="RUN|MODULE", help="A run folder, or package.module:name of a torch module.")
    ],
    data: Annotated[
        str, typer.Argument(metavar="[DATA]", help="A file or a data-set name; the run's own test part if left out.")
    ] = "",
    against: Annotated[Path | None, typer.Option(help="Another run, audited on the same data, beside it.")] = None,
    check: Annotated[list[str] | None, typer.Option(help="Only this check; may be given several times.")] = None,
    budget: Annotated[str, typer.Option(help="quick or full.")] = "quick",
    out: Annotated[Path | None, typer.Option(help="The page; RUN/audit.html if left out.")] = None,
    time_step: Annotated[float, typer.Option(help="Time between two steps.")] = 1.0,
    time_unit: Annotated[str, typer.Option(help="Its unit, in the plural.")] = "steps",
    target_unit: Annotated[str, typer.Option(help="Unit of a regression's target, for the page.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Audit a model and write one page: memory, stability, gradients, new data, noise, attack, weights, curvature."""
    from sostenuto.audits.page import save
    from sostenuto.checks import require
    from sostenuto.data.files.atomic import write_atomically

    options: dict[str, Any] = {"checks": check or "all", "budget": budget, "seed": seed}
    options |= {"time_step": time_step, "time_unit": time_unit, "target_unit": target_unit}
    options["progress"] = not quiet and not as_json
    folder = Path(model)
    if folder.is_dir() or ":" not in model:
        report = audit_run(folder, data, data_dir, options)
        page = out or folder / "audit.html"
    else:
        require(bool(data), "expected DATA beside a module", "got none", "name a file or a data set")
        require(against is None, "expected --against with a run", "got a module")
        report = _of_module(model, data, data_dir, options)
        page = out or Path("audit.html")
    other = None if against is None else audit_run(against, data, data_dir, options)
    save(report, page, against=other, name=str(model), other="" if against is None else str(against))
    write_atomically(page.with_suffix(".json"), report.to_json(indent=1))
    if as_json:
        print(report.to_json())
        return
    print(report.summary())
    print(f"The page is {page}")


def audit_run(folder: Path, data: str, data_dir: str | None, options: dict[str, Any]) -> "AuditReport":
    """Audit a run's model on its own test part, or on other data encoded as the run did.

    Its training part is opened too, for the generalization gap.
    """
    from sostenuto.checks import InputError, require
    from sostenuto.data.parts import divide
    from sostenuto.data.source import open_dataset, open_for_prediction
    from sostenuto.training.run_folder import MODEL, load_model, open_folder

    folder, config = open_folder(folder)
    require(
        config.model.layer not in (*ESTIMATORS, "forecaster"),
        "expected a run of a recurrent network",
        f"got one of {config.model.layer}, which has no trained state to audit",
        "fit one with --model unicornn, for one",
    )
    stored = load_model(folder / MODEL)
    parts = divide(
        open_dataset(config.data, data_dir=data_dir, seed=config.training.seed), config.data, seed=config.training.seed
    )
    transform = parts.whole.batch_transform
    if data:
        chosen, transform = open_for_prediction(config.data, data, data_dir=data_dir, seed=config.training.seed)
        name = data
    else:
        part, chosen = parts.held_out()
        name = f"{config.data.source}, {part} part"
    train = None if chosen is parts.train else parts.train
    try:
        return _ask(stored.model, stored.encoding, _Material(name, chosen, train, transform), options)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error


class _Material(NamedTuple):
    """What a model is audited on: a part of the data, the part it was trained on, what is done to every batch."""

    name: str
    chosen: "SequenceSet"
    train: "SequenceSet | None" = None
    transform: "Callable[[SequenceBatch], SequenceBatch] | None" = None


def _ask(model: "nn.Module", encoding: "Encoding", given: _Material, options: dict[str, Any]) -> "AuditReport":
    """Audit a model on what its encoding makes of the sequences; errors of a regression in the target's own unit."""
    from sostenuto.audits.adapter import adapt
    from sostenuto.audits.audit import audit as audited
    from sostenuto.audits.questions import BUDGETS
    from sostenuto.checks import check_choice, require

    require(
        not encoding.is_tokens,
        "expected a model of real-valued sequences",
        "got one of tokens, which have no small changes to audit",
        "ask so.audits.token_memory for its memory",
    )
    check_choice("budget", options.get("budget", "quick"), BUDGETS)
    most = BUDGETS[options.get("budget", "quick")].answers
    values, targets, lengths = _encoded(encoding, given.chosen, given.transform, most)
    parts: dict[str, Any] = {"lengths": lengths}
    if given.train is not None and targets is not None:
        parts["train"] = _encoded(encoding, given.train, given.transform, most)
    asked = model
    if encoding.task == "forecast":
        # A forecast of several steps is one answer of several numbers.
        asked = adapt(model, output=lambda found: found.flatten(1), lengths="lengths")
    if not encoding.classes:
        parts["target_scale"] = encoding.target_scale
    found = audited(asked, values, targets, **parts, **options)
    return replace(found, model=type(model).__name__, data=given.name, checksum=given.chosen.checksum())


def _encoded(encoding: "Encoding", sequences: "SequenceSet", transform: Any, most: int) -> tuple[Any, Any, Any]:
    """Encode at most so many sequences, spread evenly: values, targets where known, lengths where they differ."""
    import numpy as np

    from sostenuto.checks import require

    if len(sequences) > most:
        sequences = sequences.take(np.linspace(0, len(sequences) - 1, most).round().astype(int))
    batch = encoding.encode(sequences)
    batch = batch if transform is None else transform(batch)
    require(
        batch.timespans is None,
        "expected evenly sampled sequences",
        "got time spans, which the questions of an audit do not have",
    )
    targets = batch.targets
    if targets is not None and encoding.task == "forecast":
        targets = targets.flatten(1)
    ragged = bool((batch.lengths != batch.values.shape[1]).any())
    return batch.values, targets, batch.lengths if ragged else None


def _of_module(name: str, data: str, data_dir: str | None, options: dict[str, Any]) -> "AuditReport":
    """Audit a module of the user's own code: an instance, or a function or class that makes one without arguments.

    It reads and answers in the units of the data, unlike a run's model, whose encoding is known.
    """
    from torch import nn

    from sostenuto.checks import InputError, require
    from sostenuto.data.encoding import Encoding
    from sostenuto.data.source import open_dataset
    from sostenuto.training.config import DataConfig

    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"expected package.module:name of a torch module, got {name!r}: {error}.") from error
    model = found if isinstance(found, nn.Module) else found()
    good = isinstance(model, nn.Module)
    require(good, f"expected {name} to be or make a torch module", f"got {type(model).__name__}")
    dataset = open_dataset(DataConfig(source=data), data_dir=data_dir, seed=0)
    train = dataset.train if dataset.test is not None else None
    part = "train" if train is None else "test"
    material = _Material(f"{data}, {part} part", dataset.test or dataset.train, train, dataset.batch_transform)
    encoding = Encoding.fit(dataset.train, scaling="none")
    count = len(encoding.target_scale)
    encoding = replace(encoding, target_center=(0.0,) * count, target_scale=(1.0,) * count)
    return _ask(model, encoding, material, options)

"""``sostenuto audit``: what a trained model remembers, whether it is stable, whether it can be fooled."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import DataDirOption, JsonOption, QuietOption

if TYPE_CHECKING:
    from torch import nn

    from sostenuto.audits.audit import AuditReport
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
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Audit a model and write one page: memory, stability, gradients, noise, attack, weights, curvature."""
    from sostenuto.audits.page import save
    from sostenuto.checks import require
    from sostenuto.data.files.atomic import write_atomically

    options: dict[str, Any] = {"checks": check or "all", "budget": budget, "seed": seed}
    options |= {"time_step": time_step, "time_unit": time_unit, "progress": not quiet and not as_json}
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
    """Audit a run's model on its own test part, or on other data encoded as the run did."""
    from sostenuto.checks import require
    from sostenuto.training.data import open_dataset, open_for_prediction
    from sostenuto.training.run_folder import MODEL, load_model, open_folder

    folder, config = open_folder(folder)
    require(
        config.model.layer != "rntk",
        "expected a run of a recurrent network",
        "got a kernel machine, which has no state to audit",
    )
    stored = load_model(folder / MODEL)
    if data:
        sequences, _ = open_for_prediction(config.data, data, data_dir=data_dir, seed=config.training.seed)
    else:
        own = open_dataset(config.data, data_dir=data_dir, seed=config.training.seed)
        sequences = own.test or own.train
    return _ask(stored.model, stored.encoding, sequences, options)


def _ask(model: "nn.Module", encoding: "Encoding", sequences: "SequenceSet", options: dict[str, Any]) -> "AuditReport":
    from sostenuto.audits.audit import audit as audited

    batch = encoding.encode(sequences)
    ragged = bool((batch.lengths != batch.values.shape[1]).any())
    classes = batch.targets if encoding.classes and sequences.targets is not None else None
    return audited(model, batch.values, classes, lengths=batch.lengths if ragged else None, **options)


def _of_module(name: str, data: str, data_dir: str | None, options: dict[str, Any]) -> "AuditReport":
    """Audit a module of the user's own code: an instance, or a function or class that makes one without arguments."""
    from torch import nn

    from sostenuto.checks import InputError, require
    from sostenuto.data.encoding import Encoding
    from sostenuto.training.config import DataConfig
    from sostenuto.training.data import open_dataset

    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"expected package.module:name of a torch module, got {name!r}: {error}.") from error
    model = found if isinstance(found, nn.Module) else found()
    good = isinstance(model, nn.Module)
    require(good, f"expected {name} to be or make a torch module", f"got {type(model).__name__}")
    dataset = open_dataset(DataConfig(source=data), data_dir=data_dir, seed=0)
    return _ask(model, Encoding.fit(dataset.train), dataset.test or dataset.train, options)

"""``sostenuto audit``: what a trained model remembers, whether it is stable, whether it can be fooled."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sostenuto.cli.errors import guarded
from sostenuto.cli.options import DataDirOption, JsonOption, QuietOption


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
    from sostenuto.audits.runs import audit_module, audit_run
    from sostenuto.checks import require
    from sostenuto.data.files.atomic import write_atomically

    options: dict[str, Any] = {"data_dir": data_dir, "checks": check or "all", "budget": budget, "seed": seed}
    options |= {"time_step": time_step, "time_unit": time_unit, "target_unit": target_unit}
    options["progress"] = not quiet and not as_json
    folder = Path(model)
    if folder.is_dir() or ":" not in model:
        report = audit_run(folder, data, **options)
        page = out or folder / "audit.html"
    else:
        require(bool(data), "expected DATA beside a module", "got none", "name a file or a data set")
        require(against is None, "expected --against with a run", "got a module")
        report = audit_module(model, data, **options)
        page = out or Path("audit.html")
    other = None if against is None else audit_run(against, data, **options)
    save(report, page, against=other, name=str(model), other="" if against is None else str(against))
    write_atomically(page.with_suffix(".json"), report.to_json(indent=1))
    if as_json:
        print(report.to_json())
        return
    print(report.summary())
    print(f"The page is {page}")

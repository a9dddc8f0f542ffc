"""``sostenuto audit``: what a trained model remembers, whether it is stable, whether it can be fooled."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sostenuto.checks import require
from sostenuto.cli.errors import ended, guarded
from sostenuto.cli.options import DataDirOption, JsonOption, QuietOption, check_output

CONDITION_MET = 3


@guarded
def audit(
    model: Annotated[
        str, typer.Argument(metavar="RUN|MODULE", help="A run folder, or package.module:name of a torch module.")
    ],
    data: Annotated[
        str, typer.Argument(metavar="[DATA]", help="A file or a data-set name; default: the run's own test part.")
    ] = "",
    against: Annotated[str, typer.Option(help="Another run or module to audit on the same data, for comparison.")] = "",
    weights: Annotated[Path | None, typer.Option(help="Weights of the module, a safetensors file.")] = None,
    against_weights: Annotated[Path | None, typer.Option(help="Weights of the module to compare with.")] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Audit a module class with its initial weights.")
    ] = False,
    check: Annotated[list[str] | None, typer.Option(help="Run this check only. Repeatable.")] = None,
    budget: Annotated[str, typer.Option(help="Effort: quick or full.")] = "quick",
    max_seconds: Annotated[float | None, typer.Option(help="Time limit, kept by an estimate.")] = None,
    thresholds: Annotated[Path | None, typer.Option(help="A TOML file of thresholds, a table per check.")] = None,
    fail_if: Annotated[
        str, typer.Option(help='Exit with code 3 on any of these conditions, e.g. "memory<500,attack>0.2".')
    ] = "",
    out: Annotated[Path | None, typer.Option(help="HTML page to write; default: RUN/audit.html.")] = None,
    card: Annotated[Path | None, typer.Option(help="Also write a model card in Markdown.")] = None,
    time_step: Annotated[float, typer.Option(help="Sampling interval.")] = 1.0,
    time_unit: Annotated[str, typer.Option(help="Unit of the sampling interval, in the plural.")] = "steps",
    target_unit: Annotated[str, typer.Option(help="Unit of a regression target, shown on the page.")] = "",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Audit a model and write one page: skill, memory, stability, gradients, new data, noise, attack, weights."""
    from sostenuto.audits.card import model_card
    from sostenuto.audits.checks import all_thresholds, read_thresholds
    from sostenuto.audits.conditions import failures, read_conditions
    from sostenuto.audits.page import save
    from sostenuto.audits.sources import audit_source, check_named, names_module
    from sostenuto.data.files.atomic import write_atomically
    from sostenuto.estimators.runs import load_fitted

    conditions = read_conditions(fail_if) if fail_if else []
    limits = None if thresholds is None else read_thresholds(thresholds)
    all_thresholds(limits)
    options: dict[str, Any] = {"checks": check or "all", "budget": budget, "seed": seed, "thresholds": limits}
    options |= {"time_step": time_step, "time_unit": time_unit, "target_unit": target_unit}
    options |= {"max_seconds": max_seconds, "progress": not quiet and not as_json}
    page = out or (Path(model) / "audit.html" if Path(model).is_dir() else Path("audit.html"))
    for path in (page, page.with_suffix(".json"), *([] if card is None else [card])):
        check_output(path, data, Path(model))
        require(path.parent.is_dir(), f"{path}: expected a folder to write into", "got none", "create it first")
    check_named(against, data, "--against-weights", weighted=against_weights is not None)
    report = audit_source(model, data, data_dir, options, weights=weights, untrained=untrained, load=load_fitted)
    other = None
    if against:
        random = untrained and names_module(against)
        other = audit_source(
            against, data, data_dir, options, weights=against_weights, untrained=random, load=load_fitted
        )
    save(report, page, against=other, name=model, other=against)
    write_atomically(page.with_suffix(".json"), report.to_json(indent=1))
    if card is not None:
        write_atomically(card, model_card(report))
    if as_json:
        print(report.to_json())
    else:
        print(report.summary())
        print(f"The page is {page}")
    met = failures(report, conditions)
    if met:
        raise ended(f"the audit fails: {'; '.join(met)}.", CONDITION_MET)

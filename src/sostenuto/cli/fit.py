"""``sostenuto fit``: from data to a trained model and its report."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sostenuto.cli.errors import DIVERGED, ended, guarded
from sostenuto.cli.options import (
    DataArgument,
    DataDirOption,
    DeviceOption,
    JsonOption,
    LayerOption,
    QuietOption,
    SettingOption,
    add_named,
    named_values,
    seconds,
    takes_settings,
)
from sostenuto.cli.tables import table
from sostenuto.nn import LAYERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sostenuto.report.section import Section

_MODELS = (
    "auto chooses among oscillators, rntk and stack. Or one by name: oscillators (random features, fitted in seconds), "
    "rntk (a kernel machine), forecaster (the default of --task forecast), or a layer to train: "
    f"{', '.join(LAYERS)}. Default: auto, or stack if an option of trained networks such as --epochs is given."
)


@guarded
@takes_settings(data=(), model=(), training=())
def fit(
    settings: dict[str, dict[str, Any]],
    data: DataArgument = None,
    model: Annotated[str, typer.Option(help=_MODELS)] = "",
    hidden_size: Annotated[int | None, typer.Option(help="Units per layer.")] = None,
    num_layers: Annotated[int | None, typer.Option(help="Number of layers.")] = None,
    half_life: Annotated[
        str | None,
        typer.Option(help="Certified half-life of the layer's memory, in steps or as time such as 2.5s, 5m, 1h."),
    ] = None,
    option: LayerOption = None,
    setting: SettingOption = None,
    budget: Annotated[str, typer.Option(help="Time budget of the model selection: 60s, 5m, 1h.")] = "60s",
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/DATA-MODEL.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume this run.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in --out.")] = False,
    config: Annotated[
        Path | None, typer.Option(help="A config.toml to start from; command-line options override it.")
    ] = None,
    probe: Annotated[
        list[str] | None, typer.Option(help="Log weight_norms or recurrent_spectra every epoch. Repeatable.")
    ] = None,
    audit: Annotated[str, typer.Option(help="Audit the fitted model on the same page: quick or full.")] = "",
    compare: Annotated[
        list[str] | None,
        typer.Option(help="Another layer to train within --budget and compare on the page. Repeatable."),
    ] = None,
    data_dir: DataDirOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fit a model to sequences and write a report.

    Without DATA it uses the embedded sequential digits: real data, no download.
    """
    from sostenuto.estimators.runs import Conditions
    from sostenuto.estimators.runs.fit import FitRequest, fit_run

    add_named(settings, setting)
    sizes = {"hidden_size": hidden_size, "num_layers": num_layers}
    settings["options"] = {name: size for name, size in sizes.items() if size is not None}
    settings["options"] |= _promise(half_life) | named_values(option)
    settings["data"] |= {} if data is None else {"source": data}
    settings["model"] |= {"layer": model} if model else {}
    shows = not quiet and not as_json
    goes_on, changed = resume is not None, bool(settings["training"])
    conditions = Conditions(device, data_dir, goes_on, goes_on and changed, tuple(probe or ()), shows)
    request = FitRequest(settings, config, out, overwrite, seconds(budget), tuple(compare or ()), conditions)
    fitted = fit_run(request, resume=resume, audit=_auditor(audit, data_dir, shows=shows) if audit else None)
    if fitted is None:
        return
    print(json.dumps(fitted.facts, allow_nan=False) if as_json else table(fitted.rows))
    if fitted.diverged:
        raise ended(f"training diverged, and the weights from before it were kept: {fitted.diverged}", DIVERGED)


def _promise(half_life: str | None) -> dict[str, float]:
    """Read a half-life in steps, or in seconds where a unit follows."""
    if half_life is None:
        return {}
    return {"half_life" if half_life[-1:].isdigit() else "half_life_seconds": seconds(half_life, unitless="steps or ")}


def _auditor(budget: str, data_dir: str | None, *, shows: bool) -> "Callable[[Path], list[Section]]":
    """Make what audits a run: its numbers go beside the page, its verdicts and figures onto it."""
    from typing import get_args

    from sostenuto.audits.page import audit_sections, verdict_section
    from sostenuto.audits.sources import audit_run
    from sostenuto.checks import check_choice
    from sostenuto.choices import Budget
    from sostenuto.data.files.atomic import write_atomically
    from sostenuto.estimators.runs import load_fitted

    check_choice("audit", budget, get_args(Budget))

    def audited(folder: Path) -> "list[Section]":
        report = audit_run(folder, "", data_dir, {"budget": budget, "progress": shows}, load=load_fitted)
        write_atomically(folder / "audit.json", report.to_json(indent=1))
        return [verdict_section(report), *audit_sections(report)]

    return audited

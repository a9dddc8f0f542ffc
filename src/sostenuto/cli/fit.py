"""``sostenuto fit``: from data to a trained model and its report."""

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sostenuto.cli.errors import DIVERGED, ended, guarded
from sostenuto.cli.forecast import FORECASTER, fit_forecaster, free_folder, is_plain_forecast
from sostenuto.cli.options import (
    ESTIMATORS,
    CategoricalOption,
    DataArgument,
    DataDirOption,
    DeviceOption,
    GroupOption,
    IgnoreOption,
    JsonOption,
    LayerOption,
    LayoutOption,
    QuietOption,
    SeriesOption,
    SettingOption,
    TargetOption,
    TaskOption,
    TimeOption,
    TimespansOption,
    named_values,
    seconds,
    section,
)
from sostenuto.cli.tables import table

if TYPE_CHECKING:
    from sostenuto.data.dataset import Dataset
    from sostenuto.estimators.choice import Choice
    from sostenuto.report.section import Section
    from sostenuto.results import FitResult
    from sostenuto.training.config import RunConfig


@guarded
def fit(
    data: DataArgument = None,
    test: Annotated[str, typer.Option(help="A file with the test part.")] = "",
    model: Annotated[
        str,
        typer.Option(
            help="auto chooses among oscillators, rntk and unicornn; or one by name: oscillators (random, fitted in "
            "seconds), rntk (a kernel machine), forecaster (for --task forecast, and its default), or a layer to "
            "train: unicornn, lipschitz, antisymmetric, residual, stable, cornn, exprnn, indrnn, sru, residual-gru, "
            "residual-lstm, lstm, gru, rnn. Left out: auto, or "
            "unicornn where an option of a trained network such as --epochs is given."
        ),
    ] = "",
    budget: Annotated[str, typer.Option(help="Time for the choice among models: 60s, 5m, 1h.")] = "60s",
    epochs: Annotated[int | None, typer.Option(help="Passes over the training part.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/DATA-MODEL if left out.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run where it was stopped.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in --out.")] = False,
    config: Annotated[
        Path | None, typer.Option(help="A config.toml to start from; command-line options override it.")
    ] = None,
    hidden_size: Annotated[int | None, typer.Option(help="Units of a layer.")] = None,
    num_layers: Annotated[int | None, typer.Option(help="Layers stacked.")] = None,
    half_life: Annotated[float | None, typer.Option(help="Steps that the layer provably remembers.")] = None,
    readout: Annotated[str, typer.Option(help="last, mean or max of the states.")] = "",
    option: LayerOption = None,
    setting: SettingOption = None,
    batch_size: Annotated[int | None, typer.Option(help="Sequences in one step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after so many epochs without a better score.")] = None,
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "",
    task: TaskOption = "",
    layout: LayoutOption = "",
    target: TargetOption = "",
    series: SeriesOption = "",
    time: TimeOption = "",
    group: GroupOption = "",
    ignore: IgnoreOption = None,
    categorical: CategoricalOption = None,
    timespans: TimespansOption = "",
    missing: Annotated[str, typer.Option(help="What to do with NaN: refuse, mask or interpolate.")] = "",
    scaling: Annotated[str, typer.Option(help="standard, minmax or none.")] = "",
    validation: Annotated[float | None, typer.Option(help="Fraction of the training part held out.")] = None,
    split: Annotated[str, typer.Option(help="stratified, random, group or time.")] = "",
    window: Annotated[int | None, typer.Option(help="Steps of a forecasting window.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps to forecast.")] = None,
    probe: Annotated[
        list[str] | None, typer.Option(help="weight_norms or recurrent_spectra, logged each epoch.")
    ] = None,
    audit: Annotated[str, typer.Option(help="quick or full: audit the model too, on the same page.")] = "",
    compare: Annotated[
        list[str] | None,
        typer.Option(help="A layer to train beside it, within --budget, for a table on the page. Repeatable."),
    ] = None,
    data_dir: DataDirOption = None,
    device: DeviceOption = "auto",
    seed: Annotated[int | None, typer.Option(help="Seed of weights, shuffling, dropout and splits.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fit a model to sequences and write a report.

    With no DATA the embedded sequential digits are used: real data, no download.
    """
    from sostenuto.checks import check_choice, require, shown
    from sostenuto.cli.compare import check_compared, train_compared
    from sostenuto.estimators.choice import choose_model
    from sostenuto.training.config import RunConfig
    from sostenuto.training.data import open_dataset
    from sostenuto.training.probes import PROBES
    from sostenuto.training.processes import main_decides
    from sostenuto.training.run import run
    from sostenuto.training.run_folder import create_folder, open_folder

    for name in probe or []:
        check_choice("probe", name, PROBES)
    if audit:
        check_choice("audit", audit, ("quick", "full"))
    check_compared(compare or [])
    limit = seconds(budget)
    extra = named_values(setting)
    require(
        all(name.split(".")[0] in ("data", "training") for name in extra),
        "expected --set data.NAME=VALUE or training.NAME=VALUE",
        f"got {', '.join(extra)}",
        "options of the layer are set with --option",
    )
    said = {
        "data": {
            "source": data,
            "test": test,
            "task": task,
            "layout": layout,
            "target": target,
            "series": series,
            "time": time,
            "group": group,
            "ignore": ignore or None,
            "categorical": categorical or None,
            "timespans": timespans,
            "missing": missing,
            "scaling": scaling,
            "validation": validation,
            "split": split,
            "window": window,
            "horizon": horizon,
            **section(extra, "data"),
        },
        "options": {
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "half_life": half_life,
            **named_values(option),
        },
        "training": {
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "patience": patience,
            "precision": precision,
            "seed": seed,
            **section(extra, "training"),
        },
        "model": {"layer": model, "readout": readout},
    }
    said = {name: {key: v for key, v in values.items() if v not in (None, "")} for name, values in said.items()}
    choice = None
    if resume is not None:
        given = [key for values in said.values() for key in values]
        given += [name for name, value in (("config", config), ("out", out), ("overwrite", overwrite)) if value]
        cure = "start a new run with them"
        require(not given, "expected --resume alone", f"got settings too ({shown(given)})", cure)
        _, settings = open_folder(resume)
        if settings.model.layer == FORECASTER:
            fit_forecaster(said, out, resume=resume, as_json=as_json)
            return
        dataset = open_dataset(settings.data, data_dir=data_dir, seed=settings.training.seed)
    else:
        start = RunConfig.load(config) if config is not None else None
        written = tomllib.loads(config.read_text(encoding="utf-8")) if config is not None else {}
        if config is None and is_plain_forecast(said, looks_inside=bool(probe or audit)):
            fit_forecaster(said, out, overwrite=overwrite, as_json=as_json)
            return
        if not model and config is None:
            said["model"]["layer"] = "unicornn" if probe or audit or _of_a_network(said) else "auto"
        settings, dataset = _new_settings(start, written, said, data_dir)
        if settings.model.layer == "auto":
            choice = choose_model(dataset, settings.data, seed=settings.training.seed, budget=limit, device=device)
            settings = choice.config

    def make_folder() -> Path:
        return create_folder(out or free_folder(dataset.name, settings.model.layer), overwrite=overwrite)

    shows = not quiet and not as_json
    made = make_folder if resume is None else lambda: resume
    if settings.model.layer in ESTIMATORS:
        given = [name for name, value in (("probe", probe), ("audit", audit)) if value]
        require(not given, f"expected options that {settings.model.layer} has", f"got {shown(given)}")
        fitted = _fit_estimator(dataset, settings, made(), resume=resume is not None, progress=shows)
    else:
        probes = {name: PROBES[name] for name in probe or []}
        folder = made() if resume is not None else main_decides(made, device)
        result = run(dataset, settings, folder, resume=resume is not None, device=device, probes=probes, progress=shows)
        if result is None:
            return
        sections = _audited(folder, data_dir, audit, progress=shows) if audit else []
        fitted = _Fitted(result, folder, sections)
    if compare:
        from sostenuto.report.contents.compare import comparison_section

        others = train_compared(compare, dataset, settings, fitted.folder, limit, device=device, progress=shows)
        beside = comparison_section(fitted.result, others)
        fitted = fitted._replace(sections=[beside, *fitted.sections], others=tuple(others))
    _show(fitted, choice, limit, as_json=as_json)


def _of_a_network(said: dict[str, dict[str, Any]]) -> bool:
    """Say whether something was said that only a trained network has."""
    return bool(said["options"] or said["model"] or set(said["training"]) - {"seed"})


class _Fitted(NamedTuple):
    """What a fit gave: its result, its folder, and what its page shows beside it."""

    result: "FitResult"
    folder: Path
    sections: "list[Section]"
    others: "tuple[FitResult, ...]" = ()


def _show(fitted: _Fitted, choice: "Choice | None", limit: float, *, as_json: bool) -> None:
    """Write the page and say what was found; a training that diverged ends with an exit code of its own."""
    from sostenuto.data.files.atomic import write_atomically
    from sostenuto.report.contents.choice import choice_section
    from sostenuto.report.page import save

    result, folder, sections, _ = fitted
    if choice is not None:
        is_accuracy = result.classification is not None
        chosen = choice_section(choice.candidates, choice.name, is_accuracy=is_accuracy, budget=limit)
        sections = [chosen, *sections]
        listed = [candidate.to_dict() for candidate in choice.candidates]
        write_atomically(folder / "choice.json", json.dumps(listed, indent=1))
    report = save(result, folder / "report.html", sections=sections)
    print(json.dumps(_summary(fitted, report), allow_nan=False) if as_json else _table(fitted, report))
    if result.diverged:
        raise ended(f"training diverged, and the weights from before it were kept: {result.diverged}", DIVERGED)


def _audited(folder: Path, data_dir: str | None, budget: str, *, progress: bool) -> "list[Section]":
    """Audit the run on its test part; its numbers go beside the page, its verdicts and figures onto it."""
    from sostenuto.audits.page import audit_sections, verdict_section
    from sostenuto.audits.sources import audit_run
    from sostenuto.data.files.atomic import write_atomically

    found = audit_run(folder, "", data_dir, {"budget": budget, "progress": progress})
    write_atomically(folder / "audit.json", found.to_json(indent=1))
    return [verdict_section(found), *audit_sections(found)]


def _new_settings(
    start: "RunConfig | None", written: dict[str, Any], said: dict[str, dict[str, Any]], data_dir: str | None
) -> "tuple[RunConfig, Dataset]":
    """Put what was said on the command line over the config file, and both over the recipe of the layer and the task.

    ``start`` is what the file means where nothing else counts, ``written`` the keys that stand in it.
    """
    from sostenuto.checks import check_choice, require
    from sostenuto.estimators.choice import can_choose
    from sostenuto.estimators.estimator_run import estimator_config
    from sostenuto.nn import LAYERS
    from sostenuto.training import recipes
    from sostenuto.training.config import ModelConfig, RunConfig, overlaid
    from sostenuto.training.data import absolute, open_dataset, training_count

    base = start or RunConfig()
    data = absolute(overlaid(base.data, {"checksum": "", **said["data"]}))
    dataset = open_dataset(data, data_dir=data_dir, seed=said["training"].get("seed", base.training.seed))
    layer = said["model"].get("layer", base.model.layer)
    check_choice("model", layer, ("auto", *ESTIMATORS, *LAYERS))
    if layer == "auto" and not can_choose(dataset):
        layer = said["model"]["layer"] = ModelConfig.layer
    if layer in ("auto", *ESTIMATORS):
        return estimator_config(layer, base, data, said), dataset
    require(
        dataset.train.timespans is None or LAYERS[layer].continuous,
        f"expected evenly spaced times for {layer}, which is a discrete map",
        "got uneven ones",
        "pass timespans='ignore', or choose a model of continuous time such as unicornn",
    )
    model = written.get("model", {}) if layer == base.model.layer else {}
    options = {**model.get("options", {}), **said["options"]}
    chosen = {
        "model": {name: value for name, value in model.items() if name != "options"} | said["model"],
        "options": options,
        "training": {**written.get("training", {}), **said["training"]},
    }
    return recipes.run_config(data, dataset.train, training_count(dataset, data), chosen), dataset


def _fit_estimator(dataset: "Dataset", settings: "RunConfig", folder: Path, *, resume: bool, progress: bool) -> _Fitted:
    """Fit a model that is not trained; the folder and the page are of the same kind."""
    from sostenuto.estimators.estimator_run import run_estimator
    from sostenuto.report.contents.kernel import kernel_section
    from sostenuto.report.contents.oscillators import oscillator_section
    from sostenuto.results import KernelSummary

    result, summary = run_estimator(dataset, settings, folder, resume=resume, progress=progress)
    if isinstance(summary, KernelSummary):
        return _Fitted(result, folder, [kernel_section(summary, result.data.classes)])
    return _Fitted(result, folder, [oscillator_section(summary)])


def _summary(fitted: _Fitted, report: Path) -> dict[str, Any]:
    result = fitted.result
    plain = result.to_dict()
    baselines = [{"name": b["name"], "score": b["score"]} for b in plain["baselines"]]
    compared = [{"name": one.model, "score": one.score} for one in fitted.others]
    kept = ("model", "num_parameters", "metric", "score", "evaluated_on", "seconds")
    return {"run": str(report.parent), **{name: plain[name] for name in kept}} | {
        "data": result.data.name,
        "checksum": result.data.checksum,
        "best_epoch": result.curve.best_epoch,
        "balanced_accuracy": result.classification.balanced_accuracy if result.classification else None,
        "diverged": result.diverged,
        "baselines": baselines,
        "compared": compared,
        "report": str(report),
    }


def _table(fitted: _Fitted, report: Path) -> str:
    result, data = fitted.result, fitted.result.data
    rows: list[tuple[str, object]] = [
        ("data", f"{data.name}: {data.num_train} + {data.num_validation} + {data.num_test} sequences"),
        ("model", f"{result.model}, {result.num_parameters:,} parameters"),
        (f"{result.evaluated_on} {result.metric}", f"{result.score:.4f}"),
        *_class_rows(result),
        *((f"  {baseline.name}", f"{baseline.score:.4f}") for baseline in result.baselines),
        *((f"  {one.model}", f"{one.score:.4f}") for one in fitted.others),
        ("training", f"{_epochs(result)}{result.seconds:.1f} s"),
        ("report", report),
    ]
    return table(rows)


def _class_rows(result: "FitResult") -> list[tuple[str, object]]:
    """Show what accuracy hides: the mean over classes, and how many of the rare ones were found."""
    from sostenuto.report.judgment import found_words, rare_classes

    if result.classification is None:
        return []
    rare = [(f"  recall of {one.name}", f"{one.recall:.4f} ({found_words(one)})") for one in rare_classes(result)[:2]]
    return [("  balanced accuracy", f"{result.classification.balanced_accuracy:.4f}"), *rare]


def _epochs(result: "FitResult") -> str:
    return f"{len(result.curve.epochs)} epochs in " if result.curve.epochs else ""

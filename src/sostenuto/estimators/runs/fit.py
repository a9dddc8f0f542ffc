"""From what was asked of a fit to a finished run: settings, data, a choice among models, and a folder."""

import json
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sostenuto.checks import check_choice, require, shown
from sostenuto.data.dataset import Dataset
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.parts import divide, training_count
from sostenuto.data.source import absolute
from sostenuto.estimators.runs import (
    AUTO,
    FORECASTER,
    NETWORK,
    Chosen,
    Conditions,
    FittedRun,
    Model,
    is_plain_forecast,
    model_of,
    named_models,
)
from sostenuto.nn import LAYERS
from sostenuto.report.contents.comparison import choice_reason, choice_section, others_section
from sostenuto.report.page import render
from sostenuto.report.section import Section
from sostenuto.results import Candidate, FitResult
from sostenuto.training import recipes
from sostenuto.training.config import DataConfig, RunConfig, overlaid
from sostenuto.training.probes import PROBES
from sostenuto.training.processes import main_decides
from sostenuto.training.run import fit_parts, run
from sostenuto.training.run_folder import new_folder, open_folder, run_folder


def train_compared(
    names: tuple[str, ...], dataset: Dataset, settings: RunConfig, folder: Path, limit: float, conditions: Conditions
) -> list[FitResult]:
    """Train every layer by its recipe on the same parts, into a run folder of its own inside ``folder``.

    There are as many epochs as the recipe asks for, or as few as fit into ``limit`` seconds.
    """
    data = replace(settings.data, validation=DataConfig.validation)
    device, results = conditions.device, []
    for name in names:
        chosen = {"model": {"layer": name}, "training": {"seed": settings.training.seed}}
        config = recipes.run_config(data, dataset.train, training_count(dataset, data), chosen)
        epochs = min(config.training.epochs, max(1, int(limit / _epoch_seconds(dataset, config, device))))
        # The schedule of the learning rate is over these epochs.
        config = replace(config, training=replace(config.training, epochs=epochs))
        with run_folder(folder / name, overwrite=True) as place:
            result = run(dataset, config, place, device=device, progress=conditions.progress)
            if result is not None:
                write_atomically(place / "report.html", render(result))
                results.append(result)
    return results


def _epoch_seconds(dataset: Dataset, config: RunConfig, device: str) -> float:
    """Say how long an epoch takes, from one over a few batches, after one that compiles what has to be."""
    parts = divide(dataset, config.data, seed=config.training.seed)
    few = min(len(parts.train), 4 * config.training.batch_size)
    sample = replace(parts, train=parts.train.take(np.arange(few)), validation=None)
    short = replace(config, training=replace(config.training, epochs=1))
    fit_parts(sample, short, device=device, progress=False)
    seconds = fit_parts(sample, short, device=device, progress=False).progress.seconds
    return seconds * len(parts.train) / few


Audit = Callable[[Path], Sequence[Section]]
"""Audits a run and gives the sections of the page that say what it found."""


@dataclass(frozen=True)
class FitRequest:
    """What is asked of a fit: settings by section, and where the run goes."""

    chosen: Chosen
    config: Path | None = None
    out: Path | None = None
    overwrite: bool = False
    budget: float = 60.0
    compare: tuple[str, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, eq=False)
class Plan:
    """A fit with everything settled before a file is written."""

    model: Model
    config: RunConfig
    dataset: Dataset | None
    candidates: tuple[Candidate, ...] = ()
    rule: str = ""


def fit_run(request: FitRequest, *, resume: Path | None = None, audit: Audit | None = None) -> FittedRun | None:
    """Fit and leave a whole run with its page in a folder; None in every process but the first."""
    for option, names, known in (("probe", request.conditions.probes, PROBES), ("compare", request.compare, LAYERS)):
        for name in names:
            check_choice(option, name, known)
    plan = _resumed(request, resume) if resume is not None else _planned(request, looks_inside=audit is not None)
    refused = ["probe"] if request.conditions.probes and not plan.model.has_states else []
    refused += ["audit"] if audit is not None and plan.dataset is None else []
    require(not refused, f"expected options that {plan.config.model.layer} has", f"got {shown(refused)}")

    def enter() -> Path:
        name = Path(plan.config.data.source).stem if plan.dataset is None else plan.dataset.name
        folder = resume or request.out or new_folder(name, plan.config.model.layer)
        return stack.enter_context(run_folder(folder, overwrite=request.overwrite, resume=resume is not None))

    with ExitStack() as stack:
        folder = main_decides(enter, request.conditions.device)
        fitted = plan.model.fit(plan.dataset, plan.config, folder, request.conditions)
        if fitted is not None:
            sections = [] if audit is None else list(audit(folder))
            _write_page(plan, fitted, [*_compared(request, plan, fitted), *sections], request.budget)
    return fitted


def _resumed(request: FitRequest, folder: Path) -> Plan:
    """Take the run's own settings, and those of the training that were chosen anew."""
    chosen = request.chosen
    keys = [key for name, values in chosen.items() if name != "training" for key in values]
    keys += ["seed"] if "seed" in chosen["training"] else []
    keys += [name for name in ("config", "out", "overwrite") if getattr(request, name)]
    require(
        not keys,
        "expected --resume with settings of the training alone, such as --learning-rate",
        f"got others too ({shown(keys)})",
        "start a new run with them",
    )
    _, config = open_folder(folder)
    model = model_of(config.model.layer)
    changed = chosen["training"]
    require(
        not changed or model.has_states, f"expected --resume alone for {config.model.layer}", f"got {shown([*changed])}"
    )
    config = replace(config, training=overlaid(config.training, changed))
    return Plan(model, config, model.open(config.data, config.training.seed, request.conditions))


def _planned(request: FitRequest, *, looks_inside: bool) -> Plan:
    """Put what was chosen over the config file, and both over the recipe of the model and the task."""
    chosen, path = request.chosen, request.config
    base = RunConfig() if path is None else RunConfig.load(path)
    written: dict[str, Any] = {} if path is None else tomllib.loads(path.read_text(encoding="utf-8"))
    layer = _layer(request, base, looks_inside=looks_inside or bool(request.conditions.probes))
    chosen = {**chosen, "model": {**chosen["model"], "layer": layer}}
    data = absolute(overlaid(base.data, {"checksum": "", **chosen["data"]}))
    seed = chosen["training"].get("seed", base.training.seed)
    model = model_of(layer)
    dataset = model.open(data, seed, request.conditions)
    if dataset is None or layer != AUTO:
        return Plan(model, model.settings(base, written, chosen, data, dataset), dataset)
    return _chosen_plan(request, base, chosen, data, dataset)


def _layer(request: FitRequest, base: RunConfig, *, looks_inside: bool) -> str:
    """Name the model: a network where nothing was named but something that only a network has."""
    chosen = request.chosen
    named = chosen["model"].get("layer", "")
    if request.config is not None:
        return named or base.model.layer
    if is_plain_forecast(chosen, looks_inside=looks_inside):
        return FORECASTER
    of_a_network = looks_inside or chosen["options"] or chosen["model"] or set(chosen["training"]) - {"seed"}
    layer = named or (NETWORK if of_a_network else AUTO)
    check_choice("model", layer, named_models())
    return layer


def _chosen_plan(request: FitRequest, base: RunConfig, chosen: Chosen, data: DataConfig, dataset: Dataset) -> Plan:
    """Choose among the models that suit the data, within the budget."""
    from sostenuto.estimators.runs.choice import RULE, can_choose, choose_model

    if not can_choose(dataset):
        chosen = {**chosen, "model": {**chosen["model"], "layer": NETWORK}}
        model = model_of(NETWORK)
        return Plan(model, model.settings(base, {}, chosen, data, dataset), dataset)
    settings = model_of("oscillators").settings(base, {}, chosen, data, dataset)
    seed, device = settings.training.seed, request.conditions.device
    choice = choose_model(dataset, settings.data, seed=seed, budget=request.budget, device=device)
    return Plan(model_of(choice.name), choice.config, dataset, choice.candidates, RULE)


def _compared(request: FitRequest, plan: Plan, fitted: FittedRun) -> list[Section]:
    """Train other networks beside the model where they were asked for, and say so in a section and everywhere else."""
    if not request.compare:
        return []
    require(plan.dataset is not None, "expected sequences with targets for --compare", "got series to forecast")
    assert plan.dataset is not None
    assert fitted.result is not None
    # A chosen network stands on the page already.
    names = tuple(name for name in request.compare if not plan.candidates or name != plan.config.model.layer)
    limit = request.budget
    others = train_compared(names, plan.dataset, plan.config, fitted.folder, limit, request.conditions)
    fitted.facts["compared"] = [{"name": other.model, "score": other.score} for other in others]
    fitted.rows[-2:-2] = [(f"  {other.model}", f"{other.score:.4f}") for other in others]
    return [others_section(fitted.result, others)]


def _write_page(plan: Plan, fitted: FittedRun, sections: Sequence[Section], budget: float) -> None:
    """Write the page; where a model was chosen, it says why."""
    if plan.candidates:
        listed = [candidate.to_dict() for candidate in plan.candidates]
        write_atomically(fitted.folder / "choice.json", json.dumps(listed, indent=1))
        name = plan.config.model.layer
        known = {"is_accuracy": bool(fitted.result and fitted.result.classification), "budget": budget}
        fitted.facts["candidates"], fitted.facts["rule"] = listed, plan.rule
        fitted.rows[2:2] = [("choice", choice_reason(plan.candidates, name, **known)), ("", plan.rule)]
        sections = [choice_section(plan.candidates, name, rule=plan.rule, **known), *sections]
    write_atomically(fitted.folder / "report.html", fitted.page(sections))

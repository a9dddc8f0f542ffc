"""Search for settings by cross-validation; the test part is never looked at."""

import functools
import hashlib
import json
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from tqdm import tqdm

from sostenuto.checks import InputError, MissingExtraError, SostenutoError, check_choice, check_count, require
from sostenuto.data.dataset import Dataset
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.parts import Parts, divide
from sostenuto.data.splits import fold_indices
from sostenuto.training.config import RunConfig
from sostenuto.training.run import fit_parts

Choice = tuple[str, tuple[Any, ...]]
"""How a setting is drawn: ("log", (low, high)), ("uniform", (low, high)) or ("choice", values)."""

Evaluate = Callable[[RunConfig], dict[str, Any]]
"""Gives a row with the ``"score"`` of a config, the higher the better; None with a ``"reason"`` where it failed."""

_COMMON: dict[str, Choice] = {
    "training.learning_rate": ("log", (1e-3, 5e-2)),
    "training.batch_size": ("choice", (16, 32, 64, 128)),
    "options.hidden_size": ("choice", (32, 64, 128)),
}
SPACES: dict[str, dict[str, Choice]] = {
    "stack": _COMMON
    | {
        "training.learning_rate": ("log", (1e-3, 2e-2)),
        "options.hidden_size": ("choice", (32, 48, 64)),
        "options.num_layers": ("choice", (2, 3, 4)),
        "options.dropout": ("uniform", (0.0, 0.3)),
        "model.readout": ("choice", ("last", "mean", "max")),
    },
    "unicornn": _COMMON
    | {
        "options.num_layers": ("choice", (1, 2, 3)),
        "options.dropout": ("uniform", (0.0, 0.3)),
        # Together within the stability limit of the oscillators, step_size/2 · √stiffness < 2.
        "options.step_size": ("log", (0.05, 1.0)),
        "options.stiffness": ("log", (0.1, 15.0)),
        "model.readout": ("choice", ("last", "mean", "max")),
    },
}
"""What is searched for each layer; layers not named here search the common settings and the number of layers."""


def search(
    dataset: Dataset,
    config: RunConfig,
    folder: Path,
    *,
    trials: int = 20,
    sampler: str = "random",
    folds: int = 3,
    device: str = "auto",
    progress: bool = True,
    space: dict[str, Choice] | None = None,
    evaluate: Evaluate | None = None,
) -> list[dict[str, Any]]:
    """Try ``trials`` settings and return them best first; ``folder`` gets ``trials.jsonl`` and ``best.toml``.

    Trial 0 is ``config`` as it is, so that what is found is never worse by the score. The score is the mean over
    ``folds`` parts of the data outside the test part, each held out once; where a validation part is given, or the
    split is one in time, it is that of the one validation part. Random draws are a function of the seed and the
    trial's number, so a stopped search resumes where it was. ``sampler="optuna"`` learns from the trials
    before (the extra ``tune``). Settings are drawn from ``space`` and judged by ``evaluate`` where these are given.
    """
    check_count("trials", trials)
    check_choice("sampler", sampler, ("random", "optuna"))
    check_count("folds", folds, least=2)
    if evaluate is None:
        evaluate = functools.partial(cross_validate, folded_parts(dataset, config, folds), device=device)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "trials.jsonl"
    done = _read_trials(log, _digest(config, folds))
    space = space or SPACES.get(config.model.layer, _COMMON | {"options.num_layers": ("choice", (1, 2))})
    drawn = _optuna(space, config, done[1:]) if sampler == "optuna" else _random(space, config)
    proposals = chain([({}, lambda _: None)], drawn)
    bar = tqdm(total=trials, desc="tuning", unit="trial", disable=not progress)
    for number, (settings, tell) in enumerate(proposals):
        if number >= trials:
            break
        if number < len(done):
            tell(done[number]["score"])
        else:
            row = {"trial": number, "digest": _digest(config, folds), "settings": settings}
            row |= evaluate(apply_settings(config, settings))
            tell(row["score"])
            done.append(row)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        bar.update()
    bar.close()
    ranked = sorted(done[:trials], key=lambda row: -math.inf if row["score"] is None else row["score"], reverse=True)
    if ranked[0]["score"] is None:
        raise SostenutoError("expected at least one setting that trains, got none; widen the search or check the data.")
    write_atomically(folder / "best.toml", apply_settings(config, ranked[0]["settings"]).to_toml())
    return ranked


def apply_settings(config: RunConfig, settings: dict[str, Any]) -> RunConfig:
    """Put drawn settings, named ``training.NAME``, ``model.NAME`` or ``options.NAME``, into a config.

    >>> apply_settings(RunConfig(), {"training.batch_size": 8, "options.hidden_size": 4}).training.batch_size
    8
    """
    drawn: dict[str, dict[str, Any]] = {"training": {}, "model": {}, "options": {}}
    for name, value in settings.items():
        section, key = name.split(".", 1)
        drawn[section][key] = value
    if drawn["options"].get("num_layers") == 1:
        drawn["options"]["dropout"] = 0.0
    model = replace(config.model, options={**config.model.options, **drawn["options"]}, **drawn["model"])
    return replace(config, model=model, training=replace(config.training, **drawn["training"]))


def folded_parts(dataset: Dataset, config: RunConfig, folds: int) -> list[Parts]:
    """Return the pairs of a training and a validation part that every setting is tried on."""
    seed = config.training.seed
    if dataset.validation is not None or config.data.split == "time":
        parts = divide(dataset, config.data, seed=seed)
        hint = "set validation above 0 or bring more data"
        require(parts.validation is not None, "expected a validation part to choose on", "got none", hint)
        return [parts]
    whole = divide(dataset, replace(config.data, validation=0.0), seed=seed)
    least = 2 * folds
    require(len(whole.train) >= least, f"expected at least {least} sequences to choose on", f"got {len(whole.train)}")
    held_out = fold_indices(whole.train, folds, method=cast(Any, config.data.split), seed=seed)
    rest = [np.setdiff1d(np.arange(len(whole.train)), fold) for fold in held_out]
    return [
        replace(whole, train=whole.train.take(kept), validation=whole.train.take(fold))
        for kept, fold in zip(rest, held_out, strict=True)
    ]


def cross_validate(divided: list[Parts], config: RunConfig, device: str, *, last: bool = False) -> dict[str, Any]:
    """Train once on every fold; a setting that diverges is recorded with its reason and ranks last.

    The score is that of the best epoch, as in a run with a validation part; with ``last`` that of the last one, which a
    run without a validation part keeps: the best of many epochs on a few sequences promises too much.
    """
    values, epochs, seconds = [], [], 0.0
    metric, sign = "", 1
    for parts in divided:
        try:
            fitted = fit_parts(parts, config, device=device, progress=False)
        except SostenutoError as error:
            if isinstance(error, InputError):
                raise
            return {"score": None, "reason": str(error)}
        metric, sign = fitted.objective.metric, 1 if fitted.objective.higher_is_better else -1
        history = fitted.progress.history
        kept = history[-1]["epoch"] if last and history else fitted.progress.best_epoch
        best = next((row for row in history if row["epoch"] == kept), None)
        if best is None:
            return {"score": None, "reason": "the validation score was never a finite number"}
        values.append(best[f"validation_{metric}"])
        epochs.append(best["epoch"])
        seconds += fitted.progress.seconds
    value = statistics.fmean(values)
    return {"score": sign * value, metric: value, "folds": values, "epochs": epochs, "seconds": round(seconds, 2)}


def _random(space: dict[str, Choice], config: RunConfig) -> Iterator[tuple[dict[str, Any], Any]]:
    number = 0
    while True:
        generator = np.random.default_rng([config.training.seed, number])
        yield {name: _draw(generator, *choice) for name, choice in space.items()}, lambda _: None
        number += 1


def _draw(generator: np.random.Generator, kind: str, values: tuple[Any, ...]) -> Any:
    if kind == "choice":
        return values[int(generator.integers(len(values)))]
    low, high = values
    if kind == "log":
        return float(f"{math.exp(generator.uniform(math.log(low), math.log(high))):.3g}")
    return float(f"{generator.uniform(low, high):.3g}")


def _optuna(
    space: dict[str, Choice], config: RunConfig, done: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], Any]]:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("optuna", "tune", "sampler='optuna'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=config.training.seed))
    number = 0
    while True:
        if number < len(done):
            study.enqueue_trial(done[number]["settings"])
        trial = study.ask()
        settings = {name: _suggest(trial, name, *choice) for name, choice in space.items()}

        def tell(score: float | None, trial: Any = trial) -> None:
            failed = optuna.trial.TrialState.FAIL
            study.tell(trial, score) if score is not None else study.tell(trial, state=failed)

        yield settings, tell
        number += 1


def _suggest(trial: Any, name: str, kind: str, values: tuple[Any, ...]) -> Any:
    if kind == "choice":
        return trial.suggest_categorical(name, list(values))
    return trial.suggest_float(name, *values, log=kind == "log")


def _read_trials(log: Path, digest: str) -> list[dict[str, Any]]:
    """Read the trials of an earlier search with the same settings; a half-written last line is dropped."""
    if not log.exists():
        return []
    done = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            break
        if row.get("digest") != digest:
            raise InputError(f"{log}: expected trials of the same settings, got others; choose another --out.")
        done.append(row)
    write_atomically(log, "".join(json.dumps(row) + "\n" for row in done))
    return done


def _digest(config: RunConfig, folds: int) -> str:
    return hashlib.sha256(f"{folds} folds\n{config.to_toml()}".encode()).hexdigest()[:16]

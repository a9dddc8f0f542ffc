"""A run folder whose model is an estimator that is fitted at once, such as the oscillators, and its predictions."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sostenuto.checks import InputError, require, shown
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.parts import Parts, divide
from sostenuto.data.targets import task_of
from sostenuto.estimators.oscillators.classifier import OscillatorClassifier
from sostenuto.estimators.oscillators.ridge import OscillatorRegressor, OscillatorRidge, oscillator_summary
from sostenuto.estimators.rntk.classifier import RNTKClassifier
from sostenuto.estimators.rntk.regressor import RNTKRegressor
from sostenuto.estimators.rntk.summary import kernel_summary
from sostenuto.estimators.stored import load_kernel_estimator, save_kernel_estimator
from sostenuto.results import FitResult, KernelSummary, LearningCurve, OscillatorSummary
from sostenuto.training.config import ModelConfig, RunConfig, TrainingConfig, overlaid
from sostenuto.training.objective import Objective
from sostenuto.training.predict import predictions
from sostenuto.training.processes import environment
from sostenuto.training.run_folder import MODEL, discard_folder, predictions_csv
from sostenuto.training.summary import baseline_scores, data_summary, score

MODELS: dict[str, tuple[Any, Any]] = {
    "oscillators": (OscillatorClassifier, OscillatorRegressor),
    "rntk": (RNTKClassifier, RNTKRegressor),
}
"""The models that are fitted at once and not trained, by their names on the command line and in ``config.toml``."""
_ELSEWHERE = ("layout", "scaling", "random_state", "verbose")
"""Parameters of the estimators that a run takes from other parts of its config."""


def estimator_config(name: str, base: RunConfig, data: Any, said: dict[str, dict[str, Any]]) -> RunConfig:
    """Make the config of a run from what was said; what only a trained network has is refused.

    The whole training part is fitted: cross-validation takes the place of a validation part unless one is asked for.
    """
    foreign = [name for name in said["training"] if name != "seed"] + [
        name for name in said["model"] if name != "layer"
    ]
    require(
        not foreign,
        f"expected options that the model {name!r} has",
        f"got {shown(foreign)}",
        "its own are set with --option, such as -o search=evidence for rntk",
    )
    if "validation" not in said["data"]:
        data = replace(data, validation=0.0)
    options = {**(base.model.options if base.model.layer == name else {}), **said["options"]}
    training = overlaid(TrainingConfig(seed=base.training.seed), said["training"])
    return RunConfig(data, ModelConfig(layer=name, options=options), training)


def run_estimator(
    dataset: Dataset, config: RunConfig, folder: Path, *, resume: bool = False, progress: bool = True
) -> tuple[FitResult, KernelSummary | OscillatorSummary]:
    """Fit the model on ``dataset`` and leave a whole run in ``folder``; to resume one is to fit it again."""
    try:
        config = replace(config, data=replace(config.data, checksum=_checked(dataset, config)))
        parts = divide(dataset, config.data, seed=config.training.seed)
        encoding = Encoding.fit(parts.train, scaling=config.data.scaling, missing=config.data.missing)
        estimator = new_estimator(encoding, config, verbose=progress)
        chosen = parts.held_out()[1]
        data = encoding.encode(chosen, dtype=torch.float64)
        write_atomically(folder / "config.toml", config.to_toml())
        begun = time.perf_counter()
        sequences, targets = fit_estimator(estimator, encoding, parts.train)
        seconds = time.perf_counter() - begun
    except InputError:
        if not resume:
            discard_folder(folder)
        raise
    save_kernel_estimator(estimator, folder / MODEL, {"encoding": encoding.to_dict()})
    raw = _raw(estimator, data)
    answers = predictions(encoding, raw, data.lengths)
    write_atomically(folder / "predictions.csv", predictions_csv(encoding, answers, chosen))
    summary = _summary(estimator, sequences, targets, encoding)
    result = _result(folder, config, parts, encoding, estimator, (data, raw), seconds)
    write_atomically(folder / "result.json", result.to_json(indent=1))
    write_atomically(folder / "kernel.json", summary.to_json(indent=1))
    return result, summary


def predict_estimator(folder: Path, sequences: SequenceSet) -> tuple[Encoding, torch.Tensor]:
    """Give such a run's raw answers for new sequences, and the encoding they are written in."""
    classes = {cls.__name__: cls for pair in MODELS.values() for cls in pair}
    estimator, notes = load_kernel_estimator(classes, folder / MODEL)
    encoding = Encoding.from_dict(notes["encoding"])
    return encoding, _raw(estimator, encoding.encode(replace(sequences, targets=None), dtype=torch.float64))


def _checked(dataset: Dataset, config: RunConfig) -> str:
    """Refuse what the model cannot use; return the checksum of the data."""
    task, train, name = task_of(dataset.train), dataset.train, config.model.layer
    hint = "train a layer such as unicornn instead"
    require(task in ("classification", "regression"), f"expected one target a sequence for {name}", f"got {task}", hint)
    require(not train.is_tokens, f"expected channels of numbers for {name}", "got tokens", hint)
    require(
        train.timespans is None or name == "oscillators",
        f"expected evenly sampled sequences for {name}",
        "got sampling times",
        f"pass timespans='ignore', or {hint}",
    )
    require(dataset.batch_transform is None, f"expected sequences as they are for {name}", "got padded ones", hint)
    checksum = train.checksum()
    if config.data.checksum not in ("", checksum):
        raise InputError(
            f"{config.data.source}: expected the data the run was started with (checksum {config.data.checksum}), "
            f"got others ({checksum}); bring the old file back or start a new run."
        )
    return checksum


def new_estimator(encoding: Encoding, config: RunConfig, *, verbose: bool = False) -> Any:
    """Make the estimator of a run, not fitted yet; data come to it scaled."""
    kinds = MODELS[config.model.layer]
    estimator = kinds[0]() if encoding.classes else kinds[1]()
    parameters = estimator.get_params()
    known = [name for name in parameters if name not in _ELSEWHERE]
    unknown = [name for name in config.model.options if name not in known]
    require(
        not unknown, f"expected options of {type(estimator).__name__} ({', '.join(known)})", f"got {shown(unknown)}"
    )
    fixed = {"scaling": "none", "random_state": config.training.seed, "verbose": int(verbose)}
    return estimator.set_params(
        **config.model.options, **{key: value for key, value in fixed.items() if key in parameters}
    )


def fit_estimator(estimator: Any, encoding: Encoding, train: SequenceSet) -> tuple[list[np.ndarray], np.ndarray]:
    """Fit it on encoded sequences; return them and their targets."""
    batch = encoding.encode(train, dtype=torch.float64)
    assert batch.targets is not None
    targets = batch.targets.numpy().reshape(len(batch), -1)
    sequences, spans = _sequences(batch)
    estimator.fit(sequences, targets[:, 0] if encoding.classes or targets.shape[1] == 1 else targets, **spans)
    return sequences, targets


def _sequences(batch: SequenceBatch) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Give sequences without padding, and their time spans as an argument where there are any."""
    sequences = [sequence.numpy() for sequence in batch.sequences()]
    if batch.timespans is None:
        return sequences, {}
    pairs = zip(batch.timespans, batch.lengths.tolist(), strict=True)
    return sequences, {"timespans": [spans[:length].numpy() for spans, length in pairs]}


def _raw(estimator: Any, data: SequenceBatch) -> torch.Tensor:
    """Give logarithms of probabilities, or numbers in units of the encoding."""
    sequences, spans = _sequences(data)
    if hasattr(estimator, "predict_proba"):
        return torch.from_numpy(np.log(np.clip(estimator.predict_proba(sequences, **spans), 1e-300, None)))
    return torch.from_numpy(np.asarray(estimator.predict(sequences, **spans)).reshape(len(sequences), -1))


def _summary(
    estimator: Any, sequences: list[np.ndarray], targets: np.ndarray, encoding: Encoding
) -> KernelSummary | OscillatorSummary:
    if isinstance(estimator, OscillatorRidge):
        return oscillator_summary(estimator, encoding.channel_names, encoding.classes)
    scaled = estimator._scaled(sequences)
    groups = targets[:, 0].astype(np.int64) if encoding.classes else None
    return kernel_summary(estimator.kernel_, scaled, groups, None if encoding.classes else targets)


def _result(
    folder: Path,
    config: RunConfig,
    parts: Parts,
    encoding: Encoding,
    estimator: Any,
    scored: tuple[Any, torch.Tensor],
    seconds: float,
) -> FitResult:
    data, raw = scored
    name, chosen_part = parts.held_out()
    classification, regression = score(encoding, raw, data)
    objective = Objective.of(encoding, config.training, data)
    value = classification.accuracy if classification else regression.rmse if regression else float("nan")
    weights = next(getattr(estimator, key) for key in ("coef_", "dual_coef_", "weights_") if hasattr(estimator, key))
    kernel = estimator.kernel_.get_params() if hasattr(estimator, "kernel_") else {}
    fitted = {
        key: value
        for key, value in kernel.items()
        if key.startswith(("sigma", "num_layers")) and not key.endswith("_bounds")
    }
    fitted |= {
        key: getattr(estimator, f"{key}_")
        for key in ("C", "alpha", "noise", "penalty", "best_score")
        if hasattr(estimator, f"{key}_")
    }
    return FitResult(
        run=folder.resolve().name,
        model=config.model.layer,
        num_parameters=int(np.count_nonzero(weights)),
        metric=objective.metric,
        score=value,
        higher_is_better=objective.higher_is_better,
        evaluated_on=name,
        seconds=round(seconds, 3),
        data=data_summary(parts, encoding, config.data.checksum),
        curve=LearningCurve(objective.metric, epochs=(), train_loss=()),
        classification=classification,
        regression=regression,
        baselines=baseline_scores(encoding.encode(parts.train), encoding.encode(chosen_part), encoding, objective),
        config={"data": config.to_dict()["data"], "model": config.to_dict()["model"], "fitted": fitted},
        environment={**environment("cpu"), "seed": str(config.training.seed)},
    )

"""`sostenuto fit --model rntk`: a run folder whose model is a kernel machine, and its predictions."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sostenuto.checks import InputError, require, shown
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.targets import task_of
from sostenuto.estimators.kernel_state import load_kernel_estimator, save_kernel_estimator
from sostenuto.estimators.kernel_summary import kernel_summary
from sostenuto.estimators.rntk_classifier import RNTKClassifier
from sostenuto.estimators.rntk_regressor import RNTKRegressor
from sostenuto.results import FitResult, KernelSummary, LearningCurve
from sostenuto.training.config import ModelConfig, RunConfig, TrainingConfig, overlaid
from sostenuto.training.data import Parts, divide
from sostenuto.training.environment import environment
from sostenuto.training.objective import Objective
from sostenuto.training.predict import predictions
from sostenuto.training.run_folder import MODEL, discard_folder, predictions_csv
from sostenuto.training.summary import baseline_scores, data_summary, score

NAME = "rntk"
"""The name of this model on the command line and in ``config.toml``."""
_ELSEWHERE = ("layout", "scaling", "random_state", "verbose")
"""Parameters of the estimators that a run takes from other parts of its config."""


def kernel_config(base: RunConfig, data: Any, said: dict[str, dict[str, Any]]) -> RunConfig:
    """Make the config of a run from what was said; what only a trained network has is refused.

    The whole training part is fitted: cross-validation takes the place of a validation part unless one is asked for.
    """
    foreign = [name for name in said["training"] if name != "seed"] + [
        name for name in said["model"] if name != "layer"
    ]
    require(
        not foreign,
        f"expected options that the kernel machine {NAME!r} has",
        f"got {shown(foreign)}",
        "its own are set with --option, such as -o search=evidence",
    )
    if "validation" not in said["data"]:
        data = replace(data, validation=0.0)
    options = {**(base.model.options if base.model.layer == NAME else {}), **said["options"]}
    training = overlaid(TrainingConfig(seed=base.training.seed), said["training"])
    return RunConfig(data, ModelConfig(layer=NAME, options=options), training)


def run_kernel(
    dataset: Dataset, config: RunConfig, folder: Path, *, resume: bool = False, progress: bool = True
) -> tuple[FitResult, KernelSummary]:
    """Fit the kernel machine on ``dataset`` and leave a whole run in ``folder``; to resume one is to fit it again."""
    try:
        config = replace(config, data=replace(config.data, checksum=_checked(dataset, config)))
        parts = divide(dataset, config.data, seed=config.training.seed)
        encoding = Encoding.fit(parts.train, scaling=config.data.scaling, missing=config.data.missing)  # pyright: ignore[reportArgumentType]
        estimator = _estimator(encoding, config, verbose=progress)
        chosen = parts.held_out()[1]
        data = encoding.encode(chosen, dtype=torch.float64)
        write_atomically(folder / "config.toml", config.to_toml())
        begun = time.perf_counter()
        sequences, targets = _fit(estimator, encoding, parts.train)
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


def predict_kernel(folder: Path, sequences: SequenceSet) -> tuple[Encoding, torch.Tensor]:
    """Give a kernel run's raw answers for new sequences, and the encoding they are written in."""
    classes = {cls.__name__: cls for cls in (RNTKClassifier, RNTKRegressor)}
    estimator, notes = load_kernel_estimator(classes, folder / MODEL)
    encoding = Encoding.from_dict(notes["encoding"])
    return encoding, _raw(estimator, encoding.encode(replace(sequences, targets=None), dtype=torch.float64))


def _checked(dataset: Dataset, config: RunConfig) -> str:
    """Refuse what a kernel between whole sequences cannot use; return the checksum of the data."""
    task, train = task_of(dataset.train), dataset.train
    cure = "train a layer such as unicornn instead"
    require(task != "sequence", f"expected one target a sequence for {NAME}", "got one a step", cure)
    require(not train.is_tokens, f"expected channels of numbers for {NAME}", "got tokens", cure)
    spaced = f"pass timespans='ignore', or {cure}"
    require(train.timespans is None, f"expected evenly sampled sequences for {NAME}", "got sampling times", spaced)
    require(dataset.batch_transform is None, f"expected sequences as they are for {NAME}", "got padded ones", cure)
    checksum = train.checksum()
    if config.data.checksum not in ("", checksum):
        raise InputError(
            f"{config.data.source}: expected the data the run was started with (checksum {config.data.checksum}), "
            f"got others ({checksum}); bring the old file back or start a new run."
        )
    return checksum


def _estimator(encoding: Encoding, config: RunConfig, *, verbose: bool) -> Any:
    estimator = RNTKClassifier() if encoding.classes else RNTKRegressor()
    known = [name for name in estimator.get_params() if name not in _ELSEWHERE]
    unknown = [name for name in config.model.options if name not in known]
    require(
        not unknown, f"expected options of {type(estimator).__name__} ({', '.join(known)})", f"got {shown(unknown)}"
    )
    seed = config.training.seed
    return estimator.set_params(**config.model.options, scaling="none", random_state=seed, verbose=int(verbose))


def _fit(estimator: Any, encoding: Encoding, train: SequenceSet) -> tuple[list[np.ndarray], np.ndarray]:
    batch = encoding.encode(train, dtype=torch.float64)
    assert batch.targets is not None
    sequences = [sequence.numpy() for sequence in batch.sequences()]
    targets = batch.targets.numpy().reshape(len(batch), -1)
    estimator.fit(sequences, targets[:, 0] if encoding.classes or targets.shape[1] == 1 else targets)
    return sequences, targets


def _raw(estimator: Any, data: Any) -> torch.Tensor:
    """Give logarithms of probabilities, or numbers in units of the encoding."""
    sequences = [sequence.numpy() for sequence in data.sequences()]
    if isinstance(estimator, RNTKClassifier):
        return torch.from_numpy(np.log(np.clip(estimator.predict_proba(sequences), 1e-300, None)))
    return torch.from_numpy(np.asarray(estimator.predict(sequences)).reshape(len(sequences), -1))


def _summary(estimator: Any, sequences: list[np.ndarray], targets: np.ndarray, encoding: Encoding) -> KernelSummary:
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
    weights = getattr(estimator, "dual_coef_", getattr(estimator, "weights_", np.empty(0)))
    chosen = {
        key: value for key, value in estimator.kernel_.get_params().items() if key.startswith(("sigma", "num_layers"))
    }
    fitted = {key: value for key, value in chosen.items() if not key.endswith("_bounds")}
    fitted |= {
        name: getattr(estimator, f"{name}_") for name in ("C", "alpha", "noise") if hasattr(estimator, f"{name}_")
    }
    return FitResult(
        run=folder.resolve().name,
        model=NAME,
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

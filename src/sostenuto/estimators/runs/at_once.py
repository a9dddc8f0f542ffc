"""Runs of estimators that are fitted at once: oscillators, and machines with the recurrent NTK."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sostenuto.checks import require, shown
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import BatchTransform, Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.parts import divide, read_rows, write_rows
from sostenuto.data.source import with_checksum
from sostenuto.data.targets import task_of
from sostenuto.estimators.oscillators.classifier import OscillatorClassifier
from sostenuto.estimators.oscillators.features import OscillatorEstimator
from sostenuto.estimators.oscillators.ridge import OscillatorRegressor, oscillator_summary
from sostenuto.estimators.oscillators.steps import OscillatorStepClassifier, OscillatorStepRegressor, OscillatorSteps
from sostenuto.estimators.rntk.classifier import RNTKClassifier
from sostenuto.estimators.rntk.regressor import RNTKRegressor
from sostenuto.estimators.rntk.summary import kernel_summary
from sostenuto.estimators.runs import Chosen, Conditions, FittedRun
from sostenuto.estimators.runs.sequences import SequenceRuns, fitted_run
from sostenuto.estimators.stored import load_kernel_estimator, save_kernel_estimator
from sostenuto.report.contents.kernel import kernel_section
from sostenuto.report.contents.oscillators import oscillator_section
from sostenuto.results import KernelSummary, LearningCurve, OscillatorSummary
from sostenuto.training.config import DataConfig, ModelConfig, RunConfig, TrainingConfig, overlaid
from sostenuto.training.processes import environment
from sostenuto.training.run import write_result
from sostenuto.training.run_folder import MARK, SPLIT, check_mark, run_mark
from sostenuto.training.run_folder import MODEL as FILE

ESTIMATORS: dict[str, tuple[Any, Any]] = {
    "oscillators": (OscillatorClassifier, OscillatorRegressor),
    "rntk": (RNTKClassifier, RNTKRegressor),
}
"""The models that are fitted at once and not trained, by their names on the command line and in ``config.toml``."""
STEP_ESTIMATORS: dict[str, tuple[Any, Any]] = {"oscillators": (OscillatorStepClassifier, OscillatorStepRegressor)}
"""Those with a target at every step."""
_ELSEWHERE = ("layout", "scaling", "random_state", "verbose")
"""Parameters of the estimators that a run takes from other parts of its config."""


class AtOnce(SequenceRuns):
    """An estimator that is fitted at once: oscillators with a ridge regression, or the recurrent NTK."""

    has_states = False

    def settings(
        self,
        base: RunConfig,
        written: dict[str, Any],  # noqa: ARG002
        chosen: Chosen,
        data: DataConfig,
        dataset: Dataset | None = None,  # noqa: ARG002
    ) -> RunConfig:
        """Take the estimator's own defaults; what only a trained network has is refused.

        The whole training part is fitted: cross-validation takes the place of a validation part unless one is chosen.
        """
        name = chosen["model"].get("layer", base.model.layer)
        foreign = [key for key in chosen["training"] if key != "seed"] + [
            key for key in chosen["model"] if key != "layer"
        ]
        require(
            not foreign,
            f"expected options that the model {name!r} has",
            f"got {shown(foreign)}",
            "its own are set with --option, such as -o search=evidence for rntk",
        )
        if "validation" not in chosen["data"]:
            data = replace(data, validation=0.0)
        options = {**(base.model.options if base.model.layer == name else {}), **chosen["options"]}
        training = overlaid(TrainingConfig(seed=base.training.seed), chosen["training"])
        return RunConfig(data, ModelConfig(layer=name, options=options), training)

    def fit(self, dataset: Dataset | None, config: RunConfig, folder: Path, conditions: Conditions) -> FittedRun:
        """Fit the estimator and leave a whole run in ``folder``; to resume one is to fit it again."""
        assert dataset is not None
        check_usable(dataset, config.model.layer)
        config = replace(config, data=with_checksum(config.data, dataset.train))
        rows = read_rows(folder / SPLIT, dataset) if conditions.resume else None
        parts = divide(dataset, config.data, seed=config.training.seed, rows=rows)
        encoding = Encoding.fit(parts.train, scaling=config.data.scaling, missing=config.data.missing)
        estimator = new_estimator(encoding, config, verbose=conditions.progress)
        data = encoding.encode(parts.held_out()[1], dtype=torch.float64)
        write_rows(folder / SPLIT, parts)
        write_atomically(folder / "config.toml", config.to_toml())
        begun = time.perf_counter()
        sequences, targets = fit_estimator(estimator, encoding, parts.train)
        seconds = round(time.perf_counter() - begun, 3)
        save_kernel_estimator(estimator, folder / FILE, {"encoding": encoding.to_dict(), MARK: run_mark(config)})
        summary = _summary(estimator, sequences, targets, encoding)
        settings = config.to_dict()
        result = write_result(
            folder,
            parts,
            config,
            (encoding, raw_answers(estimator, data)),
            seen=parts.train,
            num_parameters=_count_weights(estimator),
            seconds=seconds,
            curve=LearningCurve("accuracy" if encoding.classes else "rmse", epochs=(), train_loss=()),
            config={"data": settings["data"], "model": settings["model"], "fitted": _learned(estimator)},
            environment={**environment("cpu"), "seed": str(config.training.seed)},
        )
        write_atomically(folder / "kernel.json", summary.to_json(indent=1))
        if isinstance(summary, KernelSummary):
            return fitted_run(folder, result, [kernel_section(summary, result.data.classes)])
        return fitted_run(folder, result, [oscillator_section(summary)])

    def load(self, folder: Path, config: RunConfig) -> tuple[Any, Encoding]:
        """Load the estimator and its encoding."""
        name = config.model.layer
        classes = {kind.__name__: kind for kind in (*ESTIMATORS[name], *STEP_ESTIMATORS.get(name, ()))}
        estimator, notes = load_kernel_estimator(classes, folder / FILE)
        check_mark(folder / FILE, notes, config)
        return estimator, Encoding.from_dict(notes["encoding"])

    def raw(
        self,
        folder: Path,
        config: RunConfig,
        sequences: SequenceSet,
        transform: BatchTransform | None,  # noqa: ARG002
        conditions: Conditions,  # noqa: ARG002
    ) -> tuple[Encoding, torch.Tensor]:
        """Return logarithms of probabilities, or numbers in units of the encoding."""
        estimator, encoding = self.load(folder, config)
        return encoding, raw_answers(estimator, encoding.encode(replace(sequences, targets=None), dtype=torch.float64))


def check_usable(dataset: Dataset, name: str) -> None:
    """Refuse what the model cannot use."""
    task, train = task_of(dataset.train), dataset.train
    hint = "train a layer such as unicornn instead"
    tasks = ("classification", "regression", *(("sequence",) if name in STEP_ESTIMATORS else ()))
    wanted = "classes or numbers as targets" if name in STEP_ESTIMATORS else "one target per sequence"
    require(task in tasks, f"expected {wanted} for {name}", f"got {task}", hint)
    require(not train.is_tokens, f"expected channels of numbers for {name}", "got tokens", hint)
    require(
        train.timespans is None or name == "oscillators",
        f"expected evenly sampled sequences for {name}",
        "got sampling times",
        f"pass timespans='ignore', or {hint}",
    )
    require(dataset.batch_transform is None, f"expected sequences as they are for {name}", "got padded ones", hint)


def new_estimator(encoding: Encoding, config: RunConfig, *, verbose: bool = False) -> Any:
    """Make the estimator of a run, not fitted yet; data come to it scaled."""
    kinds = (STEP_ESTIMATORS if encoding.has_step_targets else ESTIMATORS)[config.model.layer]
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
    sequences, spans = _sequences(batch)
    if encoding.has_step_targets:
        steps = [row[:length].numpy() for row, length in zip(batch.targets, batch.lengths.tolist(), strict=True)]
        estimator.fit(sequences, steps, **spans)
        return sequences, np.concatenate(steps)
    targets = batch.targets.numpy().reshape(len(batch), -1)
    estimator.fit(sequences, targets[:, 0] if encoding.classes or targets.shape[1] == 1 else targets, **spans)
    return sequences, targets


def _sequences(batch: SequenceBatch) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Return sequences without padding, and their time spans as an argument where there are any."""
    sequences = [sequence.numpy() for sequence in batch.sequences()]
    if batch.timespans is None:
        return sequences, {}
    pairs = zip(batch.timespans, batch.lengths.tolist(), strict=True)
    return sequences, {"timespans": [spans[:length].numpy() for spans, length in pairs]}


def raw_answers(estimator: Any, data: SequenceBatch) -> torch.Tensor:
    """Return logarithms of probabilities, or numbers in units of the encoding."""
    sequences, spans = _sequences(data)
    answer = getattr(estimator, "predict_proba", estimator.predict)(sequences, **spans)
    if isinstance(estimator, OscillatorSteps):
        rows = [torch.from_numpy(np.asarray(row)).reshape(len(row), -1) for row in answer]
        answer = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).numpy()
        return torch.from_numpy(np.log(np.clip(answer, 1e-300, None)) if hasattr(estimator, "classes_") else answer)
    if hasattr(estimator, "predict_proba"):
        return torch.from_numpy(np.log(np.clip(answer, 1e-300, None)))
    return torch.from_numpy(np.asarray(answer).reshape(len(sequences), -1))


def _summary(
    estimator: Any, sequences: list[np.ndarray], targets: np.ndarray, encoding: Encoding
) -> KernelSummary | OscillatorSummary:
    if isinstance(estimator, OscillatorEstimator):
        return oscillator_summary(estimator, encoding.channel_names, encoding.classes)
    scaled = estimator._scaled(sequences)
    groups = targets[:, 0].astype(np.int64) if encoding.classes else None
    return kernel_summary(estimator.kernel_, scaled, groups, None if encoding.classes else targets)


def _count_weights(estimator: Any) -> int:
    weights = next(getattr(estimator, key) for key in ("coef_", "dual_coef_", "weights_") if hasattr(estimator, key))
    return int(np.count_nonzero(weights))


def _learned(estimator: Any) -> dict[str, Any]:
    """Return the numbers that the search chose."""
    kernel = estimator.kernel_.get_params() if hasattr(estimator, "kernel_") else {}
    own = {key: kernel[key] for key in kernel if key.startswith(("sigma", "num_layers")) and "_bounds" not in key}
    chosen = ("C", "alpha", "noise", "penalty", "best_score")
    return own | {key: getattr(estimator, f"{key}_") for key in chosen if hasattr(estimator, f"{key}_")}


MODEL = AtOnce()

"""One run from data to result: divide, encode, build, train, score. The CLI and the estimators both call it."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sostenuto.checks import InputError
from sostenuto.data.dataset import Dataset
from sostenuto.data.encoding import Encoding
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.parts import Parts, divide
from sostenuto.models.base import SequenceModel
from sostenuto.results import FitResult
from sostenuto.training.config import RunConfig
from sostenuto.training.objective import Objective
from sostenuto.training.predict import predictions, raw_predictions
from sostenuto.training.probes import Probe
from sostenuto.training.processes import environment, make_accelerator
from sostenuto.training.run_folder import (
    MODEL,
    StoredModel,
    count_parameters,
    discard_folder,
    predictions_csv,
    rebuild,
    save_model,
)
from sostenuto.training.state import Progress
from sostenuto.training.summary import baseline_scores, data_summary, learning_curve, score
from sostenuto.training.trainer import DivergedError, Trainer


@dataclass(frozen=True, eq=False)
class Fitted:
    """What training leaves behind."""

    model: SequenceModel
    encoding: Encoding
    progress: Progress
    objective: Objective
    device: str
    is_main_process: bool


def fit_parts(
    parts: Parts,
    config: RunConfig,
    *,
    folder: Path | None = None,
    resume: bool = False,
    device: str = "auto",
    probes: dict[str, Probe] | None = None,
    encoding: Encoding | None = None,
    class_weights: torch.Tensor | None = None,
    after_checkpoint: Callable[[], None] | None = None,
    progress: bool = True,
    keep_diverged: bool = False,
) -> Fitted:
    """Encode, build and train; the weights are a function of config, data and (on CPU) nothing else.

    ``encoding`` is that of the training part, learned here where it is not given. ``class_weights`` (one number a
    class, in the encoding's order) replaces what ``config`` says of them. ``after_checkpoint`` is the trainer's. A
    training that diverges raises `DivergedError`, or with ``keep_diverged`` leaves the weights from before it.
    """
    encoding = encoding or _encoding(parts, config)
    train = encoding.encode(parts.train)
    validation = None if parts.validation is None else encoding.encode(parts.validation)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        model = rebuild(encoding, config.model, _word_vectors(parts, config))
    objective = Objective.of(encoding, config.training, train)
    if class_weights is not None:
        objective = replace(objective, class_weights=class_weights)
    trainer = Trainer(
        model,
        objective,
        config.training,
        train,
        validation,
        folder=folder,
        resume=resume,
        device=device,
        probes=probes,
        batch_transform=parts.whole.batch_transform,
        after_checkpoint=after_checkpoint,
        progress=progress,
    )
    try:
        trainer.run()
    except DivergedError:
        if not keep_diverged:
            raise
    reached = trainer.state.progress
    accelerator = trainer.accelerator
    return Fitted(model, encoding, reached, objective, str(accelerator.device), accelerator.is_main_process)


def run(
    dataset: Dataset,
    config: RunConfig,
    folder: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    probes: dict[str, Probe] | None = None,
    progress: bool = True,
) -> FitResult | None:
    """Train on ``dataset`` and leave a whole run in ``folder``; every process but the first returns None."""
    try:
        fitted, parts, config = _trained(
            dataset, config, folder, resume=resume, device=device, probes=probes, progress=progress
        )
    except InputError:
        if not resume:
            discard_folder(folder)
        raise
    if not fitted.is_main_process:
        return None
    save_model(folder / MODEL, StoredModel(fitted.model, fitted.encoding, config.model))
    result = evaluate(parts, fitted, config, folder)
    write_atomically(folder / "result.json", result.to_json(indent=1))
    return result


def _trained(
    dataset: Dataset, config: RunConfig, folder: Path, *, resume: bool, device: str, **options: Any
) -> tuple[Fitted, Parts, RunConfig]:
    checksum = dataset.train.checksum()
    if config.data.checksum not in ("", checksum):
        raise InputError(
            f"{config.data.source}: expected the data the run was started with (checksum {config.data.checksum}), "
            f"got others ({checksum}); bring the old file back or start a new run."
        )
    config = replace(config, data=replace(config.data, checksum=checksum))
    parts = divide(dataset, config.data, seed=config.training.seed)
    encoding = _encoding(parts, config)
    if parts.test is not None:
        # A test part that cannot be scored, for a class no one has seen, is refused before the training, not after.
        encoding.encode(parts.test)
    path = folder / "config.toml"
    if resume and path.exists():
        _check_same(RunConfig.load(path), config, folder)
    elif make_accelerator(device).is_main_process:
        write_atomically(path, config.to_toml())
    return (
        fit_parts(
            parts,
            config,
            folder=folder,
            resume=resume,
            device=device,
            encoding=encoding,
            keep_diverged=True,
            **options,
        ),
        parts,
        config,
    )


def _check_same(stored: RunConfig, given: RunConfig, folder: Path) -> None:
    """Refuse to resume with other settings; only how often to save may change."""
    often = given.training.checkpoint_seconds
    stored = replace(stored, training=replace(stored.training, checkpoint_seconds=often))
    if stored != given:
        raise InputError(
            f"{folder}: expected the settings the run was started with, got others; "
            "resume with the run's own config.toml, or start anew."
        )


def evaluate(parts: Parts, fitted: Fitted, config: RunConfig, folder: Path) -> FitResult:
    """Score the model on the test part (or what there is instead), and the cheap methods beside it.

    The cheap methods are fitted on all that the model saw, the validation part too where the test part scores. They see
    the sequences as they are before a batch transform such as noise padding.
    """
    encoding, objective = fitted.encoding, fitted.objective
    name, chosen = parts.held_out()
    data = encoding.encode(chosen)
    raw = raw_predictions(fitted.model, data, device=fitted.device, transform=parts.whole.batch_transform)
    classification, regression = score(encoding, raw, data)
    answers = predictions(encoding, raw, data.lengths)
    write_atomically(folder / "predictions.csv", predictions_csv(encoding, answers, chosen))
    value = classification.accuracy if classification else regression.rmse if regression else float("nan")
    return FitResult(
        run=folder.resolve().name,
        model=config.model.layer,
        num_parameters=count_parameters(fitted.model),
        metric=objective.metric,
        score=value,
        higher_is_better=objective.higher_is_better,
        evaluated_on=name,
        seconds=round(fitted.progress.seconds, 3),
        data=data_summary(parts, encoding, config.data.checksum),
        curve=learning_curve(fitted.progress, objective.metric),
        classification=classification,
        regression=regression,
        baselines=baseline_scores(encoding.encode(parts.seen()), data, encoding, objective),
        diverged=fitted.progress.diverged,
        config=config.to_dict(),
        environment={**environment(fitted.device), "seed": str(config.training.seed)},
    )


def _encoding(parts: Parts, config: RunConfig) -> Encoding:
    data = config.data
    vocabulary = parts.whole.extras.get("vocabulary")
    return Encoding.fit(
        parts.train,
        scaling=data.scaling,
        missing=data.missing,
        vocabulary_size=0 if vocabulary is None else len(vocabulary),
    )


def _word_vectors(parts: Parts, config: RunConfig) -> torch.Tensor | None:
    vectors = parts.whole.extras.get("embedding")
    if vectors is None or vectors.shape[1] != config.model.embedding_size:
        if vectors is not None:
            size = config.model.embedding_size
            warnings.warn(
                f"word vectors of size {vectors.shape[1]} are not used: embedding_size is {size}", stacklevel=2
            )
        return None
    return torch.as_tensor(vectors)

"""One run from data to result: divide, encode, build, train, score. The CLI and the estimators both call it."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sostenuto.checks import InputError
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.files.atomic import write_atomically
from sostenuto.data.parts import Parts, divide, read_rows, write_rows
from sostenuto.data.source import with_checksum
from sostenuto.models.base import SequenceModel
from sostenuto.results import FitResult
from sostenuto.training.config import RunConfig
from sostenuto.training.objective import Objective
from sostenuto.training.predict import not_finite, predictions, raw_predictions
from sostenuto.training.processes import environment, make_accelerator
from sostenuto.training.run_folder import (
    MARK,
    MODEL,
    SPLIT,
    StoredModel,
    check_finite,
    count_parameters,
    predictions_csv,
    rebuild,
    run_mark,
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
    encoding: Encoding | None = None,
    class_weights: torch.Tensor | None = None,
    keep_diverged: bool = False,
    **options: Any,
) -> Fitted:
    """Encode, build and train; the weights are a function of config, data and (on CPU) nothing else.

    ``encoding`` is that of the training part, learned here where it is not given. ``class_weights`` (one number per
    class, in the encoding's order) replaces what ``config`` says of them. Further ``options`` are those of `Trainer`. A
    training that diverges raises `DivergedError`, or with ``keep_diverged`` leaves earlier weights.
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
    transform = parts.whole.batch_transform
    trainer = Trainer(model, objective, config.training, train, validation, batch_transform=transform, **options)
    try:
        trainer.run()
    except DivergedError:
        if not keep_diverged:
            raise
    accelerator = trainer.accelerator
    progress = trainer.state.progress
    return Fitted(model, encoding, progress, objective, str(accelerator.device), accelerator.is_main_process)


def run(
    dataset: Dataset,
    config: RunConfig,
    folder: Path,
    *,
    resume: bool = False,
    retrain: bool = False,
    device: str = "auto",
    **options: Any,
) -> FitResult | None:
    """Train on ``dataset`` and store the run in ``folder``; every process but the first returns None.

    ``options`` are those of `Trainer`; ``retrain`` lets a resumed run continue with other settings of the training.
    """
    config = replace(config, data=with_checksum(config.data, dataset.train))
    rows = read_rows(folder / SPLIT, dataset) if resume else None
    parts = divide(dataset, config.data, seed=config.training.seed, rows=rows)
    encoding = _encoding(parts, config)
    if parts.test is not None:
        # A test part that cannot be scored, for a class no one has seen, is refused before the training, not after.
        encoding.encode(parts.test)
    path = folder / "config.toml"
    if resume and path.exists() and not retrain:
        _check_same(RunConfig.load(path), config, folder)
    elif make_accelerator(device).is_main_process:
        write_rows(folder / SPLIT, parts)
        write_atomically(path, config.to_toml())
    options |= {"folder": folder, "resume": resume, "retrain": retrain, "device": device}
    fitted = fit_parts(parts, config, encoding=encoding, keep_diverged=True, **options)
    if not fitted.is_main_process:
        return None
    check_finite(fitted.model)
    save_model(folder / MODEL, StoredModel(fitted.model, fitted.encoding, config.model, {MARK: run_mark(config)}))
    return evaluate(parts, fitted, config, folder)


def _check_same(stored: RunConfig, requested: RunConfig, folder: Path) -> None:
    """Refuse to resume with other settings; only how often to save may change."""
    often = requested.training.checkpoint_seconds
    stored = replace(stored, training=replace(stored.training, checkpoint_seconds=often))
    if stored != requested:
        raise InputError(
            f"{folder}: expected the settings the run was started with, got others; "
            "resume with the run's own config.toml, or start anew."
        )


def evaluate(parts: Parts, fitted: Fitted, config: RunConfig, folder: Path) -> FitResult:
    """Score the model on the test part (or what there is instead), and the cheap methods beside it."""
    encoding, (_, chosen) = fitted.encoding, parts.held_out()
    transform = parts.whole.batch_transform
    data = encoding.encode(chosen)
    raw = raw_predictions(fitted.model, data, device=fitted.device, transform=transform)
    return write_result(
        folder,
        parts,
        config,
        (encoding, raw),
        seen=parts.seen(),
        num_parameters=count_parameters(fitted.model),
        seconds=round(fitted.progress.seconds, 3),
        curve=learning_curve(fitted.progress, fitted.objective.metric),
        diverged=fitted.progress.diverged or not_finite(raw, data.lengths),
        config=config.to_dict(),
        environment={**environment(fitted.device), "seed": str(config.training.seed)},
    )


def write_result(
    folder: Path,
    parts: Parts,
    settings: RunConfig,
    answered: tuple[Encoding, torch.Tensor],
    *,
    seen: SequenceSet,
    **known: Any,
) -> FitResult:
    """Score raw outputs for the held-out part and write ``predictions.csv`` and ``result.json``.

    The cheap methods are fitted on what the model has ``seen``, the validation part too where the test part scores.
    They see the sequences as they are before a batch transform such as noise padding. ``known`` are the other fields of
    the result.
    """
    (encoding, raw), (name, chosen) = answered, parts.held_out()
    data = encoding.encode(chosen)
    classification, regression = score(encoding, raw, data)
    said = predictions(encoding, raw, data.lengths)
    write_atomically(folder / "predictions.csv", predictions_csv(encoding, said, chosen))
    objective = Objective.of(encoding, settings.training, data)
    result = FitResult(
        run=folder.resolve().name,
        model=settings.model.layer,
        metric=objective.metric,
        score=classification.accuracy if classification else regression.rmse if regression else float("nan"),
        higher_is_better=objective.higher_is_better,
        evaluated_on=name,
        data=data_summary(parts, encoding, settings.data.checksum),
        classification=classification,
        regression=regression,
        baselines=baseline_scores(encoding.encode(seen), data, encoding, objective, seconds=known["seconds"] / 10),
        **known,
    )
    write_atomically(folder / "result.json", result.to_json(indent=1))
    return result


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

"""From predictions to the scores a person reads."""

import math
from collections import Counter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from sostenuto.checks import require
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.parts import Parts
from sostenuto.data.targets import class_rows
from sostenuto.models.baselines import baseline_predictions
from sostenuto.results import (
    BaselineScore,
    ClassificationScores,
    ClassScore,
    DataSummary,
    Example,
    LearningCurve,
    RegressionScores,
)
from sostenuto.training.objective import Objective
from sostenuto.training.state import Progress

PAIRS_KEPT = 2000


def classification_scores(
    actual: Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n k"], classes: tuple[str, ...]
) -> ClassificationScores:
    """Count right and wrong answers per class; probabilities that are not finite are a wrong answer of no class.

    >>> scores = classification_scores(np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), ("a", "b"))
    >>> round(scores.accuracy, 3), scores.confusion
    (0.667, ((1, 0), (1, 1)))
    """
    count = len(classes)
    confusion = np.zeros((count, count), dtype=int)
    answered = np.isfinite(probabilities).all(1)
    np.add.at(confusion, (actual[answered], probabilities[answered].argmax(1)), 1)
    right, guessed = np.diag(confusion), confusion.sum(0)
    support = np.bincount(actual, minlength=count)
    recall = _ratio(right, support)
    precision = _ratio(right, guessed)
    f1 = _ratio(2 * right, support + guessed)
    present = support > 0
    chosen = np.clip(np.nan_to_num(probabilities)[np.arange(len(actual)), actual], 1e-15, None)
    return ClassificationScores(
        accuracy=float(right.sum() / len(actual)),
        balanced_accuracy=float(recall[present].mean()),
        macro_f1=float(f1[present].mean()),
        log_loss=float(-np.log(chosen).mean()),
        classes=classes,
        confusion=tuple(tuple(int(cell) for cell in row) for row in confusion),
        per_class=tuple(
            ClassScore(classes[i], float(precision[i]), float(recall[i]), float(f1[i]), int(support[i]))
            for i in range(count)
        ),
        count=len(actual),
    )


def regression_scores(
    actual: Float[np.ndarray, "..."], predicted: Float[np.ndarray, "..."], name: str = ""
) -> RegressionScores:
    """Compare numbers in the target's own unit; several targets or steps are pooled.

    >>> scores = regression_scores(np.array([0.0, 2.0]), np.array([1.0, 2.0]))
    >>> round(scores.rmse, 3), scores.mae, scores.r2
    (0.707, 0.5, 0.5)
    """
    actual, predicted = actual.reshape(-1).astype(float), predicted.reshape(-1).astype(float)
    error, spread = predicted - actual, actual - actual.mean()
    variance = float((spread**2).sum())
    kept = np.arange(len(actual))
    if len(kept) > PAIRS_KEPT:
        kept = np.sort(np.random.default_rng(0).choice(kept, PAIRS_KEPT, replace=False))
    return RegressionScores(
        rmse=float(np.sqrt((error**2).mean())),
        mae=float(np.abs(error).mean()),
        r2=1 - float((error**2).sum()) / variance if variance > 0 else float("nan"),
        actual=tuple(actual[kept].tolist()),
        predicted=tuple(predicted[kept].tolist()),
        count=len(actual),
        target_name=name,
    )


def _ratio(part: np.ndarray, whole: np.ndarray) -> Any:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


EXAMPLES = 12
POINTS = 400


def data_summary(parts: Parts, encoding: Encoding, checksum: str) -> DataSummary:
    """Describe what the model was given, with a few sequences to look at."""
    train = parts.train
    lengths = np.array([len(sequence) for sequence in train.sequences])
    counts, target_range = _target_summary(train, encoding)
    missing = 0.0
    if not encoding.is_tokens:
        missing = sum(int(np.isnan(s).sum()) for s in train.sequences) / sum(s.size for s in train.sequences)
    return DataSummary(
        name=parts.whole.name,
        task=encoding.task,
        num_train=len(train),
        num_validation=0 if parts.validation is None else len(parts.validation),
        num_test=0 if parts.test is None else len(parts.test),
        num_channels=train.num_channels,
        shortest=int(lengths.min()),
        median_length=float(np.median(lengths)),
        longest=int(lengths.max()),
        description=parts.whole.description,
        origin=parts.whole.origin,
        channel_names=train.channel_names,
        classes=encoding.classes,
        class_counts=counts,
        target_range=target_range,
        missing_fraction=missing,
        checksum=checksum,
        examples=_examples(train, encoding),
    )


def learning_curve(progress: Progress, metric: str) -> LearningCurve:
    """Read the history of a training as columns."""
    rows = progress.history

    def column(name: str) -> tuple[float, ...]:
        return tuple(float(row[name]) for row in rows if name in row)

    return LearningCurve(
        metric=metric,
        epochs=tuple(int(row["epoch"]) for row in rows),
        train_loss=column("train_loss"),
        validation_loss=column("validation_loss"),
        validation_metric=column(f"validation_{metric}"),
        learning_rate=column("learning_rate"),
        best_epoch=progress.best_epoch,
    )


def score(
    encoding: Encoding, raw: torch.Tensor, data: SequenceBatch
) -> tuple[ClassificationScores | None, RegressionScores | None]:
    """Score raw outputs against the targets of ``data``; of steps past a sequence's end nothing is counted."""
    assert data.targets is not None
    if encoding.has_step_targets:
        raw, actual = raw[data.mask], data.targets[data.mask]
    else:
        actual = data.targets
    if encoding.classes:
        probabilities = raw.double().softmax(-1).numpy()
        return classification_scores(actual.numpy(), probabilities, encoding.classes), None
    target, predicted = (_in_unit(encoding, rows) for rows in (actual, raw.reshape(actual.shape)))
    return None, regression_scores(target, predicted, encoding.target_name)


def baseline_scores(
    train: SequenceBatch,
    test: SequenceBatch,
    encoding: Encoding,
    objective: Objective,
    *,
    seconds: float = math.inf,
) -> tuple[BaselineScore, ...]:
    """Run the cheap methods on the same parts, each in about ``seconds``, and score them by the same metric."""
    scores = []
    for baseline in baseline_predictions(train, test, encoding, seconds=seconds):
        raw = baseline.predictions
        if encoding.classes:
            raw = torch.nn.functional.one_hot(raw.long(), len(encoding.classes)).double()
        metrics = objective.metrics(raw.float(), test).double().sum()
        value = objective.finish(float(metrics), float(objective.units(test).sum()))
        scores.append(
            BaselineScore(baseline.name, baseline.description, objective.metric, value, round(baseline.seconds, 3))
        )
    return tuple(scores)


def _in_unit(encoding: Encoding, rows: torch.Tensor) -> np.ndarray:
    flat = rows.double().reshape(-1, encoding.output_size).numpy()
    return flat * np.asarray(encoding.target_scale) + np.asarray(encoding.target_center)


def _target_summary(train: SequenceSet, encoding: Encoding) -> tuple[tuple[int, ...], tuple[float, ...]]:
    require(train.targets is not None, "expected targets to summarize", "got none")
    if encoding.classes:
        counts = Counter(_class_names(train))
        return tuple(counts[name] for name in encoding.classes), ()
    rows: Any = train.targets
    flat = np.concatenate([np.asarray(row, dtype=float).reshape(-1) for row in rows])
    return (), (float(flat.min()), float(flat.max()))


def _class_names(train: SequenceSet) -> list[str]:
    """Name the class of every sequence, or of every step, as the encoding does."""
    names, rows = class_rows(train)
    flat = rows if isinstance(rows, np.ndarray) else np.concatenate(rows)
    return [names[index] for index in flat]


def _examples(train: SequenceSet, encoding: Encoding) -> tuple[Example, ...]:
    """Pick sequences class by class, or spread over the targets, and thin them to what a small plot can show."""
    if encoding.is_tokens:
        return ()
    labels = _labels(train, encoding)
    examples = []
    for index in _spread(labels, encoding):
        sequence = np.asarray(train.sequences[index], dtype=float)
        thin = sequence[:: max(1, -(-len(sequence) // POINTS))]
        examples.append(Example(label=labels[index], values=tuple(tuple(channel.tolist()) for channel in thin.T)))
    return tuple(examples)


def _labels(train: SequenceSet, encoding: Encoding) -> list[str]:
    """Write each sequence's target in a word; with a target for every step there is none."""
    if encoding.has_step_targets or train.targets is None:
        return [""] * len(train)
    if encoding.classes:
        return _class_names(train)
    return [f"{float(np.asarray(target, dtype=float).reshape(-1)[0]):.4g}" for target in train.targets]


def _spread(labels: list[str], encoding: Encoding) -> list[int]:
    if encoding.classes and not encoding.has_step_targets:
        names = np.asarray(labels)
        rounds = [np.flatnonzero(names == name) for name in encoding.classes]
        deepest = max(len(members) for members in rounds)
        order = [int(members[i]) for i in range(deepest) for members in rounds if i < len(members)]
        return sorted(order[:EXAMPLES], key=lambda index: encoding.classes.index(labels[index]))
    return np.unique(np.linspace(0, len(labels) - 1, EXAMPLES).astype(int)).tolist()

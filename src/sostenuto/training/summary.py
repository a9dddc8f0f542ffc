"""From data, progress and predictions to the records the report is made of."""

from collections import Counter
from typing import Any

import numpy as np
import torch

from sostenuto.checks import require
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.targets import class_rows
from sostenuto.models.baselines import baseline_predictions
from sostenuto.results import (
    BaselineScore,
    ClassificationScores,
    DataSummary,
    Example,
    LearningCurve,
    RegressionScores,
)
from sostenuto.training.data import Parts
from sostenuto.training.objective import Objective
from sostenuto.training.scores import classification_scores, regression_scores
from sostenuto.training.state import Progress

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
    train: SequenceBatch, test: SequenceBatch, encoding: Encoding, objective: Objective
) -> tuple[BaselineScore, ...]:
    """Run the cheap methods on the same parts and score them by the same metric."""
    scores = []
    for baseline in baseline_predictions(train, test, encoding):
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
    require(train.targets is not None, "expected targets to summarise", "got none")
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
        deepest = max(len(found) for found in rounds)
        order = [int(found[i]) for i in range(deepest) for found in rounds if i < len(found)]
        return sorted(order[:EXAMPLES], key=lambda index: encoding.classes.index(labels[index]))
    return np.unique(np.linspace(0, len(labels) - 1, EXAMPLES).astype(int)).tolist()

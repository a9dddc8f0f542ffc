"""From predictions to the scores a person reads."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from sostenuto.results import ClassificationScores, ClassScore, RegressionScores

PAIRS_KEPT = 2000


def classification_scores(
    actual: Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n k"], classes: tuple[str, ...]
) -> ClassificationScores:
    """Count right and wrong answers per class.

    >>> scores = classification_scores(np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), ("a", "b"))
    >>> round(scores.accuracy, 3), scores.confusion
    (0.667, ((1, 0), (1, 1)))
    """
    count = len(classes)
    confusion = np.zeros((count, count), dtype=int)
    np.add.at(confusion, (actual, probabilities.argmax(1)), 1)
    right, support, guessed = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    recall = _ratio(right, support)
    precision = _ratio(right, guessed)
    f1 = _ratio(2 * right, support + guessed)
    present = support > 0
    chosen = np.clip(probabilities[np.arange(len(actual)), actual], 1e-15, None)
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
    actual: Float[np.ndarray, "..."], predicted: Float[np.ndarray, "..."], name: str = "", seed: int = 0
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
        kept = np.sort(np.random.default_rng(seed).choice(kept, PAIRS_KEPT, replace=False))
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

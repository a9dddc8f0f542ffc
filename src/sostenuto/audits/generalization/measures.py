"""What a classifier's scores are worth on labeled sequences: loss, accuracy, Brier score, reliability."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sostenuto.audits.batches import ClassificationBatch
from sostenuto.checks import require
from sostenuto.results import Record

SAMPLES = 400
"""Simulated data sets that show what the calibration error of a calibrated model would be."""


@dataclass(frozen=True)
class ReliabilityBin(Record):
    """Answers whose confidence lies in [low, high): how many, their mean confidence, and the share that was right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Measures(Record):
    """Means over all answers of one part of the data, with standard errors where sequences are independent draws.

    ``loss`` is the cross-entropy in nats; ``brier`` Σ_k (p_k − 1{y = k})², from 0 to 2; ``confidence`` the mean of the
    highest probability. ``calibration_error`` is Σ_b (n_b/n)·|accuracy_b − confidence_b| over the bins. It is above 0
    even for a calibrated model, by chance: ``calibrated_mean`` and ``calibrated_high`` are the mean and the 95 %
    quantile of what such a model with the same confidences would show. ``calibrated_most`` is
    their 99.5 % quantile, beyond which chance is no longer believed; ``worst_class`` is the largest distance, in
    standard deviations of chance, between mean confidence and the share that was right, over the answers that name one
    class; ``classes_told`` how many classes were named.
    """

    count: int
    loss: float
    loss_error: float
    accuracy: float
    accuracy_error: float
    brier: float
    brier_error: float
    confidence: float
    calibration_error: float
    calibrated_mean: float
    calibrated_high: float
    bins: tuple[ReliabilityBin, ...]
    calibrated_most: float = 0.0
    worst_class: float = 0.0
    classes_told: int = 1


@dataclass(frozen=True, eq=False)
class Answers:
    """Logarithms of class probabilities, the true class, and the sequence of every answer that counts."""

    log_probabilities: Float[Tensor, "answer class"]
    targets: Int[Tensor, " answer"]
    owners: Int[Tensor, " answer"]


def collect_answers(model: nn.Module, data: ClassificationBatch, batch_size: int) -> Answers:
    """Ask a model that is held still about all sequences; padding gives no answer."""
    found = []
    for rows in data.batches(batch_size):
        scores = data.scores(model, rows, data.values[rows]).detach().double().cpu()
        found.append(scores[data.mask[rows]] if data.has_step_targets else scores)
    scores = torch.cat(found)
    lost = int((~scores.isfinite()).any(-1).sum())
    require(lost == 0, "expected finite scores from the model", f"got {lost} of {len(scores)} answers that are not")
    return Answers(torch.log_softmax(scores, dim=-1), data.true_targets, torch.from_numpy(data.owners))


def measure(answers: Answers, bins: int, seed: int) -> Measures:
    """Average the answers; ``seed`` is of the simulated data sets."""
    logs, targets = answers.log_probabilities, answers.targets
    chosen = logs.argmax(-1)
    right = (chosen == targets).numpy()
    confidence = logs.gather(-1, chosen[:, None])[:, 0].exp().numpy()
    loss = -logs.gather(-1, targets[:, None])[:, 0].numpy()
    truth = torch.nn.functional.one_hot(targets, logs.shape[-1])
    brier = ((logs.exp() - truth) ** 2).sum(-1).numpy()
    owners = answers.owners.numpy()
    reliability = reliability_bins(confidence, right, bins)
    error = sum(one.count * abs(one.accuracy - one.confidence) for one in reliability) / len(right)
    usual, high, most = _calibrated_error(confidence, bins, seed)
    return Measures(
        count=len(right),
        loss=float(loss.mean()),
        loss_error=standard_error(loss, owners),
        accuracy=float(right.mean()),
        accuracy_error=standard_error(right.astype(float), owners),
        brier=float(brier.mean()),
        brier_error=standard_error(brier, owners),
        confidence=float(confidence.mean()),
        calibration_error=float(error),
        calibrated_mean=usual,
        calibrated_high=high,
        bins=reliability,
        calibrated_most=most,
        **_by_class(chosen.numpy(), confidence, right),
    )


def _by_class(
    chosen: Int[np.ndarray, " answer"], confidence: Float[np.ndarray, " answer"], right: Bool[np.ndarray, " answer"]
) -> dict[str, Any]:
    """Compare confidence and truth for each class that is named: two wrongs may make a right on the whole."""
    off = np.bincount(chosen, weights=right - confidence)
    chance = np.sqrt(np.bincount(chosen, weights=confidence * (1 - confidence)))
    told = np.bincount(chosen) > 0
    return {"worst_class": float((np.abs(off) / np.maximum(chance, 0.5))[told].max()), "classes_told": int(told.sum())}


def standard_error(values: Float[np.ndarray, " answer"], owners: Int[np.ndarray, " answer"]) -> float:
    """Give the standard error of a mean of values in groups: answers at the steps of one sequence hang together.

    √(n/(n − 1)·Σ_i (Σ_{j∈i} (v_j − v̄))²)/N over n groups and N values, which is s/√n for groups of one.

    >>> round(standard_error(np.array([0.0, 1.0, 0.0, 1.0]), np.arange(4)), 4)
    0.2887
    >>> round(standard_error(np.array([0.0, 1.0, 0.0, 1.0]), np.array([0, 0, 1, 1])), 4)
    0.0
    """
    sums = np.bincount(owners, weights=values - values.mean())
    groups = len(sums)
    return float(np.sqrt(groups / max(groups - 1, 1) * np.sum(sums**2)) / len(values))


def reliability_bins(
    confidence: Float[np.ndarray, " answer"], right: Bool[np.ndarray, " answer"], bins: int
) -> tuple[ReliabilityBin, ...]:
    """Sort answers by confidence into ``bins`` equal parts of [0, 1], and list those that are not empty."""
    places = _places(confidence, bins)
    found = []
    for place in np.unique(places).tolist():
        own = places == place
        mean, share = float(confidence[own].mean()), float(right[own].mean())
        found.append(ReliabilityBin(place / bins, (place + 1) / bins, int(own.sum()), mean, share))
    return tuple(found)


def _places(confidence: np.ndarray, bins: int) -> np.ndarray:
    return np.minimum((confidence * bins).astype(int), bins - 1)


def _calibrated_error(confidence: np.ndarray, bins: int, seed: int) -> tuple[float, float, float]:
    """Draw right and wrong answers with the stated probabilities; give the error's mean, 95 % and 99.5 % quantile."""
    places = _places(confidence, bins)
    generator = np.random.default_rng(seed)
    found = np.empty(SAMPLES)
    for index in range(SAMPLES):
        off = (generator.random(len(confidence)) < confidence) - confidence
        found[index] = np.abs(np.bincount(places, weights=off)).sum() / len(confidence)
    return float(found.mean()), float(np.quantile(found, 0.95)), float(np.quantile(found, 0.995))

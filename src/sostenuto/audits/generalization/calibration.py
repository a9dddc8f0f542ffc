"""Calibration: whether a model that says it is 80 % sure is right 80 times of 100."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from sostenuto.audits.base import UNDECIDED, AuditResult, Check, Judged, points
from sostenuto.audits.batches import classification_batch
from sostenuto.audits.context import AuditContext
from sostenuto.audits.generalization.measures import Measures, collect_answers, measure
from sostenuto.audits.intervals import normal_quantile
from sostenuto.audits.model import audited, place_of
from sostenuto.checks import check_count
from sostenuto.report.numbers import counted, number, percent
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

METHOD = (
    "The softmax of the model's scores as class probabilities; answers sorted by the highest of them into {bins} bins "
    "of equal width; beside the calibration error what a calibrated model with the same confidences would show by "
    "chance, from 400 simulated data sets; the model in evaluation mode, in {precision}."
)

REPEATS = 4
"""Further calls, which show whether the model's own noise decides."""
UNEVEN = 0.01
"""So often would chance alone make some class of an honest model seem told too boldly or too timidly."""

DOUBT = 2.0
"""Standard errors within which confidence and accuracy are the same on the whole."""


@dataclass(frozen=True, kw_only=True)
class Calibration(AuditResult):
    """Confidence beside accuracy; see `Measures` for the numbers.

    ``repeated`` are the calibration errors of further calls with the same sequences, where those answer differently.
    """

    measures: Measures
    repeated: Numbers = ()

    @property
    def calibrated(self) -> bool:
        """Say whether the calibration error is one that a calibrated model would show in 95 % of such samples."""
        return self.measures.calibration_error <= self.measures.calibrated_high

    @property
    def overconfidence(self) -> float:
        """Give the mean confidence less the accuracy: above 0, the model promises too much."""
        return self.measures.confidence - self.measures.accuracy

    def summary(self) -> str:
        """Say how sure the model is, how often it is right, and whether the two differ by more than chance."""
        found = self.measures
        sure, right = percent(found.confidence), percent(found.accuracy)
        said = f"The model is {sure} sure on average and right in {right} of {counted(found.count, 'answer')}; "
        apart, chance = 100 * found.calibration_error, 100 * found.calibrated_high
        than = "no more" if self.calibrated else "more"
        said += (
            f"confidence and accuracy are {apart:.1f} points apart, {than} than chance explains (up to {chance:.1f})"
        )
        return f"{said}; Brier score {number(found.brier, digits=3)}."

    def plot(self, ax: Any) -> None:
        """Draw accuracy over confidence, bin by bin; a calibrated model lies on the diagonal."""
        bins = self.measures.bins
        ax.plot([0, 100], [0, 100], linestyle="--", color="gray", label="calibrated")
        # One standard deviation of the share that is right, were the confidence of a bin its true probability.
        spread = [100 * np.sqrt(one.confidence * (1 - one.confidence) / one.count) for one in bins]
        sure, right = [100 * one.confidence for one in bins], [100 * one.accuracy for one in bins]
        ax.errorbar(sure, right, yerr=spread, marker="o", capsize=3, label="model")
        ax.set_xlim(0, 102)
        ax.set_ylim(-2, 102)
        ax.set_xlabel("confidence, %")
        ax.set_ylabel("accuracy, %")
        ax.legend()


def calibration(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    bins: int = 10,
    seed: int = 0,
    lengths: Any = None,
    batch_size: int = 256,
) -> Calibration:
    """Measure whether a classifier's confidence can be believed: expected calibration error, reliability, Brier score.

    With p = softmax(scores), confidence c = max_k p_k, and bins of equal width,

        ECE = Σ_b (n_b/n)·|accuracy_b − mean confidence_b|,   Brier = mean Σ_k (p_k − 1{y = k})².

    ECE is above 0 by chance even where confidence is right, the more the fewer answers there are; what chance would
    give stands beside it. Reference: Guo et al. 2017, eq. (3); Brier 1950.

    Args:
        model: maps ``(batch, time, channel)`` to scores ``(batch, classes)`` or ``(batch, time, classes)``: logits,
            or logarithms of probabilities. It is asked in evaluation mode and left as it was.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``, which the model
            was not trained on.
        y: class indices ``(n,)``, or ``(n, time)`` for a class at every step.
        bins: equal parts of [0, 1] that confidences are sorted into.
        seed: of the simulated data sets.
        lengths: true length of each row of a padded array ``X``.
        batch_size: sequences asked about at once.

    >>> import torch
    >>> class Sure(nn.Module):
    ...     def forward(self, x):
    ...         return torch.tensor([0.9, 0.1]).log().expand(len(x), 2)
    >>> found = calibration(Sure(), torch.zeros(10, 3, 1), torch.tensor([0] * 9 + [1]))
    >>> round(found.measures.calibration_error, 6), round(found.measures.brier, 4), found.calibrated
    (0.0, 0.18, True)
    """
    check_count("bins", bins)
    check_count("seed", seed, least=0)
    check_count("batch_size", batch_size)
    data = classification_batch(model, X, y, lengths)
    with audited(model, seed):
        answers, *again = (collect_answers(model, data, batch_size) for _ in range(1 + REPEATS))
        differ = [not torch.equal(one.log_probabilities, answers.log_probabilities) for one in again]
        repeated = [measure(one, bins, seed).calibration_error for one in again] if any(differ) else []
    device, dtype = place_of(model)
    return Calibration(
        model=type(model).__name__,
        method=METHOD.format(bins=bins, precision=str(dtype).removeprefix("torch.")),
        seed=seed,
        settings={"batch_size": batch_size, "bins": bins},
        checksum=data.checksum(),
        environment=environment(str(device)),
        measures=measure(answers, bins, seed),
        repeated=tuple(repeated),
    )


def _run(context: AuditContext) -> Calibration:
    data = context.affordable(forward=1 + REPEATS, data=context.test)
    return calibration(context.model, data.values, data.targets, lengths=data.lengths, seed=context.seed)


def _judge(result: Calibration, limits: Mapping[str, float]) -> Judged:
    """Praise what chance explains, where chance could not explain a large error too."""
    measures, honest = result.measures, limits["honest"]
    basis = (
        f"{result.summary()} Honest where chance explains the distance and would not explain one of "
        f"{points(honest)} points."
    )
    chances = normal_quantile(UNEVEN / (2 * measures.classes_told))
    errors = (measures.calibration_error, *result.repeated)
    if min(errors) <= measures.calibrated_high < max(errors):
        return Judged("unknown", UNDECIDED, f"{basis} Further calls with the same sequences say otherwise.")
    if result.calibrated and measures.worst_class > chances:
        told = "For one class it is too sure and for another not sure enough, though on the whole the two cancel"
        told += f" ({number(measures.worst_class, digits=2)} standard deviations of chance)."
        return Judged("caution", "Uneven confidence", f"{told} {basis}")
    if result.calibrated:
        return (
            Judged("good", "Honest confidence", basis)
            if measures.calibrated_high <= honest
            else Judged("unknown", UNDECIDED, f"{basis} There are too few answers to tell.")
        )
    if measures.calibration_error <= measures.calibrated_most:
        return Judged("unknown", UNDECIDED, f"{basis} Chance alone would show as much once in 20 to 200 audits.")
    outcome = "bad" if measures.calibration_error > limits["broken"] else "caution"
    if abs(result.overconfidence) <= DOUBT * measures.accuracy_error:
        told = "It is too sure of some answers and not sure enough of others, though on the whole the two cancel."
        return Judged(outcome, "Uneven confidence", f"{told} {basis}")
    return Judged(outcome, "Overconfident" if result.overconfidence > 0 else "Underconfident", basis)


CHECK = Check(
    name="calibration",
    title="Is its confidence honest?",
    caption="How often it is right, by how sure it says it is.",
    order=50,
    result=Calibration,
    needs=("y", "classes"),
    run=_run,
    judge=_judge,
    thresholds={"honest": 0.1, "broken": 0.25},
    number=lambda result: result.measures.calibration_error,
)

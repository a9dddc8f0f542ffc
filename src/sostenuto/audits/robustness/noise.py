"""Accuracy under noise: how much of it is left when the input is measured badly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.robustness.corruptions import CORRUPTIONS, Corruption, checked_levels, damaged_batches
from sostenuto.audits.robustness.labeled import LabeledSequences, labeled_sequences
from sostenuto.checks import check_choice, check_count
from sostenuto.report.numbers import percent
from sostenuto.results import Numbers
from sostenuto.training.processes import environment


@dataclass(frozen=True, kw_only=True)
class NoiseAccuracy(AuditResult):
    """Accuracy at each noise level: its mean and standard deviation over the draws of the noise.

    ``undefined`` is the share of answers that were not a number, which count as wrong; ``majority`` the accuracy of
    always answering the most frequent class; ``count`` the answers judged: sequences, or steps that have classes.
    """

    kind: str
    levels: Numbers
    accuracy: Numbers
    deviation: Numbers
    undefined: Numbers
    clean_accuracy: float
    majority: float
    count: int
    repeats: int

    def summary(self) -> str:
        """Say what is left of the accuracy at the strongest noise tried."""
        worst = int(np.argmax(self.levels))
        level = self.levels[worst]
        said = f"Accuracy is {percent(self.clean_accuracy)} on the data as they are"
        if level > 0:
            spread = f"± {100 * self.deviation[worst]:.1f} points over {self.repeats} draws"
            said += f" and {percent(self.accuracy[worst])} ({spread}) with {CORRUPTIONS[self.kind].describe(level)}"
        said += f"; always answering the most frequent class gives {percent(self.majority)}."
        if max(self.undefined) > 0:
            said += f" Up to {percent(max(self.undefined))} of the answers were not a number and count as wrong."
        return said

    def plot(self, ax: Any) -> None:
        """Draw accuracy over noise level with its spread, and the level of the most frequent class."""
        order = np.argsort(self.levels, kind="stable")
        levels, accuracy, deviation = (
            np.asarray(values)[order] for values in (self.levels, self.accuracy, self.deviation)
        )
        ax.errorbar(levels, 100 * accuracy, yerr=100 * deviation, marker="o", capsize=3, label="model")
        ax.axhline(100 * self.majority, linestyle="--", color="gray", label="most frequent class")
        ax.set_ylim(0, 102)
        ax.set_xlabel(CORRUPTIONS[self.kind].unit)
        ax.set_ylabel("accuracy, %")
        ax.legend()


def noise_accuracy(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    levels: Sequence[float] = (0, 0.05, 0.1, 0.2, 0.5, 1.0),
    kind: str = "gaussian",
    repeats: int = 3,
    seed: int = 0,
    lengths: Any = None,
    batch_size: int = 256,
) -> NoiseAccuracy:
    """Measure a classifier's accuracy while noise on its input grows.

    ``"gaussian"`` adds level · s · ε to every sample, ε standard normal, s the standard deviation of its channel in
    ``X``; ``"salt-and-pepper"`` replaces a share ``level`` of the samples by the channel's largest or least value;
    ``"missing"`` loses a share of the steps and holds the value before; ``"shift"`` moves a sequence in time by up to
    a share of its length.
    Padding stays as it is. The same draws serve every level, so levels differ in strength alone, and the answer does
    not depend on ``batch_size``. Reference: paper 001, section 6.4, eqs. (17)-(19).

    Args:
        model: maps ``(batch, time, channel)`` to scores ``(batch, classes)`` or ``(batch, time, classes)``; where it
            scores every step and a sequence has one class, the last true step answers. It is asked in evaluation mode,
            on its own device and in its own number format, and left as it was.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``. Unequal lengths
            need a model whose ``forward`` takes ``lengths``, or a padded array with ``lengths``.
        y: class indices ``(n,)``, or ``(n, time)`` for a class at every step.
        levels: numbers of at least 0; at most 1 but for Gaussian noise.
        kind: ``"gaussian"``, ``"salt-and-pepper"``, ``"missing"`` or ``"shift"``.
        repeats: draws of the noise, at least 2.
        seed: of the draws.
        lengths: true length of each row of a padded array ``X``.
        batch_size: sequences asked about at once.

    >>> import torch
    >>> class Last(nn.Module):
    ...     def forward(self, x):
    ...         return torch.cat([-x[:, -1], x[:, -1]], dim=-1)
    >>> X = np.sign(np.arange(-200.0, 200.0) + 0.5)[:, None, None].repeat(5, axis=1)
    >>> result = noise_accuracy(Last(), X, (X[:, 0, 0] > 0).astype(int), levels=(0, 1))
    >>> result.accuracy[0], 0.80 < result.accuracy[1] < 0.88  # Φ(1) = .841
    (1.0, True)
    """
    check_choice("kind", kind, CORRUPTIONS)
    check_count("repeats", repeats, least=2)
    check_count("seed", seed, least=0)
    check_count("batch_size", batch_size)
    steps = checked_levels(levels, kind)
    data = labeled_sequences(model, X, y, lengths)
    noise = CORRUPTIONS[kind](data)
    with audited(model, seed):
        clean = [data.judge(model, rows, data.values[rows]) for rows in data.batches(batch_size)]
        noisy = np.stack([_judged(model, data, noise, steps, (seed, draw), batch_size) for draw in range(repeats)])
    count = len(data.true_targets)
    still = np.asarray(steps) == 0
    noisy[:, still] = np.sum(clean, axis=0)
    shares = noisy / count
    device, dtype = place_of(model)
    precision = str(dtype).removeprefix("torch.")
    return NoiseAccuracy(
        model=type(model).__name__,
        method=f"{noise.method}; {repeats} draws; the model in evaluation mode, in {precision}.",
        seed=seed,
        settings={"batch_size": batch_size},
        checksum=data.checksum(),
        environment=environment(str(device)),
        kind=kind,
        levels=steps,
        accuracy=tuple(shares[:, :, 0].mean(0).tolist()),
        deviation=tuple(np.where(still, 0.0, shares[:, :, 0].std(0, ddof=1)).tolist()),
        undefined=tuple(shares[:, :, 1].mean(0).tolist()),
        clean_accuracy=sum(right for right, _ in clean) / count,
        majority=int(data.true_targets.bincount().max()) / count,
        count=count,
        repeats=repeats,
    )


def _judged(
    model: nn.Module,
    data: LabeledSequences,
    noise: Corruption,
    levels: Numbers,
    seed: tuple[int, int],
    batch_size: int,
) -> np.ndarray:
    """Count right and undefined answers at every level above 0, for one draw: (level, 2)."""
    found = np.zeros((len(levels), 2))
    for index, rows, damaged in damaged_batches(data, noise, levels, seed, batch_size):
        found[index] += data.judge(model, rows, damaged)
    return found

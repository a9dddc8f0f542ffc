"""Error under noise: how much worse a regressor does when the input is measured badly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.robustness.corruptions import CORRUPTIONS, Corruption, checked_levels, damaged_batches
from sostenuto.audits.robustness.measured import MeasuredSequences, measured_sequences
from sostenuto.checks import check_choice, check_count, require
from sostenuto.report.numbers import percent, with_unit
from sostenuto.results import Numbers
from sostenuto.training.processes import environment


@dataclass(frozen=True, kw_only=True)
class NoiseError(AuditResult):
    """Root mean square error at each noise level: its mean and standard deviation over the draws of the noise.

    Errors are in ``unit``, the target's own, over answers that are numbers; ``undefined`` is the share of those that
    are not, at each level. ``spread`` is the standard deviation of the targets, the error of always answering their
    mean; ``count`` the answers judged: sequences, or steps that have targets.
    """

    kind: str
    levels: Numbers
    error: Numbers
    deviation: Numbers
    undefined: Numbers
    clean_error: float
    spread: float
    unit: str
    count: int
    repeats: int

    def summary(self) -> str:
        """Say how large the error grows at the strongest noise tried."""
        worst = int(np.argmax(self.levels))
        level = self.levels[worst]
        said = f"The error is {with_unit(self.clean_error, self.unit)} on the data as they are"
        if level > 0 and self.undefined[worst] < 1:
            spread = f"± {with_unit(self.deviation[worst], digits=2)} over {self.repeats} draws"
            damage = CORRUPTIONS[self.kind].describe(level)
            said += f" and {with_unit(self.error[worst], self.unit)} ({spread}) with {damage}"
        said += f"; always answering the mean gives {with_unit(self.spread, self.unit)}."
        if max(self.undefined) > 0:
            said += f" Up to {percent(max(self.undefined))} of the answers were not a number and are left out."
        return said

    def plot(self, ax: Any) -> None:
        """Draw the error over the noise level with its spread, and that of the mean."""
        order = np.argsort(self.levels, kind="stable")
        levels, error, deviation = (np.asarray(values)[order] for values in (self.levels, self.error, self.deviation))
        ax.errorbar(levels, error, yerr=deviation, marker="o", capsize=3, label="model")
        ax.axhline(self.spread, linestyle="--", color="gray", label="mean of the targets")
        ax.set_ylim(bottom=0)
        ax.set_xlabel(CORRUPTIONS[self.kind].unit)
        ax.set_ylabel(f"root mean square error, {self.unit}" if self.unit else "root mean square error")
        ax.legend()


def noise_error(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    levels: Sequence[float] = (0, 0.05, 0.1, 0.2, 0.5, 1.0),
    kind: str = "gaussian",
    repeats: int = 3,
    seed: int = 0,
    lengths: Any = None,
    target_scale: float | Sequence[float] = 1.0,
    target_unit: str = "",
    batch_size: int = 256,
) -> NoiseError:
    """Measure a regressor's root mean square error while noise on its input grows.

        error(level) = √(mean over answers and outputs of (scale·(ŷ(x + noise) − y))²)

    The kinds of noise are those of `noise_accuracy`, which does the same to classifiers; the same draws serve every
    level. Reference: paper 001, section 6.4, eqs. (17)-(19).

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, out)``, or to ``(batch, time, out)``, whose last true step
            answers where a sequence has one target.
        X: sequences, as for `noise_accuracy`.
        y: numbers ``(n,)``, ``(n, out)``, or ``(n, time, out)`` for numbers at every step.
        levels: numbers of at least 0; at most 1 but for Gaussian noise.
        kind: ``"gaussian"``, ``"salt-and-pepper"``, ``"missing"`` or ``"shift"``.
        repeats: draws of the noise, at least 2.
        seed: of the draws.
        lengths: true length of each row of a padded array ``X``.
        target_scale: what one unit of ``y`` is worth in ``target_unit``, a number or one an output.
        target_unit: its name.
        batch_size: sequences asked about at once.

    >>> class Mean(nn.Module):
    ...     def forward(self, x):
    ...         return x.mean(1)
    >>> X = np.sign(np.arange(-200.0, 200.0) + 0.5)[:, None, None].repeat(4, axis=1)
    >>> found = noise_error(Mean(), X, X[:, 0, 0], levels=(0, 1))
    >>> found.error[0], 0.45 < found.error[1] < 0.55  # 1/√4
    (0.0, True)
    """
    check_choice("kind", kind, CORRUPTIONS)
    check_count("repeats", repeats, least=2)
    check_count("seed", seed, least=0)
    check_count("batch_size", batch_size)
    steps = checked_levels(levels, kind)
    data = measured_sequences(model, X, y, lengths, target_scale)
    noise = CORRUPTIONS[kind](data)
    count = len(data.true_targets)
    with audited(model, seed):
        clean = np.sum([_squares(model, data, rows, data.values[rows]) for rows in data.batches(batch_size)], axis=0)
        lost = int(clean[1])
        require(lost == 0, "expected finite answers from the model", f"got {lost} of {count} that are not")
        noisy = np.stack([_judged(model, data, noise, steps, (seed, draw), batch_size) for draw in range(repeats)])
    still = np.asarray(steps) == 0
    noisy[:, still] = clean
    with np.errstate(invalid="ignore"):
        errors = np.sqrt(noisy[:, :, 0] / (count - noisy[:, :, 1]))
    device, dtype = place_of(model)
    return NoiseError(
        model=type(model).__name__,
        method=f"{noise.method}; {repeats} draws; the model in evaluation mode, in {str(dtype)[6:]}.",
        seed=seed,
        settings={"batch_size": batch_size},
        checksum=data.checksum(),
        environment=environment(str(device)),
        kind=kind,
        levels=steps,
        error=tuple(errors.mean(0).tolist()),
        deviation=tuple(np.where(still, 0.0, errors.std(0, ddof=1)).tolist()),
        undefined=tuple((noisy[:, :, 1].mean(0) / count).tolist()),
        clean_error=float(np.sqrt(clean[0] / count)),
        spread=data.deviation,
        unit=target_unit,
        count=count,
        repeats=repeats,
    )


def _squares(model: nn.Module, data: MeasuredSequences, rows: slice, values: torch.Tensor) -> np.ndarray:
    """Sum the squared errors of finite answers, and count the others."""
    found = data.losses(data.scores(model, rows, values), rows).cpu()
    finite = found.isfinite()
    return np.array([float(found[finite].sum()), float((~finite).sum())])


def _judged(
    model: nn.Module,
    data: MeasuredSequences,
    noise: Corruption,
    levels: Numbers,
    seed: tuple[int, int],
    batch_size: int,
) -> np.ndarray:
    """Sum squared errors and count undefined answers at every level above 0, for one draw: (level, 2)."""
    found = np.zeros((len(levels), 2))
    for index, rows, damaged in damaged_batches(data, noise, levels, seed, batch_size):
        found[index] += _squares(model, data, rows, damaged)
    return found

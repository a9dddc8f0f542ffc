"""Can it be fooled: accuracy under the smallest changes that gradients can find."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.robustness.attacks import (
    NORMS,
    Bounds,
    deepfool,
    project,
    projected_ascent,
    random_start,
    size,
)
from sostenuto.audits.robustness.labeled import LabeledSequences, labeled_sequences
from sostenuto.checks import check_choice, check_count, check_positive, require
from sostenuto.report.numbers import counted, number, percent
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

ATTACKS = ("pgd", "deepfool")
MEASURE = {
    "linf": "in any one sample",
    "l2": "over the whole sequence (Euclidean)",
    "step-l2": "in any one step (Euclidean)",
}


@dataclass(frozen=True, kw_only=True)
class AdversarialAccuracy(AuditResult):
    """Accuracy when an attacker may change a sequence by at most ε, for growing ε.

    ``median_size`` is the median size of the changes DeepFool needed, over the sequences that were right and that it
    turned; None for PGD, which uses the whole ball, and where nothing was turned.
    """

    attack: str
    norm: str
    epsilons: Numbers
    accuracy: Numbers
    clean_accuracy: float
    median_size: float | None
    count: int

    def summary(self) -> str:
        """Say what is left of the accuracy under the strongest attack tried."""
        worst = int(np.argmax(self.epsilons))
        size_said = f"changes of at most {number(self.epsilons[worst], digits=3)} {MEASURE[self.norm]}"
        said = f"Accuracy is {percent(self.clean_accuracy)} on the data as they are and {percent(self.accuracy[worst])}"
        said += f" when an attacker may make {size_said}"
        if self.median_size is not None:
            said += f"; half of the sequences it turned needed {number(self.median_size, digits=3)} or less"
        return said + "."

    def plot(self, ax: Any) -> None:
        """Draw accuracy over ε."""
        order = np.argsort(self.epsilons, kind="stable")
        levels = np.concatenate([[0.0], np.asarray(self.epsilons)[order]])
        accuracy = np.concatenate([[self.clean_accuracy], np.asarray(self.accuracy)[order]])
        ax.plot(levels, 100 * accuracy, marker="o", label=f"{self.attack}, {self.norm}")
        ax.set_ylim(0, 102)
        ax.set_xlabel("largest change allowed")
        ax.set_ylabel("accuracy, %")
        ax.legend()


def adversarial_accuracy(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    attack: str = "pgd",
    norm: str = "linf",
    epsilons: Sequence[float] = (0.01, 0.03, 0.1, 0.3),
    steps: int = 40,
    step_size: float | None = None,
    restarts: int = 1,
    candidates: int = 10,
    overshoot: float = 0.02,
    bounds: Bounds = None,
    seed: int = 0,
    lengths: Any = None,
    batch_size: int = 128,
) -> AdversarialAccuracy:
    """Attack a classifier with changes of its input within a ball of radius ε, and count what stays right.

    ``"pgd"`` climbs the cross-entropy by projected gradient steps from a random start, ``restarts`` times; a sequence
    that was wrong already, or was turned by one restart, counts as lost. ``"deepfool"`` walks to the nearest
    boundary; at each ε its change is shortened to ε where it is longer. Padding is not touched, and values are free
    unless ``bounds`` are given. Reference: paper 001, section 6.4 and table 3.

    Args:
        model: maps ``(batch, time, channel)`` to scores ``(batch, classes)`` or ``(batch, time, classes)``.
        X: array ``(n, time, channel)`` or a list of ``(time, channel)``, as for `noise_accuracy`.
        y: class indices ``(n,)``; for PGD also ``(n, time)``, a class at every step.
        attack: ``"pgd"`` or ``"deepfool"``.
        norm: ``"linf"``, ``"l2"`` (Frobenius over the sequence) or, for PGD, ``"step-l2"`` (each step).
        epsilons: radii, in the unit of ``X``.
        steps: of the attack.
        step_size: of PGD; 2.5 ε / steps if left out.
        restarts: of PGD.
        candidates: classes whose boundaries DeepFool watches.
        overshoot: how far DeepFool goes beyond a boundary.
        bounds: least and largest value allowed.
        seed: of the random starts.
        lengths: true length of each row of a padded array ``X``.
        batch_size: sequences attacked at once.

    >>> class Sign(nn.Module):
    ...     def forward(self, x):
    ...         return torch.cat([-x.mean(1), x.mean(1)], dim=-1)
    >>> X = np.linspace(0.1, 1.0, 10)[:, None, None].repeat(4, axis=1)
    >>> adversarial_accuracy(Sign(), X, np.ones(10, int), epsilons=(0.25, 0.55)).accuracy
    (0.8, 0.5)
    """
    check_choice("attack", attack, ATTACKS)
    check_choice("norm", norm, NORMS if attack == "pgd" else NORMS[:2])
    counts = (("steps", steps, 1), ("restarts", restarts, 1), ("candidates", candidates, 1), ("seed", seed, 0))
    for name, count, least in (*counts, ("batch_size", batch_size, 1)):
        check_count(name, count, least=least)
    radii = tuple(float(epsilon) for epsilon in epsilons)
    require(len(radii) > 0, "expected at least one epsilon", "got none")
    for radius in radii:
        check_positive("epsilon", radius, zero=True)
    if step_size is not None:
        check_positive("step_size", step_size)
    data = labeled_sequences(model, X, y, lengths)
    require(
        attack == "pgd" or not data.has_step_targets,
        "expected one class a sequence for DeepFool",
        "got a class for every step",
        "use attack='pgd'",
    )
    generator = torch.Generator().manual_seed(seed)
    with audited(model, seed), torch.backends.cudnn.flags(enabled=False):
        clean = torch.cat([_right(data, model, rows, data.values[rows]) for rows in data.batches(batch_size)])
        if attack == "pgd":
            kept, median = [], None
            for radius in radii:
                lengths_of = (steps, step_size or 2.5 * radius / steps)
                kept.append(_pgd(data, model, clean, radius, norm, lengths_of, restarts, bounds, generator, batch_size))
        else:
            options = {"norm": norm, "steps": steps, "candidates": candidates, "overshoot": overshoot, "bounds": bounds}
            sizes, kept = _deepfool(data, model, clean, radii, options, batch_size)
            turned = sizes[clean & sizes.isfinite()]
            median = float(turned.median()) if len(turned) else None
    count = len(data.true_targets)
    device, dtype = place_of(model)
    return AdversarialAccuracy(
        model=type(model).__name__,
        method=f"{_named(attack, steps, restarts)}; the model in evaluation mode, in {str(dtype)[6:]}.",
        seed=seed,
        settings={"steps": steps, "step_size": step_size, "restarts": restarts, "bounds": bounds and list(bounds)},
        checksum=data.checksum(),
        environment=environment(str(device)),
        attack=attack,
        norm=norm,
        epsilons=radii,
        accuracy=tuple(int(right.sum()) / count for right in kept),
        clean_accuracy=int(clean.sum()) / count,
        median_size=median,
        count=count,
    )


def _named(attack: str, steps: int, restarts: int) -> str:
    if attack == "deepfool":
        return f"DeepFool, at most {steps} steps to the nearest boundary"
    return f"Projected gradient ascent on the cross-entropy, {steps} steps from {counted(restarts, 'random start')}"


def _right(data: LabeledSequences, model: nn.Module, rows: slice, values: Tensor) -> Tensor:
    """Mark right answers of sequences, or of true steps."""
    scores = data.scores(model, rows, values).cpu()
    right = (scores.argmax(-1) == data.targets[rows]) & ~scores.isnan().any(-1)
    return right & data.mask[rows] if data.has_step_targets else right


def _odds(scores: Float[Tensor, "*where cls"], targets: Int[Tensor, " *where"]) -> Float[Tensor, " *where"]:
    """Give the logarithm of the odds of a wrong answer.

    It grows with the cross-entropy log(1 + e^odds), so ascent takes the same directions; but its gradient does not
    vanish where the model is so sure that the cross-entropy is 0 in floating point.
    """
    chosen = F.one_hot(targets, scores.shape[-1]).bool()
    return scores.masked_fill(chosen, -torch.inf).logsumexp(-1) - scores.gather(-1, targets[..., None])[..., 0]


def _pgd(
    data: LabeledSequences,
    model: nn.Module,
    clean: Tensor,
    radius: float,
    norm: str,
    lengths_of: tuple[int, float],
    restarts: int,
    bounds: Bounds,
    generator: torch.Generator,
    batch_size: int,
) -> Tensor:
    """Attack every batch from each random start; mark what stays right under all of them."""
    steps, step_size = lengths_of
    kept = clean.clone()
    if radius == 0:
        return kept
    for rows in data.batches(batch_size):
        values, true_steps = data.values[rows], data.mask[rows][:, :, None]

        def loss(moved: Tensor, rows: slice = rows) -> Tensor:
            scores = data.scores(model, rows, moved)
            odds = _odds(scores, data.targets[rows].to(scores.device))
            return odds if not data.has_step_targets else (odds * data.mask[rows].to(odds)).sum(1)

        for _ in range(restarts):
            start = random_start(values.shape, norm, radius, generator, values)
            moved = projected_ascent(
                loss,
                values,
                true_steps,
                start,
                norm=norm,
                epsilon=radius,
                steps=steps,
                step_size=step_size,
                bounds=bounds,
            )
            kept[rows] &= _right(data, model, rows, moved)
    return kept


def _deepfool(
    data: LabeledSequences,
    model: nn.Module,
    clean: Tensor,
    radii: Sequence[float],
    options: dict[str, Any],
    batch_size: int,
) -> tuple[Tensor, list[Tensor]]:
    """Measure the change that turned each sequence, infinite where none did, and what stays right at every radius.

    At a radius smaller than the change, the change is shortened to it and tried: it may turn the answer all the same.
    """
    sizes, kept = [], [clean.clone() for _ in radii]
    device, _ = place_of(model)
    norm = options["norm"]
    for rows in data.batches(batch_size):
        values = data.values[rows]
        moved = deepfool(
            lambda changed, rows=rows: data.scores(model, rows, changed),
            values.to(device),
            data.mask[rows][:, :, None].to(device),
            data.targets[rows].to(device),
            **options,
        ).cpu()
        delta = moved - values
        sizes.append(torch.where(_right(data, model, rows, moved), torch.inf, size(delta, norm).double()))
        for radius, right in zip(radii, kept, strict=True):
            right[rows] &= _right(data, model, rows, values + project(delta, norm, radius))
    return torch.cat(sizes), kept

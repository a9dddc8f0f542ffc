"""Certified and attacked accuracy side by side: what is proved, what was broken, and the doubt between the two."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult, Check, Judged
from sostenuto.audits.batches import ClassificationBatch, classification_batch
from sostenuto.audits.context import AuditContext
from sostenuto.audits.model import audited, place_of, still_copy
from sostenuto.audits.robustness.attacks import deepfool, size
from sostenuto.audits.robustness.certified_radius import certified_radius
from sostenuto.checks import InputError, check_count
from sostenuto.report.numbers import number, percent
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

HALVINGS = 10
UNTURNED = 1e300
"""The distance of an attack that did not succeed."""
METHOD = (
    "Radii from the weights alone, by contraction rate, input matrix and read-out, in float64 (see certified_radius); "
    "beside them the shortest change that DeepFool found within {steps} steps, shortened by bisection as long as the "
    "answer stayed turned; both in the Frobenius norm over the sequence, on a copy of the model in float64."
)


@dataclass(frozen=True, kw_only=True)
class CertifiedAccuracy(AuditResult):
    """The certified radius of every sequence beside the distance at which an attack turned its answer.

    ``distances`` are `UNTURNED` where no attack succeeded; ``right`` says which answers are true. ``reason`` says why
    nothing can be certified, and then nothing else is told. The largest change that is safe lies between the two.
    """

    reason: str
    radii: Numbers
    distances: Numbers
    right: tuple[bool, ...]
    clean_accuracy: float
    median_norm: float

    def certified(self, radius: float) -> float:
        """Give the share of sequences that are answered rightly, whatever a change below ``radius`` does."""
        if not self.radii:
            return self.clean_accuracy if radius == 0 else 0.0
        return float(np.mean(np.asarray(self.right) & (np.asarray(self.radii) >= radius)))

    def attacked(self, radius: float) -> float:
        """Give the share of sequences that are answered rightly under the attack's changes of up to ``radius``."""
        if not self.distances:
            return self.clean_accuracy
        return float(np.mean(np.asarray(self.right) & (np.asarray(self.distances) > radius)))

    @property
    def contradicted(self) -> bool:
        """Say whether an attack succeeded within a certified radius, which a proof forbids."""
        # Where the margin itself is rounding, both numbers are.
        return any(far < near * (1 - 1e-6) - 1e-12 for near, far in zip(self.radii, self.distances, strict=True))

    def summary(self) -> str:
        """Say how far sequences are safe, and how far away the attack was."""
        if self.reason:
            return f"No radius is certified: {self.reason}."
        safe = float(np.median(self.radii))
        said = (
            f"Half of the answers are proved to withstand every change below {number(safe, digits=3)} over the whole "
            f"sequence (Euclidean; sequences themselves measure {number(self.median_norm, digits=3)}); "
        )
        found = float(np.median(self.distances))
        said += (
            f"the attack needed {number(found, digits=3)} to turn half of them"
            if found < UNTURNED
            else "the attack turned fewer than half of them"
        )
        said += f". At that radius {percent(self.certified(safe))} are certified right, {percent(self.clean_accuracy)} "
        said += "without a change."
        return f"{said} An attack contradicts the proof, please report it." if self.contradicted else said

    def plot(self, ax: Any) -> None:
        """Draw both accuracies over the size of the change, on a logarithmic scale."""
        positive = [value for value in (*self.radii, *self.distances) if 0 < value < UNTURNED]
        grid = np.geomspace(0.5 * min(positive), 2 * max(positive), 200) if positive else np.array([1.0])
        for values, label in ((self.attacked, "under attack"), (self.certified, "proved")):
            ax.plot(grid, [100 * values(float(place)) for place in grid], label=label)
        ax.set_xscale("log")
        ax.set_ylim(0, 102)
        ax.set_xlabel("change of the whole sequence, Euclidean")
        ax.set_ylabel("accuracy, %")
        ax.legend()


def certified_accuracy(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    steps: int = 40,
    candidates: int = 10,
    seed: int = 0,
    lengths: Any = None,
    batch_size: int = 128,
) -> CertifiedAccuracy:
    """Put what is proved beside what an attack finds: for every sequence, certified radius ≤ distance of the attack.

        certified(r) = share right with radius ≥ r  ≤  share right that every attack of size r leaves  ≤  attacked(r)

    The radius is that of `certified_radius`, the distance the length of the shortest change found that turns the
    answer given, right or wrong. Reference: erichson2021, proposition 1 as corrected in ``docs/errata.md``
    (erichson2021.1, erichson2021.4), and table 3.

    Args:
        model: as for `certified_radius`; of any other model the record says why nothing can be certified.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``.
        y: class indices ``(n,)``.
        steps: of the attack.
        candidates: classes whose boundaries the attack watches.
        seed: for a model that draws random numbers.
        lengths: true length of each row of a padded array ``X``.
        batch_size: sequences asked about at once.

    >>> from sostenuto.models.prediction import SequenceClassifier
    >>> from sostenuto.nn import IndRNN
    >>> model = SequenceClassifier(IndRNN(1, 1, batch_first=True, activation="identity"), 2)
    >>> with torch.no_grad():
    ...     for weight, value in zip(model.parameters(), ([[2.0]], [0.0], [0.0], [[-1.0], [1.0]], [0.0, 0.0])):
    ...         _ = weight.copy_(torch.tensor(value))
    >>> found = certified_accuracy(model, torch.tensor([[[0.5]]]), [1])
    >>> round(found.radii[0], 4), 0.5 < found.distances[0] < 0.501  # scores ∓2x turn at x = 0
    (0.5, True)
    """
    check_count("steps", steps)
    check_count("candidates", candidates)
    proved = certified_radius(model, X, y, seed=seed, lengths=lengths, batch_size=batch_size)
    device, _ = place_of(model)
    shown = {
        "model": type(model).__name__,
        "method": METHOD.format(steps=steps),
        "seed": seed,
        "settings": {"steps": steps, "candidates": candidates, "batch_size": batch_size},
        "checksum": proved.checksum,
        "environment": environment(str(device)),
        "clean_accuracy": proved.clean_accuracy,
        "median_norm": proved.median_norm,
    }
    if proved.reason:
        return CertifiedAccuracy(**shown, reason=proved.reason, radii=(), distances=(), right=())
    still = still_copy(model)
    distances = _distances(still, classification_batch(still, X, y, lengths), steps, candidates, seed, batch_size)
    return CertifiedAccuracy(
        **shown, reason="", radii=proved.radii, distances=tuple(distances.tolist()), right=proved.right
    )


def _distances(
    model: nn.Module, data: ClassificationBatch, steps: int, candidates: int, seed: int, batch_size: int
) -> Float[Tensor, " batch"]:
    """Measure the shortest change that was found to turn each answer; `UNTURNED` where none was."""
    options = {"steps": steps, "candidates": candidates, "overshoot": 0.02, "bounds": None}
    found = []
    with audited(model, seed):
        for rows in data.batches(batch_size):
            values = data.values[rows]

            def scores(moved: Tensor, rows: slice = rows) -> Tensor:
                return data.scores(model, rows, moved)

            answers = scores(values).argmax(-1)
            true_steps = data.mask[rows][:, :, None]
            moved = deepfool(scores, values, true_steps, answers, norm="l2", **options).detach()
            found.append(_shortest(scores, values, moved - values, answers))
    return torch.cat(found)


def _shortest(scores: Any, values: Tensor, change: Tensor, answers: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """Shorten each change by bisection along its line, as long as the answer stays turned."""
    turned = scores(values + change).argmax(-1) != answers
    low, high = torch.zeros(len(values), dtype=values.dtype), torch.ones(len(values), dtype=values.dtype)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        still_turned = scores(values + middle[:, None, None] * change).argmax(-1) != answers
        low, high = torch.where(still_turned, low, middle), torch.where(still_turned, middle, high)
    return torch.where(turned, high * size(change, "l2"), UNTURNED)


NEAR = 0.01
"""A share of a sequence's own size: answers that are proved to withstand changes of it are called proved."""


def _run(context: AuditContext) -> CertifiedAccuracy:
    steps = context.budget.attack_steps
    data = context.affordable(backward=2 * steps, forward=HALVINGS)
    found = certified_accuracy(
        context.model, data.values, data.targets, steps=steps, lengths=data.lengths, seed=context.seed
    )
    if found.reason:
        why = found.reason.removeprefix("not applicable: ").removesuffix(".")
        raise InputError(f"not applicable: a radius needs a recurrence that is proved to contract, and {why}.")
    return found


def _judge(result: CertifiedAccuracy, limits: Mapping[str, float]) -> Judged:
    """Look at changes of a small share of a sequence's own size."""
    if result.contradicted:
        return Judged("bad", "Contradicted")
    reach = limits["reach"] * result.median_norm
    kept = result.certified(reach)
    basis = f"{result.summary()} Judged at {number(reach, digits=3)}: {percent(kept)} are certified right."
    lost = result.clean_accuracy - kept
    return (
        Judged("good", "Proved safe nearby", basis)
        if lost <= limits["lost"]
        else Judged("unknown", "Little proved", basis)
    )


CHECK = Check(
    name="certified",
    title="How far is it proved safe?",
    caption="What is proved, and what an attack leaves: the truth lies between.",
    order=90,
    result=CertifiedAccuracy,
    needs=("y", "classes"),
    run=_run,
    judge=_judge,
    thresholds={"reach": NEAR, "lost": 0.05},
    number=lambda result: float(np.median(result.radii)),
)

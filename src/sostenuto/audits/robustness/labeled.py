"""Sequences with their true classes, as audits of accuracy need them: padding known, answers counted."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sostenuto.audits.robustness.targeted import TargetedSequences, read_sequences
from sostenuto.checks import require
from sostenuto.types import Sequences


@dataclass(frozen=True, eq=False)
class LabeledSequences(TargetedSequences):
    """A padded batch, the true length of each sequence (None: all fill it), and a class per sequence or per step."""

    targets: Int[Tensor, "batch *time"]

    @property
    def has_step_targets(self) -> bool:
        """Say whether every step has a class of its own."""
        return self.targets.ndim == 2

    @property
    def loss_name(self) -> str:
        """Name the loss."""
        return "cross-entropy"

    def scores(self, model: nn.Module, rows: slice, values: Sequences) -> Float[Tensor, "batch ..."]:
        """Ask the model about ``values`` in place of its ``rows``: scores of a class per sequence, or per step.

        A model that scores every step while a sequence has one class answers at the last true step. The scores stay
        where the model is, so that gradients reach back to ``values``.
        """
        scores = self.answers(model, rows, values)
        require(
            scores.shape[-1] >= 2,
            "expected scores of at least 2 classes from the model",
            f"got {scores.shape[-1]}",
            "for a regression pass y as floating-point numbers",
        )
        require(
            scores.ndim == 3 or not self.has_step_targets,
            "expected scores at every step, as y has a class for every step",
            f"got scores of shape {tuple(scores.shape)}",
            "pass one class a sequence, or a model that returns (batch, time, classes)",
        )
        classes, highest = scores.shape[-1], int(self.true_targets.max())
        require(
            highest < classes,
            f"expected classes from 0 to {classes - 1} in y, as the model has {classes} scores",
            f"got {highest}",
        )
        return scores

    def losses(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, " answer"]:
        """Give the cross-entropy of every sequence, or of every true step."""
        targets = self.targets[rows].to(scores.device)
        if self.has_step_targets:
            true = self.mask[rows].to(scores.device)
            scores, targets = scores[true], targets[true]
        return F.cross_entropy(scores, targets, reduction="none")

    def judge(self, model: nn.Module, rows: slice, values: Sequences) -> tuple[int, int]:
        """Ask the model about ``values`` in place of its ``rows``; count right answers, and answers without a number.

        The answer is the class of the highest score. NaN among the scores is no answer: wrong.
        """
        scores = self.scores(model, rows, values).cpu()
        targets, mask = self.targets[rows], self.mask[rows]
        lost = scores.isnan().any(-1)
        right = (scores.argmax(-1) == targets) & ~lost
        if self.has_step_targets:
            right, lost = right & mask, lost & mask
        return int(right.sum()), int(lost.sum())


def labeled_sequences(model: nn.Module, sequences: Any, targets: Any, lengths: Any = None) -> LabeledSequences:
    """Check what the user brought for ``model``: an array or a list, classes, and lengths where an array is padded.

    See `read_sequences` for the first and the last.
    """
    values, known = read_sequences(model, sequences, lengths)
    return LabeledSequences(values, known, _classes(targets, values, known))


def _classes(targets: Any, values: Tensor, lengths: Tensor | None) -> Tensor:
    found = torch.as_tensor(np.asarray(targets.cpu() if isinstance(targets, Tensor) else targets))
    count, steps = values.shape[:2]
    require(
        tuple(found.shape) in ((count,), (count, steps)),
        f"expected y of shape ({count},), or ({count}, {steps}) for a class at every step",
        f"got {tuple(found.shape)}",
    )
    whole = not found.is_floating_point() and not found.is_complex()
    require(whole, "expected class indices in y", f"got {found.dtype}", "encode the labels as 0, 1, …")
    data = LabeledSequences(values, lengths, found.long())
    lowest = int(data.true_targets.min())
    require(lowest >= 0, "expected class indices of at least 0 in y", f"got {lowest}")
    return data.targets

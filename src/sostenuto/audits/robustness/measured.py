"""Sequences with true numbers, as audits of regressors need them: errors in the target's own unit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.model import audited, call_model, place_of
from sostenuto.audits.robustness.labeled import labeled_sequences
from sostenuto.audits.robustness.targeted import TargetedSequences, read_sequences
from sostenuto.checks import check_positive, require
from sostenuto.types import Lengths, Sequences


@dataclass(frozen=True, eq=False)
class MeasuredSequences(TargetedSequences):
    """A padded batch, the true length of each sequence, and numbers ``(n, out)``, or ``(n, time, out)`` a step.

    ``scale`` is what one unit of each target is worth in the target's own unit: errors are multiplied by it.
    """

    targets: Float[Tensor, "batch *time out"]
    scale: Float[Tensor, " out"]

    @property
    def has_step_targets(self) -> bool:
        """Say whether every step has numbers of its own."""
        return self.targets.ndim == 3

    @property
    def loss_name(self) -> str:
        """Name the loss."""
        return "squared error"

    @property
    def deviation(self) -> float:
        """Give the error of always answering the mean of the targets: their standard deviation, in their own unit."""
        return float((self.true_targets.std(0, correction=0) * self.scale).square().mean().sqrt())

    def scores(self, model: nn.Module, rows: slice, values: Sequences) -> Float[Tensor, "batch ..."]:
        """Ask the model about ``values`` in place of its ``rows``: its numbers, shaped as the targets are."""
        found = self.answers(model, rows, values)
        wanted = tuple(self.targets[rows].shape)
        require(
            tuple(found.shape) == wanted,
            f"expected answers of shape {wanted}, as y has {wanted[-1]} number(s) a {self._answer}",
            f"got {tuple(found.shape)}",
            "pass y as the model answers: (n, out) for one answer a sequence, (n, time, out) for one a step",
        )
        return found

    def losses(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, " answer"]:
        """Give the squared error of every sequence, or of every true step, averaged over outputs, in float64."""
        squares = self._squares(scores, rows)
        return squares[self.mask[rows].to(scores.device)] if self.has_step_targets else squares

    def sequence_losses(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, " batch"]:
        """Give the squared error of every sequence; where steps have targets, its sum over the true ones."""
        squares = self._squares(scores, rows)
        if not self.has_step_targets:
            return squares
        return torch.where(self.mask[rows].to(scores.device), squares, 0.0).sum(1)

    def _squares(self, scores: Tensor, rows: slice) -> Tensor:
        off = (scores.double() - self.targets[rows].to(scores.device)) * self.scale.to(scores.device)
        return off.square().mean(-1)

    @property
    def _answer(self) -> str:
        return "step" if self.has_step_targets else "sequence"


def measured_sequences(
    model: nn.Module, sequences: Any, targets: Any, lengths: Any = None, scale: float | Sequence[float] = 1.0
) -> MeasuredSequences:
    """Check what the user brought for ``model``: sequences as `read_sequences` takes them, and finite numbers.

    ``targets`` are ``(n,)``, ``(n, out)``, ``(n, time, out)``, or ``(n, time)`` for a model with one number a step.
    """
    values, known = read_sequences(model, sequences, lengths)
    found = _numbers(model, targets, values, known)
    outputs = found.shape[-1]
    each = torch.as_tensor(np.asarray(scale, dtype=float)).reshape(-1)
    for value in each.tolist():
        check_positive("target_scale", value)
    require(len(each) in (1, outputs), f"expected one target_scale or {outputs}, one an output", f"got {len(each)}")
    return MeasuredSequences(values, known, found, each.expand(outputs).clone())


def targeted_sequences(
    model: nn.Module, sequences: Any, targets: Any, lengths: Any = None, scale: float | Sequence[float] = 1.0
) -> TargetedSequences:
    """Read classes where ``targets`` are whole numbers, and numbers of a regression where they are floating-point."""
    if is_real(targets):
        return measured_sequences(model, sequences, targets, lengths, scale)
    return labeled_sequences(model, sequences, targets, lengths)


def is_real(targets: Any) -> bool:
    """Say whether targets are floating-point numbers, which makes a regression.

    >>> is_real([0.5, 1.0]), is_real(torch.tensor([0, 1]))
    (True, False)
    """
    if isinstance(targets, Tensor):
        return targets.is_floating_point()
    return np.issubdtype(np.asarray(targets).dtype, np.floating)


def _numbers(model: nn.Module, given: Any, values: Sequences, lengths: Lengths | None) -> Tensor:
    found = given.detach().cpu() if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given))
    found = found.double()
    count, steps = values.shape[:2]
    good = found.ndim in (1, 2) or (found.ndim == 3 and found.shape[1] == steps)
    require(
        good and len(found) == count and found.numel() > 0,
        f"expected y of shape ({count},) or ({count}, out), or ({count}, {steps}, out) for numbers at every step",
        f"got {tuple(found.shape)}",
    )
    if found.ndim == 1:
        found = found[:, None]
    elif found.ndim == 2 and found.shape[1] == steps and _answers_each_step(model, values, lengths):
        found = found[:, :, None]
    counted = found
    if found.ndim == 3 and lengths is not None:
        counted = found[torch.arange(steps) < lengths[:, None]]
        # What stands in the padding is nobody's business, and NaN there must not reach a sum.
        found = torch.where((torch.arange(steps) < lengths[:, None])[:, :, None], found, 0.0)
    require(bool(counted.isfinite().all()), "expected finite numbers in y", "got NaN or infinity")
    return found


def _answers_each_step(model: nn.Module, values: Sequences, lengths: Lengths | None) -> bool:
    """Ask the model once whether it gives one number a step, where the shape of y alone does not tell."""
    device, dtype = place_of(model)
    with audited(model, 0):
        known = None if lengths is None else lengths[:1].to(device)
        found = call_model(model, values[:1].to(device, dtype), known)
    return found.ndim == 3 and found.shape[2] == 1

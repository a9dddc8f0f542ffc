"""Sequences with their true classes, as audits of accuracy need them: padding known, answers counted."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sostenuto.audits.model import call_model, place_of, takes_lengths
from sostenuto.checks import InputError, require
from sostenuto.data.batch import SequenceBatch, as_sequences
from sostenuto.types import Lengths, Mask, Sequences


@dataclass(frozen=True, eq=False)
class LabeledSequences:
    """A padded batch, the true length of each sequence (None: all fill it), and a class per sequence or per step."""

    values: Sequences
    lengths: Lengths | None
    targets: Int[Tensor, "batch *time"]

    @property
    def has_step_targets(self) -> bool:
        """Say whether every step has a class of its own."""
        return self.targets.ndim == 2

    @cached_property
    def mask(self) -> Mask:
        """Mark the true steps."""
        count, steps = self.values.shape[:2]
        if self.lengths is None:
            return torch.ones(count, steps, dtype=torch.bool)
        return torch.arange(steps) < self.lengths[:, None]

    @cached_property
    def true_targets(self) -> Int[Tensor, " answer"]:
        """List the classes that count, without those of the padding."""
        return self.targets[self.mask] if self.has_step_targets else self.targets

    def true_steps(self) -> Float[Tensor, "step channel"]:
        """Stack the true steps of all sequences, in float64, to measure each channel."""
        return self.values[self.mask].double()

    def checksum(self) -> str:
        """Return 16 hexadecimal digits that change when any true value, length or class does."""
        digest = hashlib.sha256(self.true_steps().numpy().tobytes())
        digest.update(str((tuple(self.values.shape), None if self.lengths is None else self.lengths.tolist())).encode())
        digest.update(self.true_targets.numpy().tobytes())
        return digest.hexdigest()[:16]

    def batches(self, size: int) -> Iterator[slice]:
        """Give the rows of one batch after the other."""
        for start in range(0, len(self.values), size):
            yield slice(start, min(start + size, len(self.values)))

    def scores(self, model: nn.Module, rows: slice, values: Sequences) -> Float[Tensor, "batch ..."]:
        """Ask the model about ``values`` in place of its ``rows``: scores of a class per sequence, or per step.

        A model that scores every step while a sequence has one class answers at the last true step. The scores stay
        where the model is, so that gradients reach back to ``values``.
        """
        device, dtype = place_of(model)
        lengths = None if self.lengths is None else self.lengths[rows]
        scores = call_model(model, values.to(device, dtype), None if lengths is None else lengths.to(device))
        require(
            scores.shape[-1] >= 2, "expected scores of at least 2 classes from the model", f"got {scores.shape[-1]}"
        )
        if scores.ndim == 2:
            require(
                not self.has_step_targets,
                "expected scores at every step, as y has a class for every step",
                f"got scores of shape {tuple(scores.shape)}",
                "pass one class a sequence, or a model that returns (batch, time, classes)",
            )
        elif not self.has_step_targets:
            last = self.mask[rows].sum(1) - 1
            scores = scores[torch.arange(len(scores), device=device), last.to(device)]
        classes, highest = scores.shape[-1], int(self.true_targets.max())
        require(
            highest < classes,
            f"expected classes from 0 to {classes - 1} in y, as the model has {classes} scores",
            f"got {highest}",
        )
        return scores

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

    With ``lengths``, an array keeps its padding as it is. A list of unequal lengths is padded with zeros, and the model
    must then take ``lengths``, lest it read padding it was never meant to see.
    """
    dtype = torch.float64 if place_of(model)[1] == torch.float64 else torch.float32
    if lengths is None:
        batch = SequenceBatch.from_sequences(_checked(sequences), dtype=dtype)
        ragged = int(batch.lengths.min()) < int(batch.lengths.max())
        require(
            not ragged or takes_lengths(model),
            "expected a model whose forward takes lengths, as the sequences are of unequal length",
            f"got {type(model).__name__} without it",
            "pass an array padded the way the model was trained, with lengths=",
        )
        values, known = batch.values, batch.lengths if ragged else None
    else:
        values, known = _padded(sequences, lengths, dtype)
    return LabeledSequences(values, known, _classes(targets, values, known))


def _checked(sequences: Any) -> list[np.ndarray]:
    found = as_sequences(sequences, allow_nan=True)
    for index, sequence in enumerate(found):
        if np.isnan(sequence).any():
            raise InputError(f"sequence {index}: expected no missing values, got NaN; fill them in or drop it.")
    return found


def _padded(sequences: Any, lengths: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    array = sequences.detach().cpu().numpy() if isinstance(sequences, Tensor) else sequences
    require(
        isinstance(array, np.ndarray) and array.ndim in (2, 3),
        "expected a padded array (n, time) or (n, time, channel) beside lengths",
        f"got {type(sequences).__name__}",
        "a list needs no lengths",
    )
    array = array[:, :, None] if array.ndim == 2 else array
    known = torch.as_tensor(np.asarray(lengths))
    whole = not known.is_floating_point() and not known.is_complex()
    require(whole, "expected whole numbers in lengths", f"got {known.dtype}")
    shape = tuple(known.shape)
    require(shape == (len(array),), f"expected {len(array)} lengths, one a sequence", f"got shape {shape}")
    batch = SequenceBatch(torch.tensor(array, dtype=dtype), known.long())
    _checked([row[:length] for row, length in zip(array, known.tolist(), strict=True)])
    return batch.values, batch.lengths


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

"""Sequences with what should be answered about them: padding known, the model asked in its own place and precision."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from sostenuto.audits.model import call_model, place_of, takes_lengths
from sostenuto.checks import InputError, require
from sostenuto.data.batch import SequenceBatch, as_sequences
from sostenuto.types import Lengths, Mask, Sequences


@dataclass(frozen=True, eq=False)
class TargetedSequences(ABC):
    """A padded batch, the true length of each sequence (None: all fill it), and its targets, on the CPU."""

    values: Sequences
    lengths: Lengths | None
    targets: Shaped[Tensor, "batch ..."]

    @property
    @abstractmethod
    def has_step_targets(self) -> bool:
        """Say whether every step has a target of its own."""

    @abstractmethod
    def scores(self, model: nn.Module, rows: slice, values: Sequences) -> Float[Tensor, "batch ..."]:
        """Ask the model about ``values`` in place of its ``rows``, and check that its answer fits the targets."""

    @abstractmethod
    def losses(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, " answer"]:
        """Give the loss of every answer that counts, where gradients reach back to the scores."""

    @property
    @abstractmethod
    def loss_name(self) -> str:
        """Name the loss."""

    @cached_property
    def mask(self) -> Mask:
        """Mark the true steps."""
        count, steps = self.values.shape[:2]
        if self.lengths is None:
            return torch.ones(count, steps, dtype=torch.bool)
        return torch.arange(steps) < self.lengths[:, None]

    @cached_property
    def true_targets(self) -> Shaped[Tensor, "answer ..."]:
        """List the targets that count, without those of the padding."""
        return self.targets[self.mask] if self.has_step_targets else self.targets

    def true_steps(self) -> Float[Tensor, "step channel"]:
        """Stack the true steps of all sequences, in float64, to measure each channel."""
        return self.values[self.mask].double()

    def checksum(self) -> str:
        """Return 16 hexadecimal digits that change when any true value, length or target does."""
        digest = hashlib.sha256(self.true_steps().numpy().tobytes())
        digest.update(str((tuple(self.values.shape), None if self.lengths is None else self.lengths.tolist())).encode())
        digest.update(self.true_targets.numpy().tobytes())
        return digest.hexdigest()[:16]

    def batches(self, size: int) -> Iterator[slice]:
        """Give the rows of one batch after the other."""
        for start in range(0, len(self.values), size):
            yield slice(start, min(start + size, len(self.values)))

    def answers(self, model: nn.Module, rows: slice, values: Sequences) -> Float[Tensor, "batch ..."]:
        """Ask the model about ``values`` in place of its ``rows``: an answer a sequence, or a step where targets are.

        A model that answers at every step while a sequence has one target answers at the last true step. The answers
        stay where the model is, so that gradients reach back to ``values``.
        """
        device, dtype = place_of(model)
        lengths = None if self.lengths is None else self.lengths[rows]
        found = call_model(model, values.to(device, dtype), None if lengths is None else lengths.to(device))
        if found.ndim == 3 and not self.has_step_targets:
            last = self.mask[rows].sum(1) - 1
            return found[torch.arange(len(found), device=found.device), last.to(found.device)]
        return found


def read_sequences(model: nn.Module, sequences: Any, lengths: Any) -> tuple[Sequences, Lengths | None]:
    """Check what the user brought for ``model``: an array or a list, and lengths where an array is padded.

    With ``lengths``, an array keeps its padding as it is. A list of unequal lengths is padded with zeros, and the model
    must then take ``lengths``, lest it read padding it was never meant to see.
    """
    dtype = torch.float64 if place_of(model)[1] == torch.float64 else torch.float32
    if lengths is not None:
        return _padded(sequences, lengths, dtype)
    batch = SequenceBatch.from_sequences(_checked(sequences), dtype=dtype)
    ragged = int(batch.lengths.min()) < int(batch.lengths.max())
    require(
        not ragged or takes_lengths(model),
        "expected a model whose forward takes lengths, as the sequences are of unequal length",
        f"got {type(model).__name__} without it",
        "pass an array padded the way the model was trained, with lengths=",
    )
    return batch.values, batch.lengths if ragged else None


def _checked(sequences: Any) -> list[np.ndarray]:
    found = as_sequences(sequences, allow_nan=True)
    for index, sequence in enumerate(found):
        if np.isnan(sequence).any():
            raise InputError(f"sequence {index}: expected no missing values, got NaN; fill them in or drop it.")
    return found


def _padded(sequences: Any, lengths: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    array = sequences
    if isinstance(sequences, Tensor):
        held = sequences.detach().cpu()
        array = (held.float() if held.dtype == torch.bfloat16 else held).numpy()
    require(
        isinstance(array, np.ndarray) and array.ndim in (2, 3),
        "expected a padded array (n, time) or (n, time, channel) beside lengths",
        f"got {type(sequences).__name__}",
        "a list needs no lengths",
    )
    array = array[:, :, None] if array.ndim == 2 else array
    known = lengths.cpu() if isinstance(lengths, Tensor) else torch.as_tensor(np.asarray(lengths))
    whole = not known.is_floating_point() and not known.is_complex()
    require(whole, "expected whole numbers in lengths", f"got {known.dtype}")
    shape = tuple(known.shape)
    require(shape == (len(array),), f"expected {len(array)} lengths, one a sequence", f"got shape {shape}")
    batch = SequenceBatch(torch.tensor(array, dtype=dtype), known.long())
    _checked([row[:length] for row, length in zip(array, known.tolist(), strict=True)])
    return batch.values, batch.lengths

"""Sequences with what should be answered about them: read and checked, the model asked, and its answers scored.

A batch scores itself, so that one algorithm serves classes and numbers:

    classes   score = accuracy                      guess = share of the most frequent class
    numbers   score = root mean square error        guess = standard deviation of the targets
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from sostenuto.audits.model import audited, call_model, place_of, takes_lengths
from sostenuto.audits.repeats import grouped, sketched
from sostenuto.checks import InputError, check_positive, require
from sostenuto.data.batch import SequenceBatch, as_sequences
from sostenuto.report.numbers import percent, with_unit
from sostenuto.types import Lengths, Mask, Sequences

Measure = Literal["accuracy", "error"]
GUESSES: dict[Measure, str] = {
    "accuracy": "always answering the most frequent class",
    "error": "always answering the mean",
}


@dataclass(frozen=True, eq=False)
class EvalBatch(ABC):
    """A padded batch, the true length of each sequence (None: all fill it), and its targets, on the CPU."""

    values: Sequences
    lengths: Lengths | None
    targets: Shaped[Tensor, "batch ..."]

    measure: ClassVar[Measure]
    loss_name: ClassVar[str]

    @property
    @abstractmethod
    def has_step_targets(self) -> bool:
        """Say whether every step has a target of its own."""

    @abstractmethod
    def scores(self, model: nn.Module, rows: slice, values: Sequences) -> Float[Tensor, "batch ..."]:
        """Ask the model about ``values`` in place of its ``rows``, and check that its answer fits the targets.

        The answer stays where the model is, so that gradients reach back to ``values``.
        """

    @abstractmethod
    def losses(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, " answer"]:
        """Give the loss of every answer that counts, where gradients reach back to the scores."""

    @abstractmethod
    def objectives(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, " batch"]:
        """Give what an attack climbs, one number per sequence."""

    @abstractmethod
    def marks(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, "batch 2"]:
        """Give each sequence's right answers (or its sum of squared errors), and its answers without a number.

        An answer that is no number is wrong; it adds nothing to squared errors.
        """

    @abstractmethod
    def score(self, total: float, undefined: float = 0.0) -> float:
        """Turn the sum of all marks into the score."""

    @abstractmethod
    def worst(self, first: Float[Tensor, " batch"], second: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Choose the worse of two marks of each sequence."""

    @property
    @abstractmethod
    def guess(self) -> float:
        """Give the score of the best answer that does not look at the input."""

    @abstractmethod
    def guess_marks(self) -> Float[np.ndarray, " batch"]:
        """Give each sequence's mark under that answer."""

    @abstractmethod
    def lost(self, clean: float, damaged: float) -> float:
        """Give what was lost from one score to another: accuracy, or error as a share of the guess's."""

    def most_lost(self, clean: Float[np.ndarray, " batch"], damaged: Float[np.ndarray, " batch"]) -> float:  # noqa: ARG002
        """Give the share of right answers that the class loses which loses most; 0 where there are no classes."""
        return 0.0

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

    @property
    def count(self) -> int:
        """Count the answers that are judged."""
        return len(self.true_targets)

    @cached_property
    def answers_of(self) -> Int[np.ndarray, " batch"]:
        """Count the answers of each sequence."""
        return self.mask.sum(1).numpy() if self.has_step_targets else np.ones(len(self.values), int)

    @cached_property
    def groups(self) -> Int[np.ndarray, " batch"]:
        """Number the different sequences: copies, moved a little or not at all, have the same number."""
        return grouped(self.sketched(self.values.shape[1], self.deviations))

    def sketched(self, steps: int, deviations: Tensor) -> Float[np.ndarray, "batch direction"]:
        """Compare true steps with those of other batches of up to so many steps."""
        true = torch.where(self.mask[:, :, None], self.values, 0)
        return sketched(F.pad(true, (0, 0, 0, steps - true.shape[1])), deviations)

    @property
    def owners(self) -> Int[np.ndarray, " answer"]:
        """Name the sequence of every answer that counts."""
        return np.repeat(np.arange(len(self.values)), self.answers_of)

    def true_steps(self) -> Float[Tensor, "step channel"]:
        """Stack the true steps of all sequences, in float64, to measure each channel."""
        return self.values[self.mask].double()

    @cached_property
    def deviations(self) -> Float[Tensor, " channel"]:
        """Give the standard deviation of each channel over all true steps; 0 where it does not vary."""
        return self.true_steps().std(0, correction=0)

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

    def take(self, rows: Int[Tensor, " row"] | slice) -> "EvalBatch":
        """Keep some of the sequences."""
        lengths = None if self.lengths is None else self.lengths[rows]
        return replace(self, values=self.values[rows], lengths=lengths, targets=self.targets[rows])

    def sample(self, most: int, seed: int, *, balanced: bool = False) -> "EvalBatch":
        """Keep at most so many sequences, drawn by chance; ``balanced``: of every class as many, where there are."""
        count = len(self.values)
        if count <= most:
            return self
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        if balanced and not self.has_step_targets and not self.targets.is_floating_point():
            place = torch.zeros(count, dtype=torch.long)
            for label in self.targets.unique():
                own = order[self.targets[order] == label]
                place[own] = torch.arange(len(own))
            order = order[place[order].argsort(stable=True)]
        return self.take(order[:most].sort().values)

    def answers(self, model: nn.Module, rows: slice, values: Sequences) -> Float[Tensor, "batch ..."]:
        """Ask the model about ``values`` in place of its ``rows``: an answer each, or one per step where targets are.

        A model that answers at every step while a sequence has one target answers at the last true step.
        """
        device, dtype = place_of(model)
        lengths = None if self.lengths is None else self.lengths[rows]
        output = call_model(model, values.to(device, dtype), None if lengths is None else lengths.to(device))
        if output.ndim == 3 and not self.has_step_targets:
            last = self.mask[rows].sum(1) - 1
            return output[torch.arange(len(output), device=output.device), last.to(output.device)]
        return output

    def all_marks(self, model: nn.Module, batch_size: int) -> Float[np.ndarray, "batch 2"]:
        """Mark the model's answers to the sequences as they are."""
        return np.concatenate(
            [
                self.marks(self.scores(model, rows, self.values[rows]), rows).detach().cpu().numpy()
                for rows in self.batches(batch_size)
            ]
        )

    @property
    def _answer(self) -> str:
        return "step" if self.has_step_targets else "sequence"


@dataclass(frozen=True, eq=False)
class ClassificationBatch(EvalBatch):
    """Sequences with a class each, or a class at every step; the answer is the class of the highest score."""

    targets: Int[Tensor, "batch *time"]
    measure = "accuracy"
    loss_name = "cross-entropy"

    @property
    def has_step_targets(self) -> bool:
        """Say whether every step has a class of its own."""
        return self.targets.ndim == 2

    @property
    def guess(self) -> float:
        """Give the share of the most frequent class."""
        return int(self.true_targets.bincount().max()) / self.count

    def guess_marks(self) -> Float[np.ndarray, " batch"]:
        """Count in each sequence the answers of the most frequent class."""
        right = (self.true_targets == self.true_targets.bincount().argmax()).numpy()
        return np.bincount(self.owners, weights=right, minlength=len(self.values))

    def scores(self, model: nn.Module, rows: slice, values: Sequences) -> Float[Tensor, "batch ..."]:
        """Ask the model about ``values`` in place of its ``rows``: scores of every class per sequence, or per step."""
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
            "pass one class per sequence, or a model that returns (batch, time, classes)",
        )
        classes, highest = scores.shape[-1], int(self.true_targets.max())
        require(
            highest < classes,
            f"expected classes from 0 to {classes - 1} in y, as the model has {classes} scores",
            f"got {highest}",
            "number the classes from 0, or pass their names as text",
        )
        return scores

    def losses(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, " answer"]:
        """Give the cross-entropy of every sequence, or of every true step."""
        targets = self.targets[rows].to(scores.device)
        if self.has_step_targets:
            true = self.mask[rows].to(scores.device)
            scores, targets = scores[true], targets[true]
        return F.cross_entropy(scores, targets, reduction="none")

    def objectives(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, " batch"]:
        """Give the logarithm of the odds of a wrong answer, summed over true steps.

        It grows with the cross-entropy log(1 + e^odds), so ascent takes the same directions; but its gradient does not
        vanish where the model is so sure that the cross-entropy is 0 in floating point.
        """
        targets = self.targets[rows].to(scores.device)
        if self.has_step_targets:
            targets = targets.clamp(min=0)  # padding may hold anything
        chosen = F.one_hot(targets, scores.shape[-1]).bool()
        odds = scores.masked_fill(chosen, -torch.inf).logsumexp(-1) - scores.gather(-1, targets[..., None])[..., 0]
        return (odds * self.mask[rows].to(odds)).sum(1) if self.has_step_targets else odds

    def marks(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, "batch 2"]:
        """Count right answers, and answers of which a score is NaN."""
        scores = scores.cpu()
        undefined = scores.isnan().any(-1)
        right = (scores.argmax(-1) == self.targets[rows]) & ~undefined
        both = torch.stack([right, undefined], -1).double()
        return (both * self.mask[rows][:, :, None]).sum(1) if self.has_step_targets else both

    def score(self, total: float, undefined: float = 0.0) -> float:  # noqa: ARG002 (no answer is a wrong answer)
        """Give the share of right answers."""
        return float(total) / self.count

    def worst(self, first: Float[Tensor, " batch"], second: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Choose the fewer right answers."""
        return torch.minimum(first, second)

    def lost(self, clean: float, damaged: float) -> float:
        """Give the accuracy lost."""
        return clean - damaged

    def most_lost(self, clean: Float[np.ndarray, " batch"], damaged: Float[np.ndarray, " batch"]) -> float:
        """Give the share of right answers that the class loses which loses most; 0 where each step has a class."""
        if self.has_step_targets:
            return 0.0
        right, left = (np.bincount(self.targets.numpy(), weights=marks) for marks in (clean, damaged))
        return float(((right - left) / np.maximum(right, 1)).max())


@dataclass(frozen=True, eq=False)
class RegressionBatch(EvalBatch):
    """Sequences with numbers ``(n, out)``, or ``(n, time, out)`` at every step.

    ``scale`` is what one unit of each target is worth in the target's own unit: errors are multiplied by it.
    """

    targets: Float[Tensor, "batch *time out"]
    scale: Float[Tensor, " out"]
    measure = "error"
    loss_name = "squared error"

    @property
    def has_step_targets(self) -> bool:
        """Say whether every step has numbers of its own."""
        return self.targets.ndim == 3

    @property
    def guess(self) -> float:
        """Give the standard deviation of the targets, in their own unit: the error of always answering their mean."""
        return float((self.true_targets.std(0, correction=0) * self.scale).square().mean().sqrt())

    def guess_marks(self) -> Float[np.ndarray, " batch"]:
        """Sum in each sequence the squared errors of always answering the mean."""
        off = (self.true_targets - self.true_targets.mean(0)) * self.scale
        return np.bincount(self.owners, weights=off.square().mean(-1).numpy(), minlength=len(self.values))

    def scores(self, model: nn.Module, rows: slice, values: Sequences) -> Float[Tensor, "batch ..."]:
        """Ask the model about ``values`` in place of its ``rows``: its numbers, shaped as the targets are."""
        output = self.answers(model, rows, values)
        wanted = tuple(self.targets[rows].shape)
        require(
            tuple(output.shape) == wanted,
            f"expected answers of shape {wanted}, as y has {wanted[-1]} number(s) a {self._answer}",
            f"got {tuple(output.shape)}",
            "pass y as the model answers: (n, out) for one answer per sequence, (n, time, out) for one per step",
        )
        return output

    def losses(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, " answer"]:
        """Give the squared error of every sequence, or of every true step, averaged over outputs, in float64."""
        squares = self._squares(scores, rows)
        return squares[self.mask[rows].to(scores.device)] if self.has_step_targets else squares

    def objectives(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, " batch"]:
        """Give the squared error of every sequence; where steps have targets, its sum over the true ones."""
        squares = self._squares(scores, rows)
        if not self.has_step_targets:
            return squares
        return torch.where(self.mask[rows].to(scores.device), squares, 0.0).sum(1)

    def marks(self, scores: Float[Tensor, "batch ..."], rows: slice) -> Float[Tensor, "batch 2"]:
        """Sum the squared errors of finite answers, and count the others."""
        squares = self._squares(scores, rows).cpu()
        both = torch.stack([squares.nan_to_num(0.0, 0.0, 0.0), (~squares.isfinite()).double()], -1)
        return torch.where(self.mask[rows][:, :, None], both, 0.0).sum(1) if self.has_step_targets else both

    def score(self, total: float, undefined: float = 0.0) -> float:
        """Give the root mean square error of the answers that are numbers."""
        known = self.count - undefined
        return math.sqrt(total / known) if known > 0 else math.nan

    def worst(self, first: Float[Tensor, " batch"], second: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Choose the larger squared error."""
        return torch.maximum(first, second)

    def lost(self, clean: float, damaged: float) -> float:
        """Give the rise of the error as a share of the targets' standard deviation."""
        if self.guess > 0:
            return (damaged - clean) / self.guess
        return float(damaged > clean)

    def _squares(self, scores: Tensor, rows: slice) -> Tensor:
        off = (scores.double() - self.targets[rows].to(scores.device)) * self.scale.to(scores.device)
        return off.square().mean(-1)


def score_words(measure: Measure, score: float, unit: str = "") -> str:
    r"""Write a score: an accuracy as a percentage, an error with its unit.

    >>> score_words("error", 2.5, "kPa")
    '2.5 kPa'
    """
    if not math.isfinite(score):
        return "no number at all"
    return percent(score) if measure == "accuracy" else with_unit(score, unit)


def eval_batch(
    model: nn.Module, sequences: Any, targets: Any, lengths: Any = None, scale: float | Sequence[float] = 1.0
) -> EvalBatch:
    """Read classes where ``targets`` are whole numbers, and numbers of a regression where they are floating-point.

    Classes are ``(n,)`` or ``(n, time)``; numbers ``(n,)``, ``(n, out)``, ``(n, time, out)``, or ``(n, time)`` for a
    model with one number per step. For sequences and lengths see `read_sequences`.
    """
    values, known = read_sequences(model, sequences, lengths)
    if not is_real(targets):
        return ClassificationBatch(values, known, _classes(targets, values, known))
    numbers = _numbers(model, targets, values, known)
    outputs = numbers.shape[-1]
    each = torch.as_tensor(np.asarray(scale, dtype=float)).reshape(-1)
    for value in each.tolist():
        check_positive("target_scale", value)
    require(len(each) in (1, outputs), f"expected one target_scale or {outputs}, one an output", f"got {len(each)}")
    return RegressionBatch(values, known, numbers, each.expand(outputs).clone())


def classification_batch(model: nn.Module, sequences: Any, targets: Any, lengths: Any = None) -> ClassificationBatch:
    """Read sequences and classes, and refuse numbers."""
    values, known = read_sequences(model, sequences, lengths)
    return ClassificationBatch(values, known, _classes(targets, values, known))


def named_part(part: str, read: Any, *arguments: Any) -> Any:
    """Read one part of the data, and name the part in what it is refused for."""
    try:
        return read(*arguments)
    except InputError as error:
        raise InputError(f"{part} part: {error}") from error


def is_real(targets: Any) -> bool:
    """Say whether targets are floating-point numbers, which makes a regression.

    >>> is_real([0.5, 1.0]), is_real(torch.tensor([0, 1]))
    (True, False)
    """
    if isinstance(targets, Tensor):
        return targets.is_floating_point()
    return np.issubdtype(np.asarray(targets).dtype, np.floating)


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
    arrays = as_sequences(sequences, allow_nan=True)
    for index, sequence in enumerate(arrays):
        if np.isnan(sequence).any():
            raise InputError(f"sequence {index}: expected no missing values, got NaN; fill them in or drop it.")
    return arrays


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
    require(shape == (len(array),), f"expected {len(array)} lengths, one per sequence", f"got shape {shape}")
    batch = SequenceBatch(torch.tensor(array, dtype=dtype), known.long())
    _checked([row[:length] for row, length in zip(array, known.tolist(), strict=True)])
    return batch.values, batch.lengths


def _classes(targets: Any, values: Tensor, lengths: Tensor | None) -> Tensor:
    labels = torch.as_tensor(np.asarray(targets.cpu() if isinstance(targets, Tensor) else targets))
    count, steps = values.shape[:2]
    require(
        tuple(labels.shape) in ((count,), (count, steps)),
        f"expected y of shape ({count},), or ({count}, {steps}) for a class at every step",
        f"got {tuple(labels.shape)}",
    )
    whole = not labels.is_floating_point() and not labels.is_complex()
    require(whole, "expected class indices in y", f"got {labels.dtype}", "encode the labels as 0, 1, …")
    data = ClassificationBatch(values, lengths, labels.long())
    lowest = int(data.true_targets.min())
    require(lowest >= 0, "expected class indices of at least 0 in y", f"got {lowest}")
    return data.targets


def _numbers(model: nn.Module, targets: Any, values: Sequences, lengths: Lengths | None) -> Tensor:
    numbers = (targets.detach().cpu() if isinstance(targets, Tensor) else torch.as_tensor(np.asarray(targets))).double()
    count, steps = values.shape[:2]
    good = numbers.ndim in (1, 2) or (numbers.ndim == 3 and numbers.shape[1] == steps)
    require(
        good and len(numbers) == count and numbers.numel() > 0,
        f"expected y of shape ({count},) or ({count}, out), or ({count}, {steps}, out) for numbers at every step",
        f"got {tuple(numbers.shape)}",
    )
    if numbers.ndim == 1:
        numbers = numbers[:, None]
    elif numbers.ndim == 2 and numbers.shape[1] == steps and _answers_each_step(model, values, lengths):
        numbers = numbers[:, :, None]
    counted = numbers
    if numbers.ndim == 3 and lengths is not None:
        true = torch.arange(steps) < lengths[:, None]
        counted = numbers[true]
        # The padding's targets do not count, and NaN there must not reach a sum.
        numbers = torch.where(true[:, :, None], numbers, 0.0)
    require(bool(counted.isfinite().all()), "expected finite numbers in y", "got NaN or infinity")
    return numbers


def _answers_each_step(model: nn.Module, values: Sequences, lengths: Lengths | None) -> bool:
    """Ask the model once whether it gives one number per step, where the shape of y alone does not tell."""
    device, dtype = place_of(model)
    with audited(model, 0):
        known = None if lengths is None else lengths[:2].to(device)
        output = call_model(model, values[:2].to(device, dtype), known)
    return output.ndim == 3 and output.shape[2] == 1

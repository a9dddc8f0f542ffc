"""`SequenceBatch`: sequences of any length, padded, with what is needed to see the padding."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from sostenuto.checks import InputError, check_choice, require
from sostenuto.choices import Layout, Missing
from sostenuto.types import Lengths, Mask, Sequences, Timespans, Tokens

Steps = Float[np.ndarray, "time channel"]
_EXCHANGED = 10


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """Padded sequences, their true lengths, and optionally targets and sampling times.

    ``values`` is ``(batch, time, channel)`` and zero past each length; token sequences are ``(batch, time)`` whole
    numbers. ``targets`` holds one row per sequence: class indices or numbers; with ``has_step_targets`` one for every
    step, ``(batch, time, …)``. ``timespans`` (batch, time) is the time passed since the step before, in
    units of the sampling step. ``weights`` say how much each sequence counts in the loss.

    >>> batch = SequenceBatch.from_sequences([np.zeros((3, 2)), np.ones((1, 2))], targets=[0, 1])
    >>> batch.values.shape, batch.lengths.tolist(), batch.mask.tolist()
    (torch.Size([2, 3, 2]), [3, 1], [[True, True, True], [True, False, False]])
    """

    values: Sequences | Tokens
    lengths: Lengths
    targets: Shaped[Tensor, "batch ..."] | None = None
    timespans: Timespans | None = None
    has_step_targets: bool = False
    weights: Float[Tensor, " batch"] | None = None

    def __post_init__(self) -> None:
        count, steps = self.values.shape[:2]
        require(count > 0, "expected at least one sequence", "got an empty batch")
        require(steps > 0, "expected sequences of at least one step", "got zero steps")
        require(len(self.lengths) == count, f"expected {count} lengths", f"got {len(self.lengths)}")
        low, high = (int(bound) for bound in self.lengths.aminmax())
        require(low >= 1 and high <= steps, f"expected lengths from 1 to {steps}", f"got {low} to {high}")
        if self.targets is not None:
            require(len(self.targets) == count, f"expected {count} targets", f"got {len(self.targets)}")
        if self.timespans is not None:
            shape = tuple(self.timespans.shape)
            require(shape == (count, steps), f"expected timespans of shape {(count, steps)}", f"got {shape}")

    @classmethod
    def from_sequences(
        cls,
        sequences: Any,
        targets: Any = None,
        *,
        timespans: Any = None,
        layout: Layout = "btc",
        missing: Missing = "refuse",
        dtype: torch.dtype | None = None,
    ) -> "SequenceBatch":
        """Pad an array or a ragged list of sequences into one batch.

        ``missing`` says what becomes of NaN: ``"refuse"`` raises; ``"mask"`` writes 0 there and appends, for every
        channel, an indicator channel that is 1 where a value was observed; ``"interpolate"`` draws a straight line in
        time between the neighbors, holds the first and last observed value at the ends, and writes 0 into a channel
        that was never observed.
        """
        check_choice("missing", missing, ("refuse", "mask", "interpolate"))
        hint = "pass missing='mask' or missing='interpolate'"
        arrays = as_sequences(sequences, layout=layout, allow_nan=missing != "refuse", nan_hint=hint)
        spans = None if timespans is None else as_timespans(timespans, [len(array) for array in arrays])
        if missing == "mask":
            arrays = [np.concatenate([np.nan_to_num(a, nan=0.0), ~np.isnan(a)], axis=1) for a in arrays]
        elif missing == "interpolate":
            arrays = [interpolate(a, None if spans is None else spans[i]) for i, a in enumerate(arrays)]
        dtype = dtype or torch.get_default_dtype()
        lengths = torch.tensor([len(array) for array in arrays])
        steps = int(lengths.max())
        return cls(
            values=_padded(arrays, steps, dtype),
            lengths=lengths,
            targets=None if targets is None else torch.as_tensor(np.asarray(targets)),
            timespans=None if spans is None else _padded(spans, steps, dtype),
        )

    @property
    def mask(self) -> Mask:
        """True where a step belongs to its sequence: ``mask[b, t] = t < lengths[b]``."""
        steps = torch.arange(self.values.shape[1], device=self.lengths.device)
        return steps[None, :] < self.lengths[:, None]

    @property
    def is_ragged(self) -> bool:
        """Whether any sequence is shorter than the padded length."""
        return bool((self.lengths < self.values.shape[1]).any())

    def __len__(self) -> int:
        """Count the sequences."""
        return len(self.values)

    def select(self, indices: Tensor | Sequence[int]) -> "SequenceBatch":
        """Take the sequences at ``indices``, trimmed to the longest of them."""
        index = torch.as_tensor(indices, device=self.values.device)
        picked = self.replaced(**{name: value[index] for name, value in self._tensors().items()})
        require(len(picked) > 0, "expected at least one sequence", "got an empty batch")
        return picked.trimmed()

    def split(self, counts: Sequence[int]) -> "list[SequenceBatch]":
        """Cut into batches of ``counts`` sequences one after the other, each trimmed to the longest of its own."""
        parts = {name: value.split(list(counts)) for name, value in self._tensors().items()}
        cut = [self.replaced(**dict(zip(parts, values, strict=True))) for values in zip(*parts.values(), strict=True)]
        return [batch.trimmed() for batch in cut] if self.is_ragged else cut

    def trimmed(self) -> "SequenceBatch":
        """Drop the padding that no sequence needs."""
        steps, longest = self.values.shape[1], int(self.lengths.max())
        if longest == steps:
            return self
        targets = self.targets
        if targets is not None and self.has_step_targets:
            targets = targets[:, :longest]
        spans = None if self.timespans is None else self.timespans[:, :longest]
        return self.replaced(values=self.values[:, :longest], targets=targets, timespans=spans)

    def with_values(self, values: Sequences) -> "SequenceBatch":
        """Put other values of the same shape in place of those there are."""
        shape, other = tuple(self.values.shape), tuple(values.shape)
        require(other == shape, f"expected values of shape {shape}", f"got {other}")
        return self.replaced(values=values)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "SequenceBatch":
        """Move every tensor to ``device``; what is there already is given back as it is."""
        target = torch.device(device)
        if all(value.device == target for value in self._tensors().values()):
            return self
        moved = {name: value.to(device, non_blocking=non_blocking) for name, value in self._tensors().items()}
        return self.replaced(**moved)

    def sequences(self) -> list[Tensor]:
        """Return the sequences back without their padding."""
        return [value[:length] for value, length in zip(self.values, self.lengths.tolist(), strict=True)]

    def gathered(self, index: Int[Tensor, " n"], steps: int) -> "SequenceBatch":
        """Take the sequences at ``index``, cut after ``steps``, which none of them may exceed; no value is read back.

        >>> batch = SequenceBatch.from_sequences([np.zeros((3, 2)), np.ones((1, 2))])
        >>> batch.gathered(torch.tensor([1, 1]), 2).values.shape
        torch.Size([2, 2, 2])
        """
        cut = ("values", "timespans", *(["targets"] if self.has_step_targets else []))
        rows = {name: value[:, :steps] if name in cut else value for name, value in self._tensors().items()}
        return self.replaced(**{name: value.index_select(0, index) for name, value in rows.items()})

    def replaced(self, **changes: Any) -> "SequenceBatch":
        """Do as `dataclasses.replace` where nothing can have become wrong: no value is read back from the device."""
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__, **changes)
        return changed

    def _tensors(self) -> dict[str, Tensor]:
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in pairs if isinstance(value, Tensor)}


def as_sequences(
    sequences: Any,
    *,
    layout: Layout = "btc",
    allow_nan: bool = False,
    nan_hint: str = "fill them in or drop the sequence",
) -> list[Steps]:
    """Check user sequences and bring them to a list of ``(time, channel)`` float arrays.

    A 3-D array is read by ``layout``; a 2-D array is ``(n, time)`` with one channel; a list holds one 2-D array per
    sequence (read by ``layout`` without its ``b``) or 1-D arrays of one channel. ``nan_hint`` says what the caller can
    do about missing values that are not allowed.
    """
    check_choice("layout", layout, ("btc", "bct"))
    if isinstance(sequences, Tensor):
        sequences = _array(sequences)
    if isinstance(sequences, np.ndarray) and sequences.dtype != object:
        require(sequences.ndim in (2, 3), "expected an array of 2 or 3 axes", f"got {sequences.ndim}")
        array = sequences[:, :, None] if sequences.ndim == 2 else sequences
        items: list[Any] = list(array.transpose(0, 2, 1) if layout == "bct" and sequences.ndim == 3 else array)
    else:
        require(
            isinstance(sequences, (list, tuple, np.ndarray)),
            "expected an array or a list of arrays",
            f"got {type(sequences).__name__}",
        )
        items = [_steps(item, index, layout) for index, item in enumerate(sequences)]
    require(len(items) > 0, "expected at least one sequence", "got none")
    channels = items[0].shape[1]
    checked: list[Steps] = []
    for index, item in enumerate(items):
        array = _numeric(item, index)
        if len(array) == 0:
            raise InputError(f"sequence {index}: expected at least one step, got none; drop it or give it a value.")
        if array.shape[1] != channels or channels == 0:
            raise InputError(
                f"sequence {index}: expected {max(channels, 1)} channels as in sequence 0, got {array.shape[1]}; "
                f"check the data and layout={layout!r}."
            )
        if np.isinf(array).any():
            raise InputError(f"sequence {index}: expected finite values, got infinity; clip or drop it.")
        if not allow_nan and np.isnan(array).any():
            raise InputError(f"sequence {index}: expected no missing values, got NaN; {nan_hint}.")
        checked.append(array)
    return checked


def warn_of_exchanged_axes(steps: int, channels: int, layout: Layout) -> None:
    """Warn where arrays read as ``layout`` have ten times more channels than steps: time is more often the longer axis.

    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     warn_of_exchanged_axes(3, 60, "btc")
    >>> str(caught[0].message)
    "sequences are read as 3 steps of 60 channels; if they are 60 steps of 3 channels, pass layout='bct'"
    """
    if channels >= _EXCHANGED * steps:
        other = "bct" if layout == "btc" else "btc"
        warnings.warn(
            f"sequences are read as {steps} steps of {channels} channels; "
            f"if they are {channels} steps of {steps} channels, pass layout={other!r}",
            stacklevel=3,
        )


def as_timespans(timespans: Any, lengths: list[int]) -> list[Float[np.ndarray, " time"]]:
    """Check the time passed before each step: finite, above zero, one number per step."""
    require(len(timespans) == len(lengths), f"expected timespans for {len(lengths)} sequences", f"got {len(timespans)}")
    checked = []
    for index, (item, length) in enumerate(zip(timespans, lengths, strict=True)):
        span = np.asarray(item, dtype=float).reshape(-1)[:length]
        if len(span) != length:
            raise InputError(f"sequence {index}: expected {length} timespans, got {len(span)}.")
        if not np.isfinite(span).all() or (span <= 0).any():
            raise InputError(f"sequence {index}: expected finite timespans above 0, got {float(span.min())}.")
        checked.append(span)
    return checked


def _array(tensor: Tensor) -> np.ndarray:
    """Bring a tensor from any device to numpy, which has no bfloat16."""
    held = tensor.detach().cpu()
    return (held.float() if held.dtype == torch.bfloat16 else held).numpy()


def _steps(item: Any, index: int, layout: Layout) -> np.ndarray:
    array = _array(item) if isinstance(item, Tensor) else np.asarray(item)
    if array.ndim == 1:
        return array[:, None]
    if array.ndim != 2:
        raise InputError(f"sequence {index}: expected an array of 1 or 2 axes, got {array.ndim}.")
    return array.T if layout == "bct" else array


def _numeric(item: np.ndarray, index: int) -> Steps:
    if np.issubdtype(item.dtype, np.floating):
        return item
    if np.iscomplexobj(item):
        raise InputError(f"sequence {index}: expected real numbers, got complex data; split it into two channels.")
    try:
        return item.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(f"sequence {index}: expected numbers, got {item.dtype} data ({error}).") from error


def interpolate(array: Steps, span: np.ndarray | None = None) -> Steps:
    """Fill NaN by straight lines in time, by the first and last value at the ends, and by 0 where none was seen.

    >>> interpolate(np.array([[np.nan], [1.0], [np.nan], [3.0]])).ravel()
    array([1., 1., 2., 3.])
    """
    times = np.arange(len(array)) if span is None else np.cumsum(span)
    filled = array.copy()
    for channel in range(array.shape[1]):
        column, seen = filled[:, channel], ~np.isnan(array[:, channel])
        column[~seen] = np.interp(times[~seen], times[seen], column[seen]) if seen.any() else 0.0
    return filled


def _padded(arrays: list[np.ndarray], steps: int, dtype: torch.dtype) -> Tensor:
    padded = np.zeros(
        (len(arrays), steps, *arrays[0].shape[1:]), dtype=np.float64 if dtype == torch.float64 else np.float32
    )
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(padded).to(dtype)

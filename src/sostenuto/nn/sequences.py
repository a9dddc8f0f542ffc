"""Between what a caller hands a layer and what a scan wants: time-major values, lengths, and the inverse."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from sostenuto.checks import is_number, require
from sostenuto.ops.dispatch import runs_eagerly

LayerInput = Tensor | PackedSequence
Timespans = Tensor | PackedSequence | float
"""Durations of the steps in the input's layout, ``(time, batch)``, ``(batch, time)``, ``(time,)`` or packed; or one."""


@dataclass(frozen=True)
class TimeMajor:
    """Values ``(time, batch, channel)`` with lengths, and how they came: packed, unbatched or batch-first."""

    values: Float[Tensor, "T B C"]
    lengths: Int[Tensor, " B"] | None
    packed: PackedSequence | None
    unbatched: bool
    batch_first: bool

    @classmethod
    def read(cls, input: LayerInput, input_size: int, batch_first: bool) -> "TimeMajor":
        """Bring a tensor, an unbatched ``(time, channel)`` tensor or a PackedSequence to time-major form."""
        if isinstance(input, PackedSequence):
            check_input(input, input_size, batch_first)
            values, lengths = _unpack(input)
            return cls(values, lengths.to(values.device), input, unbatched=False, batch_first=False)
        check_input(input, input_size, batch_first)
        unbatched = input.ndim == 2
        values = input.unsqueeze(1) if unbatched else input.transpose(0, 1) if batch_first else input
        return cls(values, None, None, unbatched, batch_first)

    def spans(self, timespans: Timespans | None, dtype: torch.dtype) -> Tensor | None:
        """Return the duration of every step ``(time, batch)``: 0 in the padding, None where each is simply 1.

        A negative or infinite span, or NaN, is refused on the CPU; elsewhere reading the numbers of a tensor would
        stall the device, and they are taken as they are.
        """
        if timespans is None:
            return None if self.lengths is None else self.mask.to(dtype)
        spans = self._time_major(timespans, dtype)
        if is_number(timespans) or is_readable(spans):
            low, high = (timespans,) * 2 if is_number(timespans) else map(float, torch.aminmax(spans.detach()))
            got = f"got {low if not low >= 0 else high}"
            require(low >= 0 and high < math.inf, "expected finite timespans of at least 0", got)
        return spans if self.lengths is None else spans * self.mask

    def _time_major(self, timespans: Any, dtype: torch.dtype) -> Tensor:
        """Bring time spans of the input's layout, or one for all steps, to ``(time, batch)``."""
        steps, batch = self.values.shape[:2]
        if _is_one(timespans):
            return (self.values.new_ones(steps, batch, dtype=dtype) * timespans).to(dtype)
        packed = self.packed
        expected = "as a tensor, as the input is" if packed is None else "packed as the input is"
        good = isinstance(timespans, Tensor if packed is None else PackedSequence)
        hint = "timespans have the layout of the input, or are one number for all steps"
        require(good, f"expected timespans {expected}", f"got {type(timespans).__name__}", hint)
        data: Any = timespans if packed is None else timespans.data
        real = data.device == self.values.device and not data.is_complex()
        require(real, f"expected real timespans on {self.values.device}", f"got {data.dtype} on {data.device}")
        if packed is not None:
            same = torch.compiler.is_compiling() or torch.equal(timespans.batch_sizes, packed.batch_sizes)
            require(same and data.ndim == 1, "expected one of the timespans for each step packed", "got others", hint)
            return _unpack(timespans)[0].to(dtype)
        shape, axes = ((steps,), "(time,)") if self.unbatched else ((steps, batch), "(time, batch)")
        if self.batch_first and not self.unbatched:
            shape, axes = (batch, steps), "(batch, time)"
        got = tuple(timespans.shape)
        require(got == shape, f"expected timespans of shape {shape} {axes}", f"got {got}", hint)
        turned = timespans.unsqueeze(1) if self.unbatched else timespans.T if self.batch_first else timespans
        return turned.to(dtype)

    @property
    def mask(self) -> Tensor:
        """True where a step belongs to its sequence, ``(time, batch)``."""
        steps = torch.arange(self.values.shape[0], device=self.values.device)
        lengths = self.values.new_full((self.values.shape[1],), self.values.shape[0], dtype=torch.long)
        return steps[:, None] < (lengths if self.lengths is None else self.lengths)[None, :]

    def reverse(self, values: Tensor) -> Tensor:
        """Turn time round, each sequence within its own length; padding stays where it is."""
        if self.lengths is None:
            return values.flip(0)
        steps = torch.arange(values.shape[0], device=values.device)[:, None]
        index = torch.where(steps < self.lengths, self.lengths - 1 - steps, steps)
        return values.gather(0, index.reshape(*index.shape, *[1] * (values.ndim - 2)).expand_as(values))

    def write(self, output: Tensor) -> LayerInput:
        """Bring a time-major output back to the form the input came in."""
        if self.packed is not None:
            return _repack(output, self.lengths, self.packed)
        if self.unbatched:
            return output.squeeze(1)
        return output.transpose(0, 1) if self.batch_first else output


def _is_one(timespans: object) -> bool:
    return is_number(timespans) or (isinstance(timespans, Tensor) and timespans.ndim == 0)


def is_readable(values: Tensor) -> bool:
    """Whether numbers can be looked at without waiting for a device, or breaking a graph that is being compiled.

    >>> is_readable(torch.ones(2)), is_readable(torch.ones(0)), is_readable(torch.ones(2, device="meta"))
    (True, False, False)
    """
    return values.device.type == "cpu" and values.numel() > 0 and runs_eagerly(values)


def _unpack(packed: PackedSequence) -> tuple[Tensor, Tensor]:
    """Pad packed sequences with zeros, time first, and give their lengths.

    In a graph being compiled no number may be read from a tensor: rows are gathered by index there, for sequences
    packed with ``enforce_sorted=False``, whose order tells how many they are.
    """
    if not torch.compiler.is_compiling() or packed.unsorted_indices is None:
        return _pad(packed)  # pyright: ignore[reportReturnType, reportArgumentType]: disable() hides the signature
    data, sizes, order = packed.data, packed.batch_sizes.to(packed.data.device), packed.unsorted_indices
    columns = torch.arange(order.shape[0], device=data.device)
    present = columns < sizes[:, None]
    index = torch.where(present, (sizes.cumsum(0) - sizes)[:, None] + columns, 0)
    present = present.index_select(1, order)
    values = data[index.index_select(1, order)]
    absent = ~present.reshape(*present.shape, *[1] * (values.ndim - 2))
    return values.masked_fill(absent, 0), present.sum(0)


@torch.compiler.disable
def _pad(packed: PackedSequence) -> tuple[Tensor, Tensor]:
    """Pad outside of compiled graphs: ``batch_sizes`` is read to tell how many sequences there are."""
    return pad_packed_sequence(packed)


def _repack(output: Tensor, lengths: Tensor | None, packed: PackedSequence) -> PackedSequence:
    order = packed.sorted_indices
    if torch.compiler.is_compiling() and order is not None:
        return PackedSequence(_gathered(output, packed), packed.batch_sizes, order, packed.unsorted_indices)
    lengths = None if lengths is None else lengths.cpu()
    if order is not None and lengths is not None:
        output, lengths = output.index_select(1, order), lengths[order.cpu()]
    data = pack_padded_sequence(output, lengths, enforce_sorted=True).data  # pyright: ignore[reportArgumentType]
    return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


def _gathered(output: Tensor, packed: PackedSequence) -> Tensor:
    """Gather the steps that exist in the order in which they were packed: all sequences' first ones first."""
    ends = packed.batch_sizes.to(output.device).cumsum(0)
    rows = torch.arange(packed.data.shape[0], device=output.device)
    steps = torch.searchsorted(ends, rows, right=True)
    columns = rows - torch.cat([ends.new_zeros(1), ends])[steps]
    return output[steps, packed.sorted_indices[columns]]  # pyright: ignore[reportOptionalSubscript]


def check_input(input: LayerInput, input_size: int, batch_first: bool) -> None:
    """Refuse an input with the wrong number of axes or channels, or no steps; no sequences are an empty batch."""
    values = input.data if isinstance(input, PackedSequence) else input
    if not isinstance(input, PackedSequence):
        require(values.ndim in (2, 3), "expected an input of 2 (unbatched) or 3 axes", f"got {values.ndim}")
        time = values.shape[1] if batch_first and values.ndim == 3 else values.shape[0]
        require(time > 0, "expected at least one time step", "got none")
    hint = "the last axis holds the channels; check batch_first and input_size"
    got = values.shape[-1]
    require(got == input_size, f"expected {input_size} channels (input_size)", f"got {got}", hint)

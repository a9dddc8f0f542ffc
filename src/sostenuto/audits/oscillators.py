"""The oscillators inside a model, traced unit by unit in float64 while the model reads its data."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sostenuto.audits.model import audited, call_model, place_of, takes_lengths
from sostenuto.checks import check_count, require
from sostenuto.data.batch import SequenceBatch, as_sequences
from sostenuto.nn.arguments import named_arguments
from sostenuto.nn.sequences import TimeMajor
from sostenuto.nn.unicornn import UnICORNN
from sostenuto.report.numbers import number

WRAP = "pass the UnICORNN itself, with its own input"


@dataclass(frozen=True)
class Cell:
    """One layer and direction of a UnICORNN: its units' steps h, weights w and their stiffness α, in float64."""

    layer: int
    reverse: bool
    step: Float[Tensor, " unit"]
    weight: Float[Tensor, " unit"]
    stiffness: float

    @property
    def name(self) -> str:
        """Name the layer, counted from 1, and the direction where it is the second."""
        return f"layer {self.layer + 1}" + (", backward" if self.reverse else "")


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What the units of one cell did: states after every step, and the curvature q each step was taken with.

    ``steps`` is ``(time or 1, batch or 1, unit)``, ``curvature``, ``position`` and ``velocity`` are
    ``(time, batch, unit)``, and ``mask`` marks the true steps, ``(time, batch)``.
    """

    cell: Cell
    steps: Float[Tensor, "_ _ unit"]
    curvature: Float[Tensor, "time batch unit"]
    position: Float[Tensor, "time batch unit"]
    velocity: Float[Tensor, "time batch unit"]
    mask: Bool[Tensor, "time batch"]


@dataclass(frozen=True, eq=False)
class Reading:
    """One call of the layer: its input, time spans (None: each is 1) and first state (None: zero)."""

    sequences: TimeMajor
    spans: Float[Tensor, "time batch"] | None
    start: tuple[Tensor, ...] | None

    @cached_property
    def constant_spans(self) -> bool:
        """Say whether every sequence has steps of one duration."""
        if self.spans is None:
            return True
        mask = self.sequences.mask
        longest, least = self.spans.amax(0), self.spans.masked_fill(~mask, torch.inf).amin(0)
        return bool((longest == least).all())

    @property
    def starts_at_zero(self) -> bool:
        """Say whether the first state is zero."""
        return self.start is None or not any(bool(part.any()) for part in self.start)

    def durations(self) -> Float[Tensor, "batch 1"]:
        """Give the longest time span of each sequence."""
        count = self.sequences.values.shape[1]
        spans = torch.ones(count, dtype=torch.float64) if self.spans is None else self.spans.amax(0)
        return spans[:, None]


@dataclass(frozen=True, eq=False)
class OscillatorTrace:
    """A UnICORNN, everything it was asked to read, and a checksum of that."""

    layer: UnICORNN
    readings: tuple[Reading, ...]
    checksum: str
    device: str

    @property
    def num_steps(self) -> int:
        """Count the steps of the longest sequence."""
        return max(len(reading.sequences.values) for reading in self.readings)

    @property
    def count(self) -> int:
        """Count the sequences."""
        return sum(reading.sequences.values.shape[1] for reading in self.readings)

    @property
    def uneven(self) -> str:
        """Say "not applicable" with the shortest and longest time span where they differ within a sequence."""
        for reading in self.readings:
            if reading.spans is not None and not reading.constant_spans:
                spans = reading.spans[reading.sequences.mask]
                shown = f"{number(float(spans.min()))} to {number(float(spans.max()))}"
                return f"not applicable: one time span within each sequence fails ({shown})"
        return ""

    @property
    def longest_duration(self) -> float:
        """Give the longest time span of any step."""
        return max(float(reading.durations().max()) for reading in self.readings)

    def trajectories(self, reading: Reading) -> Iterator[Trajectory]:
        """Walk through every layer and direction as the layer does in evaluation mode, in float64."""
        below = [reading.sequences.values]
        for level in range(self.layer.num_layers):
            outputs = []
            for cell in (found for found in cells(self.layer) if found.layer == level):
                walked = _walk(self.layer, cell, reading, below)
                yield walked
                outputs.append(reading.sequences.reverse(walked.position) if cell.reverse else walked.position)
            below = [*below, torch.cat(outputs, dim=-1)]


def find_oscillators(model: nn.Module) -> UnICORNN:
    """Find the one UnICORNN in a model, or the model itself; refuse none or several."""
    found = [module for module in model.modules() if isinstance(module, UnICORNN)]
    require(len(found) == 1, "expected a model with one UnICORNN", f"got {len(found)} in {type(model).__name__}", WRAP)
    return found[0]


def cells(layer: UnICORNN) -> list[Cell]:
    """List layers and directions in the order they run."""
    places = [(level, bool(way)) for level in range(layer.num_layers) for way in range(layer.num_directions)]
    return [
        Cell(
            level,
            reverse,
            _still(layer.effective_step(level, reverse=reverse)),
            _still(layer.weight("weight_hh", level, reverse)),
            layer.stiffness,
        )
        for level, reverse in places
    ]


def trace_oscillators(
    model: nn.Module, sequences: Any, *, lengths: Any, timespans: Any, seed: int, batch_size: int
) -> OscillatorTrace:
    """Let a model read ``sequences`` and keep what reaches its UnICORNN; for a bare layer that is the input itself."""
    check_count("seed", seed, least=0)
    check_count("batch_size", batch_size)
    layer = find_oscillators(model)
    bare = model is layer
    require(timespans is None or bare, "expected timespans with a bare UnICORNN", f"got {type(model).__name__}", WRAP)
    device, dtype = place_of(model)
    batch = _read(sequences, lengths, timespans, dtype)
    require(
        bare or not batch.is_ragged or takes_lengths(model),
        "expected a model whose forward takes lengths, as the sequences are of unequal length",
        f"got {type(model).__name__} without it",
        WRAP,
    )
    readings = []
    with audited(model, seed):
        for first in range(0, len(batch), batch_size):
            rows = torch.arange(first, min(first + batch_size, len(batch)))
            part = replace(batch, **{name: value[rows] for name, value in _tensors(batch).items()})
            readings.append(_own_input(layer, part) if bare else _capture_input(model, layer, part, device, dtype))
    return OscillatorTrace(layer, tuple(readings), _checksum(batch), str(device))


def _walk(layer: UnICORNN, cell: Cell, reading: Reading, below: list[Tensor]) -> Trajectory:
    sequences = reading.sequences
    turned = [sequences.reverse(values) for values in below] if cell.reverse else below
    bias = _still(layer.weight("bias_ih", cell.layer, cell.reverse)) if layer.bias else None
    drive = F.linear(turned[-1], _still(layer.weight("weight_ih", cell.layer, cell.reverse)), bias)
    if layer.skip is not None and cell.layer >= layer.skip:
        skipping = _still(layer.weight("weight_skip", cell.layer, cell.reverse))
        drive = drive + F.linear(turned[cell.layer - layer.skip], skipping)
    steps = cell.step[None, None, :]
    if reading.spans is not None:
        steps = steps * (sequences.reverse(reading.spans) if cell.reverse else reading.spans)[:, :, None]
    row = cell.layer * layer.num_directions + cell.reverse
    y, z = (torch.zeros_like(drive[0]),) * 2 if reading.start is None else (part[row] for part in reading.start)
    kept = []
    for n, pushed in enumerate(drive):
        step, force = steps[n if len(steps) > 1 else 0], torch.tanh(cell.weight * y + pushed)
        z = z - step * (force + cell.stiffness * y)
        y = y + step * z
        kept.append((cell.stiffness + cell.weight * (1 - force**2), y, z))
    curvature, position, velocity = (torch.stack(parts) for parts in zip(*kept, strict=True))
    return Trajectory(cell, steps, curvature, position, velocity, sequences.mask)


def _own_input(layer: UnICORNN, batch: SequenceBatch) -> Reading:
    require(
        batch.values.shape[2] == layer.input_size,
        f"expected {layer.input_size} channels (input_size)",
        f"got {batch.values.shape[2]}",
    )
    values = batch.values.double().transpose(0, 1)
    sequences = TimeMajor(values, batch.lengths, None, unbatched=False, batch_first=False)
    spans = None if batch.timespans is None else batch.timespans.T
    return Reading(
        sequences, sequences.spans(spans, torch.float64) if spans is not None or batch.is_ragged else None, None
    )


def _capture_input(
    model: nn.Module, layer: UnICORNN, batch: SequenceBatch, device: torch.device, dtype: torch.dtype
) -> Reading:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    handle = layer.register_forward_pre_hook(lambda _, args, options: calls.append((args, options)), with_kwargs=True)
    try:
        lengths = batch.lengths.to(device) if batch.is_ragged else None
        call_model(model, batch.values.to(device, dtype), lengths)
    finally:
        handle.remove()
    require(len(calls) == 1, "expected the model to call its UnICORNN once", f"got {len(calls)} calls", WRAP)
    heard = named_arguments(*calls[0])
    sequences = TimeMajor.read(heard["input"], layer.input_size, layer.batch_first)
    spans, state = heard.get("timespans"), heard.get("state")
    spans = sequences.spans(spans, torch.float64)
    start = None if state is None else tuple(_still(p.unsqueeze(1) if p.ndim == 2 else p) for p in state)
    known = None if sequences.lengths is None else sequences.lengths.cpu()
    return Reading(
        replace(sequences, values=_still(sequences.values), lengths=known, packed=None),
        None if spans is None else _still(spans),
        start,
    )


def _read(sequences: Any, lengths: Any, timespans: Any, dtype: torch.dtype) -> SequenceBatch:
    dtype = torch.float64 if dtype == torch.float64 else torch.float32
    if lengths is not None:
        known = [int(length) for length in lengths]
        require(len(known) == len(sequences), f"expected {len(sequences)} lengths", f"got {len(known)}")
        sequences = [row[:length] for row, length in zip(sequences, known, strict=True)]
    return SequenceBatch.from_sequences(as_sequences(sequences), timespans=timespans, dtype=dtype)


def _tensors(batch: SequenceBatch) -> dict[str, Tensor]:
    spans = {} if batch.timespans is None else {"timespans": batch.timespans}
    return {"values": batch.values, "lengths": batch.lengths, **spans}


def _checksum(batch: SequenceBatch) -> str:
    digest = hashlib.sha256(str((tuple(batch.values.shape), batch.lengths.tolist())).encode())
    for tensor in (batch.values, batch.timespans):
        if tensor is not None:
            digest.update(tensor.double().numpy().tobytes())
    return digest.hexdigest()[:16]


def _still(tensor: Tensor) -> Tensor:
    return tensor.detach().double().cpu()

"""A recurrence and what it reads: the data for a bare layer or function, what reaches the layer inside a model."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sostenuto.audits.model import audited, call_model, place_of, takes_lengths
from sostenuto.audits.stability.state_map import StateMap, find_recurrence, map_of_function, map_of_layer
from sostenuto.checks import check_count, require
from sostenuto.data.batch import SequenceBatch, as_sequences
from sostenuto.nn.arguments import named_arguments
from sostenuto.nn.sequences import TimeMajor

Recurrence = nn.Module | Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class RecurrenceTrace:
    """A state map, the inputs it meets ``(batch, time, channel)``, their true lengths and the first states."""

    map: StateMap
    inputs: Float[Tensor, "batch time channel"]
    lengths: Int[Tensor, " batch"]
    starts: Float[Tensor, "batch state"]
    model: str
    checksum: str
    device: str

    @property
    def num_steps(self) -> int:
        """Count the steps of the longest sequence."""
        return self.inputs.shape[1]

    @property
    def mean_input(self) -> Float[Tensor, " channel"]:
        """Average the true steps of all sequences."""
        return self.inputs[torch.arange(self.num_steps) < self.lengths[:, None]].mean(0)


def trace_recurrence(
    model: Recurrence, sequences: Any, *, lengths: Any = None, start: Any = None, steps: int | None = None, seed: int
) -> RecurrenceTrace:
    """Prepare a recurrence for an audit: a module with data, or a function f(h, x) with a start, with data or without.

    A bare recurrent layer reads ``sequences`` themselves. A model that holds one reads them as it always does, and what
    reaches the layer is kept. A function without data is asked for ``steps`` steps with an input of no channels.
    """
    check_count("seed", seed, least=0)
    if not isinstance(model, nn.Module):
        require(callable(model), "expected a module or a function f(h, x)", f"got {type(model).__name__}")
        return _function(model, sequences, lengths, start, steps)
    require(sequences is not None, "expected data X for a module", "got None")
    layer = find_recurrence(model)
    device, dtype = place_of(model)
    batch = _read(sequences, lengths, torch.float64 if dtype == torch.float64 else torch.float32)
    num_steps = None if batch.is_ragged else batch.values.shape[1]
    if layer is model:
        found = map_of_layer(layer, num_steps)
        got = batch.values.shape[2]
        require(got == found.input_size, f"expected {found.input_size} channels (input_size)", f"got {got}")
        values, known, first = batch.values.double(), batch.lengths, None
    else:
        values, known, first = _capture_input(model, layer, batch, seed)
        found = map_of_layer(layer, num_steps)
    starts = _starts(start, first, len(values), found.state_size)
    if start is None and first is None:
        values, known, starts = _begun(found, values, known, starts)
    return RecurrenceTrace(found, values, known, starts, _name(model), _checksum(batch), str(device))


def _begun(found: StateMap, values: Tensor, known: Tensor, zeros: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Begin after the first step where a layer's own first state is not zero."""
    if found.begin is None or int(known.min()) < 2:
        return values, known, zeros
    with torch.no_grad():
        own = found.begin(values[:, 0])
        same = torch.allclose(own, found.advance(zeros, values[:, 0]), rtol=1e-9, atol=1e-12)
    return (values, known, zeros) if same else (values[:, 1:], known - 1, own)


def _function(
    step: Callable[[Tensor, Tensor], Tensor], sequences: Any, lengths: Any, start: Any, steps: Any
) -> RecurrenceTrace:
    hint = "pass start=, a state (state,) or one for each sequence (n, state)"
    require(start is not None, "expected a first state for a function f(h, x)", "got none", hint)
    first = torch.as_tensor(np.asarray(start.detach().cpu() if isinstance(start, Tensor) else start)).double()
    require(first.ndim in (1, 2), "expected start of shape (state,) or (n, state)", f"got {tuple(first.shape)}")
    first = first[None] if first.ndim == 1 else first
    if sequences is None:
        require(steps is not None, "expected data X or a number of steps", "got neither")
        check_count("steps", steps)
        batch = SequenceBatch(torch.zeros(len(first), steps, 0).double(), torch.full((len(first),), steps))
    else:
        batch = _read(sequences, lengths, torch.float64)
    found = map_of_function(step, first.shape[1], batch.values.shape[2])
    starts = _starts(first, None, len(batch.values), found.state_size)
    digest = _checksum(batch, starts)
    return RecurrenceTrace(found, batch.values.double(), batch.lengths, starts, found.name, digest, "cpu")


def _starts(start: Any, captured: Tensor | None, count: int, size: int) -> Tensor:
    if start is None:
        return torch.zeros(count, size, dtype=torch.float64) if captured is None else captured
    first = torch.as_tensor(np.asarray(start.detach().cpu() if isinstance(start, Tensor) else start)).double()
    first = first.expand(count, -1) if first.ndim == 1 or len(first) == 1 else first
    shape = tuple(first.shape)
    require(shape == (count, size), f"expected start of shape ({size},) or ({count}, {size})", f"got {shape}")
    require(bool(first.isfinite().all()), "expected finite numbers in start", "got NaN or infinity")
    return first


def _capture_input(model: nn.Module, layer: nn.Module, batch: SequenceBatch, seed: int) -> tuple[Tensor, Tensor, Any]:
    name = type(model).__name__
    require(
        not batch.is_ragged or takes_lengths(model),
        "expected a model whose forward takes lengths, as the sequences are of unequal length",
        f"got {name} without it",
        "pass the recurrent layer itself, with its own input",
    )
    kind, hint = type(layer).__name__, "pass the cell itself, with its own input, or its step as a function f(h, x)"
    whole = hasattr(layer, "batch_first")
    require(whole, "expected a recurrent layer that reads whole sequences", f"got the cell {kind} inside {name}", hint)
    device, dtype = place_of(model)
    calls: list[dict[str, Any]] = []

    def keep(_: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        calls.append(named_arguments(args, options))

    handle = layer.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        with audited(model, seed):
            lengths = batch.lengths.to(device) if batch.is_ragged else None
            call_model(model, batch.values.to(device, dtype), lengths)
    finally:
        handle.remove()
    hint = "pass the recurrent layer itself, with its own input"
    require(len(calls) == 1, f"expected {name} to call its recurrent layer once", f"got {len(calls)} calls", hint)
    captured = calls[0]
    input_size, first = int(layer.input_size), bool(layer.batch_first)  # pyright: ignore[reportArgumentType]
    sequences = TimeMajor.read(captured["input"], input_size, first)
    values = sequences.values.detach().double().cpu().transpose(0, 1)
    known = batch.lengths if sequences.lengths is None else sequences.lengths.cpu()
    state = captured.get("state")
    return values, known, None if state is None else _flat_state(state)


def _flat_state(state: Any) -> Tensor:
    parts = (state,) if isinstance(state, Tensor) else state
    wide = [part.unsqueeze(1) if part.ndim == 2 else part for part in parts]
    return torch.cat([part.transpose(0, 1).flatten(1) for part in wide], dim=1).detach().double().cpu()


def _name(model: nn.Module) -> str:
    return type(model).__name__.removeprefix("Parametrized")


def _read(sequences: Any, lengths: Any, dtype: torch.dtype) -> SequenceBatch:
    if lengths is not None:
        known = [int(length) for length in lengths]
        require(len(known) == len(sequences), f"expected {len(sequences)} lengths", f"got {len(known)}")
        sequences = [row[:length] for row, length in zip(sequences, known, strict=True)]
    return SequenceBatch.from_sequences(as_sequences(sequences), dtype=dtype)


def _checksum(batch: SequenceBatch, *more: Tensor) -> str:
    digest = hashlib.sha256(str((tuple(batch.values.shape), batch.lengths.tolist())).encode())
    for tensor in (batch.values, *more):
        digest.update(tensor.double().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]

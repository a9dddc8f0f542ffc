"""The shared contract of every recurrent layer: torch.nn.LSTM's constructor and call, and what theory needs besides."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sostenuto.checks import InputError, check_count, check_flag, check_fraction, require, sentence
from sostenuto.choices import Readout
from sostenuto.nn.arguments import check_tensor, given_state
from sostenuto.nn.certified import Certified
from sostenuto.nn.constrained import ConstrainedModule
from sostenuto.nn.dropout import dropout_mask
from sostenuto.nn.sequences import LayerInput, TimeMajor, Timespans, check_input
from sostenuto.nn.streaming import StepCache, Value, can_shorten, short_step

LayerState = Tensor | tuple[Tensor, ...]
Below = list[Float[Tensor, "T B _"]]
"""The input, and then the output of every layer underneath, the nearest last."""
Parts = tuple[Float[Tensor, "B H"], ...]
"""The components of a state."""
AllParts = tuple[Float[Tensor, "L B H"], ...]
"""The components of the states of all layers."""
Spans = Float[Tensor, "T B"] | None
Lengths = Int[Tensor, " B"] | None
Ran = tuple[Float[Tensor, "T B _"], Parts]
"""The output at every step, and the state at each sequence's end."""


@dataclass(frozen=True)
class Recipe:
    """Default settings of a layer, in fits and in residual blocks.

    ``options`` and ``training`` are those of a fit, ``readouts`` other than the last state by task. ``in_block`` are
    options inside a residual block, which an input is to cross quickly; ``promising`` further ones in a block that
    promises a half-life, None where the recurrence can promise none.
    """

    options: Mapping[str, Any] = field(default_factory=lambda: {"hidden_size": 64, "num_layers": 1})
    training: Mapping[str, Any] = field(default_factory=dict)
    readouts: Mapping[str, Readout] = field(default_factory=dict)
    in_block: Mapping[str, Any] = field(default_factory=dict)
    promising: Mapping[str, Any] | None = None


class Contract(Certified):
    """What every layer offers beyond torch's call: streaming by `step`, and a vector field where there is one."""

    state_names: ClassVar[tuple[str, ...]] = ("h",)
    recipe: ClassVar[Recipe] = Recipe()
    input_size: int
    hidden_size: int
    batch_first: bool
    bidirectional: bool

    @property
    def num_directions(self) -> int:
        """1, or 2 for a bidirectional layer."""
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        """Features of the output at every step."""
        return self.hidden_size * self.num_directions

    @property
    def state_size(self) -> int:
        """Numbers in the state of one layer and direction: components times hidden size."""
        return len(self.state_names) * self.hidden_size

    def longest_span(self) -> Float[Tensor, ""] | None:
        """Return the longest time span that is read stably, or None where there is no limit."""
        return None

    def step(self, input_t: Float[Tensor, "*batch channel"], state: LayerState | None = None) -> tuple[Tensor, Any]:
        """Advance one time step: ``(batch, channel)`` or ``(channel,)`` in, the output at this step and the new state.

        Feeding a sequence step by step gives what the whole call gives.
        """
        require(not self.bidirectional, "expected a one-directional layer", "got a bidirectional one: no step by step")
        check_tensor("input_t", input_t, self._weight_like())
        if input_t.ndim not in (1, 2):
            expected = "expected one step of 1 axis (unbatched) or 2, without the time"
            raise InputError(sentence(expected, f"got {input_t.ndim}"))
        axis = 1 if self.batch_first and input_t.ndim == 2 else 0
        output, state = self(input_t.unsqueeze(axis), state)  # pyright: ignore[reportCallIssue]
        return output.squeeze(axis), state

    def vector_field(
        self,
        h: Float[Tensor, "*batch state"],  # noqa: ARG002
        x: Float[Tensor, "*batch channel"],  # noqa: ARG002
        *,
        layer: int = 0,  # noqa: ARG002
    ) -> Float[Tensor, "*batch state"]:
        """Return dh/dt at state ``h`` and input ``x``; components of a state stand side by side in ``h``."""
        name = type(self).__name__.removeprefix("Parametrized")
        raise InputError(f"not applicable: {name} is a discrete map, not a step of a differential equation.")

    def _weight_like(self) -> Tensor:
        return next(cast(nn.Module, self).parameters())

    def _check_call(self, input: Any, state: Any, hx: Any, timespans: Any) -> Any:
        """Refuse what a call may not be given, by one rule for all layers, and give its state, ``state`` or ``hx``."""
        if not self.continuous:
            self.refuse_timespans(timespans)
        like = self._weight_like()
        check_tensor("input", input, like)
        check_input(input, self.input_size, self.batch_first)
        return given_state(state, hx, self.state_names, like)


class LayerCall(NamedTuple):
    """A call in the form that scans want; ``lengths`` where they alone are behind ``spans``."""

    sequences: TimeMajor
    starts: tuple[Tensor, ...]
    spans: Float[Tensor, "T B"] | None
    lengths: Int[Tensor, " B"] | None


class RecurrentLayer(Contract, ConstrainedModule, ABC):
    """Stacking, directions, dropout, packing, states and time spans for a recurrence that defines `run`.

    A subclass names its state components in ``state_names`` (the first one is the output), creates its parameters in
    `build` for each layer and direction, and runs one of them in `run`.

    Args:
        input_size: channels of the input.
        hidden_size: units of a layer.
        num_layers: layers stacked, each reading the one below.
        bias: whether there are bias weights.
        batch_first: whether input and output are ``(batch, time, channel)`` instead of ``(time, batch, channel)``.
        dropout: probability of variational dropout between layers: one mask for all time steps of a sequence.
        bidirectional: whether a second pass reads the sequence backwards; outputs stand side by side.
        device: where the parameters live.
        dtype: their number format.
    """

    def __new__(cls, *_: Any, **options: Any):
        """Refuse torch's ``proj_size`` in words; layers take its 0, with which calls of `torch.nn.LSTM` may come."""
        hint = "put a torch.nn.Linear behind the layer, or take sostenuto.nn.LSTM"
        expected = f"expected no proj_size: {cls.__name__} has no projection of its state"
        require(not options.get("proj_size"), expected, f"got {options.get('proj_size')}", hint)
        return super().__new__(cls)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(input_size, hidden_size, num_layers)
        for name, flag in (("bias", bias), ("batch_first", batch_first), ("bidirectional", bidirectional)):
            check_flag(name, flag)
        check_fraction("dropout", dropout, one=True)
        real = dtype is None or (isinstance(dtype, torch.dtype) and dtype.is_floating_point)
        require(real, "expected a floating-point torch.dtype", f"got {dtype!r}")
        if dropout > 0 and num_layers == 1:
            warnings.warn("dropout acts between layers: with num_layers=1 it does nothing", stacklevel=3)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, dropout, bidirectional
        self._step_cache = StepCache()
        self._factory = {"device": device, "dtype": dtype}
        self._weight_names: list[list[str]] = [[] for _ in self.cells()]
        self._renamed: dict[str, str] = {}
        for layer, reverse in self.cells():
            self.build(layer, reverse)
        del self._factory
        self.reset_parameters()

    @abstractmethod
    def build(self, layer: int, reverse: bool) -> None:
        """Create the parameters of one layer and direction with `new_parameter`."""

    @abstractmethod
    def reset_parameters(self) -> None:
        """Draw every parameter anew."""

    @abstractmethod
    def run(self, layer: int, reverse: bool, below: Below, state: Parts, timespans: Spans, lengths: Lengths) -> Ran:
        """Run one layer in one direction over time.

        A time span of 0 (padding) must leave the state unchanged, so that the state returned is the one at each
        sequence's own end; ``lengths`` is given where ``timespans`` are 1 and 0 because of them alone.
        """

    def step_layers(
        self,
        x: Float[Tensor, "B d"],  # noqa: ARG002
        state: AllParts,  # noqa: ARG002
    ) -> tuple[Float[Tensor, "B H"], AllParts] | None:
        """Advance all layers one step at once, without gradients; None: they run one by one."""
        return None

    def space_time_scales(self, layer: int, scales: Float[Tensor, " H"]) -> None:
        """Give independent units these time scales, in steps; other recurrences stay as they are."""

    def new_parameter(self, name: str, layer: int, reverse: bool, *shape: int) -> None:
        """Register ``name_l{layer}`` (``_reverse`` for the second direction)."""
        full = weight_name(name, layer, reverse)
        self.register_parameter(full, nn.Parameter(torch.empty(*shape, **self._factory)))
        self._weight_names[layer * self.num_directions + reverse].append(full)

    def hold_differences(self, *names: str) -> None:
        """Let parameters of these names be called ``delta_…``, and hold how far they have moved from their start.

        So loops that draw all parameters anew, around 0, leave near its start what must not be near 0. `weight` gives
        values; `keep_starts` begins it.
        """
        for own in self._weight_names:
            for place, name in enumerate(own):
                if name in names:
                    own[place] = self._renamed[name] = f"delta_{name.split('_', 1)[1]}"
                    self.register_parameter(own[place], self._parameters.pop(name))

    def keep_starts(self) -> None:
        """Take the values that are held now for starts, buffers ``start_…``; differences are 0."""
        for name in self._renamed.values():
            held = self.get_parameter(name).detach()
            self.register_buffer(_start_of(name), held.clone())
            held.zero_()

    def drop_starts(self) -> None:
        """Let all parameters hold values, until `keep_starts`."""
        for name in self._renamed.values():
            start = self._buffers.pop(_start_of(name), None)
            if start is not None:
                self.get_parameter(name).detach().add_(start)

    def read_parameter(self, name: str) -> Tensor:
        """Return a parameter as a plain tensor; a constrained one comes constrained, a difference with its start."""
        value = super().read_parameter(name)
        start = self._buffers.get(_start_of(name)) if name.startswith("delta_") else None  # a buffer has none
        return value if start is None else value + start

    def _load_from_state_dict(self, *read: Any, **named: Any) -> None:
        """Read values, as files from before there were differences hold them, as starts."""
        state_dict, prefix, *_ = read
        for name in self._renamed.values():
            value = state_dict.pop(prefix + name.replace("delta_", "vector_", 1), None)
            if value is not None:
                state_dict[prefix + _start_of(name)], state_dict[prefix + name] = value, torch.zeros_like(value)
        super()._load_from_state_dict(*read, **named)

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """List the weights of every layer and direction, as `torch.nn.LSTM` does; constrained ones come constrained."""
        return [[getattr(self, name) for name in names] for names in self._weight_names]

    def weight(self, name: str, layer: int, reverse: bool) -> Tensor:
        """Look a parameter up by its stem, layer and direction; a constrained one comes constrained."""
        if self._step_cache.running:
            return self.derived(name, layer, reverse, lambda: self._read_weight(name, layer, reverse))
        return self._read_weight(name, layer, reverse)

    def _read_weight(self, name: str, layer: int, reverse: bool) -> Tensor:
        full = weight_name(name, layer, reverse)
        return self.read_parameter(self._renamed.get(full, full))

    def constrain(self, name: str, layer: int, reverse: bool, constraint: nn.Module) -> None:
        """Let a parameter be the image of a free one, which `free_weight` gives; it must have been created."""
        full = weight_name(name, layer, reverse)
        with torch.no_grad():
            weight = self.weight(name, layer, reverse)
            weight.copy_(constraint(torch.zeros_like(weight)))
        self.constrain_parameter(full, constraint)

    def free_weight(self, name: str, layer: int, reverse: bool) -> Tensor:
        """Return the parameter that is trained: the free one behind a constrained weight, else the weight itself."""
        full = weight_name(name, layer, reverse)
        full = self._renamed.get(full, full)
        if parametrize.is_parametrized(self, full):
            return self.parametrizations[full].original  # pyright: ignore[reportIndexIssue, reportArgumentType, reportAttributeAccessIssue]
        return getattr(self, full)

    def cells(self) -> list[tuple[int, bool]]:
        """List every layer with its directions: (0, False), (0, True), (1, False) and so on."""
        return [(layer, bool(d)) for layer in range(self.num_layers) for d in range(self.num_directions)]

    def fan_in(self, layer: int) -> int:
        """Count the features that ``layer`` reads."""
        return self.input_size if layer == 0 else self.output_size

    def forward(
        self,
        input: LayerInput,
        state: LayerState | None = None,
        timespans: Timespans | None = None,
        *,
        hx: LayerState | None = None,
    ) -> tuple[Any, Any]:
        """Read whole sequences: return the top layer's output at every step, and the state at the end of each.

        Args:
            input: ``(time, batch, channel)`` (``(batch, time, channel)`` with ``batch_first``), ``(time, channel)`` for
                one sequence, or a PackedSequence; the output has the same form.
            state: a tensor ``(num_layers · num_directions, batch, hidden_size)``, or a tuple of them where the
                recurrence has several; zeros if left out.
            timespans: the duration of every step, in the input's layout without its channels: ``(time, batch)``,
                ``(batch, time)`` with ``batch_first``, ``(time,)``, or packed; or one number for all steps. Where time
                and batch are equally many, a transposed tensor cannot be detected.
            hx: torch's name for ``state``.

        Returns:
            The output, and the state in ``state``'s form.
        """
        return self._run_layers(self._read_call(input, state, timespans, hx))

    def _read_call(self, input: LayerInput, state: Any, timespans: Any, hx: Any = None) -> "LayerCall":
        state = self._check_call(input, state, hx, timespans)
        sequences = TimeMajor.read(input, self.input_size, self.batch_first)
        starts = self._start(state, sequences)
        # Lengths alone are not time spans: a scan may run on into the padding and take each state at its own end.
        lengths = sequences.lengths if timespans is None else None
        return LayerCall(sequences, starts, sequences.spans(timespans, starts[0].dtype), lengths)

    def _run_layers(self, call: "LayerCall") -> tuple[Any, Any]:
        sequences, starts, spans, lengths = call
        backward_spans = spans if spans is None or not self.bidirectional else sequences.reverse(spans)
        below, ends = [sequences.values], []
        for layer in range(self.num_layers):
            outputs = []
            for reverse in range(self.num_directions):
                row = layer * self.num_directions + reverse
                start = tuple(component[row] for component in starts)
                if reverse:
                    turned = [sequences.reverse(values) for values in below]
                    output, end = self.run(layer, True, turned, start, backward_spans, lengths)
                    output = sequences.reverse(output)
                else:
                    output, end = self.run(layer, False, below, start, spans, lengths)
                outputs.append(output)
                ends.append(end)
            output = torch.cat(outputs, dim=-1) if self.bidirectional else outputs[0]
            below = [*below, output if layer == self.num_layers - 1 else self._drop(output)]
        return sequences.write(below[-1]), self._finish(ends, sequences)

    def step(self, input_t: Float[Tensor, "*batch channel"], state: LayerState | None = None) -> tuple[Tensor, Any]:
        """Advance one time step, as `Contract.step`; without gradients weights are turned into maps once per stream."""
        if can_shorten(self, input_t, state):
            return short_step(self, input_t, state)
        return super().step(input_t, state)

    def derived(self, name: str, layer: int, reverse: bool, compute: Callable[[], Value]) -> Value:
        """Compute something from the weights; within a stream of steps without gradients, only while they change."""
        if self._step_cache.running and not torch.is_grad_enabled():
            return self._step_cache.get((id(self), name, layer, reverse), compute)
        return compute()

    def flatten_parameters(self) -> None:
        """Do nothing: kept so that code written for `torch.nn.LSTM` runs; weights are read where they are."""

    def extra_repr(self) -> str:
        """Show what differs from torch's defaults."""
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        parts += [f"{name}={getattr(self, name)}" for name, value in defaults.items() if getattr(self, name) != value]
        return ", ".join(parts)

    def _drop(self, output: Float[Tensor, "T B H"]) -> Float[Tensor, "T B H"]:
        if not self.training or self.dropout == 0:
            return output
        return output * dropout_mask(output[:1], self.dropout)

    def _start(self, state: LayerState | None, sequences: TimeMajor) -> tuple[Tensor, ...]:
        rows, batch = self.num_layers * self.num_directions, sequences.values.shape[1]
        shape, count = (rows, batch, self.hidden_size), len(self.state_names)
        if state is None:
            like = next(self.parameters())
            return tuple(torch.zeros(shape, device=like.device, dtype=like.dtype) for _ in range(count))
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        if sequences.unbatched and parts[0].ndim == 2:
            parts = tuple(part.unsqueeze(1) for part in parts)
        for part in parts:
            if tuple(part.shape) != shape:
                raise InputError(sentence(f"expected state parts of shape {shape}", f"got {tuple(part.shape)}"))
        return parts

    def _finish(self, ends: list[tuple[Tensor, ...]], sequences: TimeMajor) -> LayerState:
        parts = tuple(torch.stack(rows) for rows in zip(*ends, strict=True))
        if sequences.unbatched:
            parts = tuple(part.squeeze(1) for part in parts)
        return parts[0] if len(parts) == 1 else parts


def check_sizes(input_size: int, hidden_size: int, num_layers: int = 1) -> None:
    """Refuse sizes of a layer that are not whole numbers of at least 1."""
    for name, count in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        check_count(name, count)


def weight_name(name: str, layer: int, reverse: bool) -> str:
    """Name a parameter as torch does.

    >>> weight_name("weight_ih", 1, True)
    'weight_ih_l1_reverse'
    """
    return f"{name}_l{layer}" + ("_reverse" if reverse else "")


def _start_of(name: str) -> str:
    return name.replace("delta_", "start_", 1)


def uniform_by_width(layer: RecurrentLayer) -> None:
    """Draw all parameters from U(−1/√hidden, 1/√hidden), as torch's recurrent layers do."""
    bound = 1 / math.sqrt(layer.hidden_size)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound)

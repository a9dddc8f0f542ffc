"""UnICORNN: undamped independent controlled oscillators, symplectic in time (rusch2021)."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence

from sostenuto.checks import InputError, check_choice, check_count, check_flag, check_positive, require
from sostenuto.constraints.at_least import AtLeast
from sostenuto.nn.base import Below, LayerCall, LayerState, Lengths, Parts, Ran, Spans, check_sizes, weight_name
from sostenuto.nn.dropout import dropout_masks
from sostenuto.nn.oscillator_layer import OscillatorLayer, warn_of_divergence
from sostenuto.nn.sequences import LayerInput, Timespans, is_readable
from sostenuto.ops.backend import BACKENDS
from sostenuto.ops.oscillator import (
    Cell,
    Drift,
    StackResult,
    oscillator_inverse,
    oscillator_layers,
    time_max,
)


class Reconstruction(NamedTuple):
    """What `UnICORNN.inverse` found.

    ``state`` is the initial (y, z) in the form the layer takes. ``drift`` says for each layer how far running forwards
    from it misses the state given, relative to that layer's largest value: rounding if small, a lost past if not.
    ``trajectory`` has for each layer (y, z) after every step, in the form of the input; None unless asked for.
    """

    state: tuple[Tensor, Tensor]
    drift: tuple[float, ...]
    trajectory: tuple[tuple[LayerInput, LayerInput], ...] | None


def drift_of(
    again: tuple[Float[Tensor, "layer *rest"], ...],
    stored: tuple[Float[Tensor, "layer *rest"], ...],
    tolerance: float | None = None,
) -> tuple[float, ...]:
    """Compare a state reached again with the one given: for each layer, the worst component's relative difference.

    A difference is relative to the largest value of its component in its layer; past ``tolerance`` it is an error.

    >>> drift_of((torch.tensor([[2.0, 4.0]]),), (torch.tensor([[1.0, 4.0]]),))
    (0.25,)
    """
    drift = tuple(_worst(parts) for parts in zip(*again, *stored, strict=True))
    if tolerance is not None:
        most = max(drift)
        got = f"got {most:.1e} in layer {drift.index(most)}"
        require(most <= tolerance, f"expected a drift of at most {tolerance}", got, "use float64 or fewer steps")
    return drift


def _worst(parts: tuple[Tensor, ...]) -> float:
    """Return the largest relative difference; one that is not finite counts as infinite."""
    half = len(parts) // 2
    floor = torch.finfo(parts[0].dtype).tiny
    pairs = zip(parts[:half], parts[half:], strict=True)
    errors = [float((one - other).abs().max() / other.abs().max().clamp(min=floor)) for one, other in pairs]
    return max(error if error == error else float("inf") for error in errors)


class UnICORNN(OscillatorLayer):
    """A stack of independent, undamped, driven oscillators that keeps what it hears for thousands of steps.

    Vector field of a layer, with state (y, z), input u and σ̂ the logistic function:

        dy/dt = σ̂(c) ⊙ z,    dz/dt = −σ̂(c) ⊙ [tanh(w ⊙ y + V u + b) + α y]

    Discrete map, symplectic Euler with g = Δt·σ̂(c): z ← z − g ⊙ [tanh(w ⊙ y + V u_n + b) + α y], y ← y + g ⊙ z.
    The output is y. Reference: rusch2021, eqs. (2), (6) and, for ``skip``, (75).

    Args:
        input_size: channels of the input.
        hidden_size: oscillators of a layer.
        num_layers: layers stacked; three serve most tasks.
        bias: whether b exists.
        batch_first: as in torch.
        dropout: variational dropout between layers.
        bidirectional: as in torch.
        step_size: Δt > 0, or one for each layer. A unit with Δt·σ̂(c)·√α ≥ 2 diverges without any input; where all
            would from the start, a warning says so.
        stiffness: α ≥ 0, the square of the free frequency (not a damping).
        spread: c is drawn evenly from ±spread. The paper's .1 starts all oscillators of a layer at nearly one speed; at
            3 their steps Δt·σ̂(c) reach from .05 Δt to .95 Δt, a bank of frequencies.
        skip: S ≥ 2 lets layer ℓ > S also read the output of layer ℓ − S − 1 (residual stacking).
        learn_step: whether c is trained; if not it keeps its initial value.
        positive: keep w ≥ −α, which removes the saddle at the origin (but not resonance with a varying input).
        half_life: steps n, or time with ``time_span``, for which at least half of the difference of any two states is
            left, whatever is read: |w| ≤ w_max(c) then holds for every value of the parameters, and
            `memory_certificate` says at least n.
        time_span: the time span of every step that the promise is for, in the unit of ``half_life``.
        memory: ``"store"`` keeps every state for the backward pass. ``"recompute"`` keeps the input and the states at
            about √T/2 moments, and finds the others by the exact inverse of the map, over all layers together; where
            rounding makes that miss a kept state, the stretch is run forwards again, so the gradient is right in every
            case (``last_drift`` has the errors found). Two directions depend on each other at every layer, so there
            each layer recomputes its own states from its kept input; with ``skip`` that is refused.
        backend: ``"auto"``, ``"reference"``, ``"cpu"`` or ``"gpu"``.
        proj_size: torch's; nothing but 0 is taken.
        device: as in torch.
        dtype: as in torch.

    Parameters of layer ℓ: ``weight_ih_l{ℓ}`` V, ``weight_hh_l{ℓ}`` w (a vector), ``time_scale_l{ℓ}`` c,
    ``bias_ih_l{ℓ}`` b and, with ``skip``, ``weight_skip_l{ℓ}``; per layer m(d + 3) numbers.

    >>> layer = UnICORNN(2, 8, num_layers=2, batch_first=True)
    >>> output, (y, z) = layer(torch.zeros(3, 50, 2))
    >>> output.shape, y.shape
    (torch.Size([3, 50, 8]), torch.Size([2, 3, 8]))
    """

    state_names = ("y", "z")
    last_drift: tuple[Drift, ...] = ()
    """With ``memory="recompute"``: the last call's record of drift, filled in by its backward pass."""
    _chunk: int | None = None

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
        step_size: float | Sequence[float] = 0.1,
        stiffness: float = 1.0,
        spread: float = 0.1,
        skip: int | None = None,
        learn_step: bool = True,
        positive: bool = False,
        half_life: float | None = None,
        time_span: float = 1.0,
        memory: str = "store",
        backend: str = "auto",
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(input_size, hidden_size, num_layers)
        steps: list[Any] = [step_size] * num_layers if np.ndim(step_size) == 0 else list(step_size)  # pyright: ignore[reportArgumentType]
        require(len(steps) == num_layers, f"expected one step_size or {num_layers}", f"got {len(steps)}")
        for size in steps:
            check_positive("step_size", size)
        check_positive("stiffness", stiffness, zero=True)
        check_positive("spread", spread, zero=True)
        check_positive("time_span", time_span)
        check_flag("learn_step", learn_step)
        check_flag("positive", positive)
        check_choice("memory", memory, ("store", "recompute"))
        check_choice("backend", backend, BACKENDS)
        if memory == "recompute" and bidirectional and skip is not None:
            raise InputError("expected one direction or no skip with memory='recompute', got both; use memory='store'.")
        if skip is not None:
            check_count("skip", skip, least=2)
        self._steps, self._skip, self.spread = tuple(float(size) for size in steps), skip, float(spread)
        # The middle of the initial steps is Δt/2.
        warn_of_divergence("step_size/2 · √stiffness", max(steps) / 2 * math.sqrt(stiffness) * time_span)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )
        self.step_size, self.stiffness, self.skip = self._steps, float(stiffness), skip
        self.learn_step, self.positive, self.memory, self.backend = learn_step, positive, memory, backend
        for layer, reverse in self.cells():
            self.weight("time_scale", layer, reverse).requires_grad_(bool(learn_step))
            if positive and half_life is None:
                self.constrain_parameter(weight_name("weight_hh", layer, reverse), AtLeast(-self.stiffness))

        if half_life is not None:
            self._remember(half_life, time_span)

    def build(self, layer: int, reverse: bool) -> None:
        """Create V, w, c, b and the skip matrix of one layer."""
        self.new_parameter("weight_ih", layer, reverse, self.hidden_size, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, self.hidden_size)
        self.new_parameter("time_scale", layer, reverse, self.hidden_size)
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, self.hidden_size)
        if self._skips(layer):
            self.new_parameter("weight_skip", layer, reverse, self.hidden_size, self.fan_in(layer - (self._skip or 0)))

    def reset_parameters(self) -> None:
        """Draw w ~ U(0, 1), c ~ U(−spread, spread), V Kaiming-uniform with a = 8, b = 0 (rusch2021, appendix A)."""
        with torch.no_grad():
            for layer, reverse in self.cells():
                nn.init.kaiming_uniform_(self.weight("weight_ih", layer, reverse), a=8)
                self._assign("weight_hh", layer, reverse, torch.rand_like(self.weight("weight_hh", layer, reverse)))
                self.weight("time_scale", layer, reverse).uniform_(-self.spread, self.spread)
                if self.bias:
                    self.weight("bias_ih", layer, reverse).zero_()
                if self._skips(layer):
                    nn.init.kaiming_uniform_(self.weight("weight_skip", layer, reverse), a=8)

    def forward(
        self,
        input: LayerInput,
        state: LayerState | None = None,
        timespans: Timespans | None = None,
        *,
        hx: LayerState | None = None,
    ) -> tuple[Any, Any]:
        """Read whole sequences, as `RecurrentLayer.forward`; one direction runs all layers at once where it can."""
        call = self._read_call(input, state, timespans, hx)
        if self.bidirectional:
            if self.memory == "recompute" and not torch.compiler.is_compiling():
                self.last_drift = ()
            return self._run_layers(call)
        output, *ends = self._run_whole(call)
        return call.sequences.write(output), tuple(ends)

    def peak(
        self, input: LayerInput, state: LayerState | None = None, *, timespans: Timespans | None = None
    ) -> Float[Tensor, "*batch hidden"]:
        """Return each unit's largest output over time, max_n y_n: what a call gives, without its outputs where it can.

        Steps that share the largest value share its gradient evenly, as in `torch.amax`. In eager code on the CPU the
        maximum is followed while the outputs are in the cache. Hooks on the layer's calls run in any case.

        >>> layer, x = UnICORNN(2, 8, batch_first=True), torch.ones(3, 50, 2)
        >>> torch.equal(layer.peak(x), layer(x)[0].amax(1))
        True
        """
        if isinstance(input, PackedSequence):
            raise InputError("expected a tensor, got packed sequences; pool the outputs of a call.")
        if not self._needs_call():
            call = self._read_call(input, state, timespans)
            largest = self._run_whole(call, give="peak")[0]
            return largest.squeeze(0) if call.sequences.unbatched else largest
        output, _ = self(input, state, timespans=timespans)
        first = output if self.batch_first else output.transpose(0, 1)
        return output.amax(0) if input.ndim == 2 else time_max(first)

    def final_state(
        self, input: LayerInput, state: LayerState | None = None, *, timespans: Timespans | None = None
    ) -> LayerState:
        """Return the last state of a call alone; with ``memory="recompute"`` its outputs, T·B·H numbers, are not made.

        >>> layer, x = UnICORNN(2, 8, memory="recompute"), torch.ones(50, 3, 2)
        >>> torch.equal(layer.final_state(x)[0], layer(x)[1][0])
        True
        """
        if self._needs_call():
            return self(input, state, timespans=timespans)[1]
        return self._run_whole(self._read_call(input, state, timespans), give="state")[1:]

    def run(
        self,
        layer: int,
        reverse: bool,
        below: Below,
        state: Parts,
        timespans: Spans,
        lengths: Lengths,  # noqa: ARG002
    ) -> Ran:
        """Project the input in one product over all time, then run the oscillators."""
        memory = "store" if self._step_cache.running else self.memory  # one step has nothing to recompute
        y, z = (part[None] for part in state)
        result = self._run_cells(below, [(layer, reverse)], (y, z), timespans, memory=memory)
        return result.outputs, (result.y[0], result.z[0])

    @torch.no_grad()
    def inverse(
        self,
        states: tuple[Tensor, Tensor],
        inputs: LayerInput,
        *,
        timespans: Timespans | None = None,
        trajectory: bool = False,
        tolerance: float | None = None,
    ) -> Reconstruction:
        """Find the initial state from the final one ``states`` = (y, z) and the inputs read (rusch2021, eq. (7)).

        ``inputs`` and ``timespans`` are what the layer was called with, in the same form. The inverse is exact but for
        rounding, which a saddle (w < −α) or resonance amplifies: ``drift`` measures it, and more than ``tolerance``
        raises an error. No gradient flows. A layer with dropout must be in eval mode, and there must be one direction.

        >>> layer = UnICORNN(2, 8, num_layers=2, dtype=torch.float64)
        >>> x = torch.randn(50, 3, 2, dtype=torch.float64)
        >>> found = layer.inverse(layer(x)[1], x)
        >>> bool(found.state[0].abs().max() < 1e-9), max(found.drift) < 1e-9
        (True, True)
        """
        require(not self.bidirectional, "expected a one-directional layer", "got a bidirectional one: no inverse")
        drops = self.training and self.dropout > 0 and self.num_layers > 1
        require(
            not drops, "expected a layer in eval mode", "got one with dropout in training mode", "call eval() first"
        )
        sequences, (y, z), spans, _ = self._read_call(inputs, states, timespans)
        cells = [self._cell(layer, False) for layer in range(self.num_layers)]
        options: dict[str, Any] = {"skip": self._skip or 0, "timespans": spans, "backend": self.backend}
        options |= {"step_sizes": self._steps}
        x, alpha = sequences.values, self.stiffness
        y_start, z_start, ys, zs = oscillator_inverse(x, cells, alpha, y, z, trajectory=trajectory, **options)
        again = oscillator_layers([x], cells, alpha, y_start, z_start, memory="recompute", give="state", **options)
        drift = drift_of((again.y, again.z), (y, z), tolerance)
        start = self._finish(list(zip(y_start, z_start, strict=True)), sequences)
        if ys is None or zs is None:
            return Reconstruction((start[0], start[1]), drift, None)
        forms = tuple((sequences.write(one), sequences.write(other)) for one, other in zip(ys, zs, strict=True))
        return Reconstruction((start[0], start[1]), drift, forms)

    def extra_repr(self) -> str:
        """Show the oscillators' settings too."""
        steps = self._steps[0] if len(set(self._steps)) == 1 else list(self._steps)
        memory = "" if self.memory == "store" else f", memory={self.memory}"
        return f"{super().extra_repr()}, step_size={steps}, stiffness={self.stiffness}{memory}"

    def _needs_call(self) -> bool:
        """Whether the layer itself must be called: for two directions, a compiler, hooks, or a replaced forward."""
        if self.bidirectional or torch.compiler.is_compiling():
            return True
        hooks = self._forward_hooks, self._forward_pre_hooks, self._backward_hooks, self._backward_pre_hooks
        replaced = getattr(self.forward, "__func__", None) is not UnICORNN.forward or self._compiled_call_impl
        return bool(any(hooks) or replaced or nn.modules.module._has_any_global_hook())

    def _cell(self, layer: int, reverse: bool) -> Cell:
        """Return one layer's tensors, with c in the place of its steps."""
        skipped = self.weight("weight_skip", layer, reverse) if self._skips(layer) else None
        weights = self.weight("weight_hh", layer, reverse), self.weight("time_scale", layer, reverse)
        return Cell(*self._input_map(layer, reverse), skipped, *weights, None)

    def _run_whole(self, call: LayerCall, give: Any = "outputs") -> tuple[Tensor, ...]:
        """Run all layers of one direction: what the op is to ``give``, and the last states in the form of a call."""
        sequences, (y, z), spans, _ = call
        if self.memory == "recompute" and not torch.compiler.is_compiling():
            self.last_drift = ()
        drops = self.training and self.dropout > 0 and self.num_layers > 1
        masks = dropout_masks(sequences.values.new_empty(y[1:].shape, dtype=y.dtype), self.dropout) if drops else None
        places = [(layer, False) for layer in range(self.num_layers)]
        result = self._run_cells([sequences.values], places, (y, z), spans, masks=masks, give=give, memory=self.memory)
        ends = (part.squeeze(1) if sequences.unbatched else part for part in (result.y, result.z))
        return result.outputs, *ends

    def _run_cells(
        self, below: Below, places: list[tuple[int, bool]], state: tuple[Tensor, Tensor], spans: Spans, **options: Any
    ) -> StackResult:
        """Run the layers at some places, and note the drift."""
        result = oscillator_layers(
            below,
            [self._cell(*place) for place in places],
            self.stiffness,
            *state,
            skip=self._skip or 0,
            timespans=spans,
            step_sizes=tuple(self._steps[layer] for layer, _ in places),
            backend=self.backend,
            chunk=self._chunk,
            **options,
        )
        if result.drift is not None:
            self.last_drift = (*self.last_drift, result.drift)
        return result

    def _read_call(self, input: Any, state: Any, timespans: Any, hx: Any = None) -> LayerCall:
        call = super()._read_call(input, state, timespans, hx)
        if timespans is not None and call.spans is not None and is_readable(call.spans):
            with torch.no_grad():
                fastest = max(self.effective_step(layer, reverse=reverse).max() for layer, reverse in self.cells())
                worst = float(call.spans.max() * fastest) * math.sqrt(self.stiffness)
            warn_of_divergence("the largest of timespans · step_size · σ̂(c) · √stiffness", worst)
        return call

    def _skips(self, layer: int) -> bool:
        return self._skip is not None and layer >= self._skip

    def _assign(self, name: str, layer: int, reverse: bool, value: Tensor) -> None:
        full = weight_name(name, layer, reverse)
        if parametrize.is_parametrized(self, full):
            if self.half_life is not None:
                value = (0.01 + 0.98 * value) * self.weight_limit(layer, reverse=reverse)
            setattr(self, full, value.clamp(min=torch.finfo(value.dtype).eps))
        else:
            getattr(self, full).copy_(value)

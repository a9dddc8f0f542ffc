"""Residual blocks around any recurrence: what replaces `torch.nn.LSTM` in an ordinary loop and learns there."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import InputError, check_choice, check_flag, require, sentence
from sostenuto.nn import LAYERS
from sostenuto.nn.base import AllParts, Below, Lengths, Parts, Ran, Recipe, RecurrentLayer, Spans, weight_name
from sostenuto.nn.certificates import BlockMaps, Certificate, MemoryCertificate, block_memory
from sostenuto.nn.damped_oscillators import DampedOscillators, check_time_scales
from sostenuto.ops.damped_block import LEAST_ROWS, BlockWeights, compiled_steps, damped_block, mixed
from sostenuto.ops.dispatch import runs_eagerly

RECURRENCES = tuple(name for name in LAYERS if name not in ("stack", "lstm", "gru", "rnn"))
"""Recurrences that a block can hold, by name."""

_VECTORS = "vector_norm", "vector_scale", "vector_direct"
"""What surrounds a recurrence and starts away from 0; parameters hold differences from there."""
_WIDENED = 0.3
"""The size that an input of unit size starts with around a block: about that of what the block adds."""
_NOISE_STEPS, _NOISE_ROWS = 256, 8
_LARGEST = 1e4
_LEAST_TIME = 0.02
"""The least time that a step of the first block can take, in its own span."""
_CLOCK_START = math.log(math.expm1(1 - _LEAST_TIME))
"""What is added inside a clock, so that it starts at the pace of the steps."""
_CLOCK_STEEPNESS = 8.0
_CLOCK_MARGIN = 1 + 1 / 64
"""What the rounding of k·v can add to its bound, in bfloat16 too."""


class Stack(RecurrentLayer):
    """Residual blocks, each around a recurrence; built, called and streamed as `torch.nn.LSTM`.

    A block reads x and gives

        u = x, or W x + b where the widths differ,    v = norm(u),    r = recurrence(v),
        output = u + (M w + m) ⊙ σ̂(N w + n),    w = GELU(p ⊙ r + q ⊙ v).

    GELU is taken in its tanh form. The recurrence is the only part that looks into the past; norm, gated linear map and
    residual mix its units and keep gradients alive. p scales the recurrence to unit size, q lets the input through at
    once. Where units have time scales of their own, these start evenly spaced, in their logarithm, over
    ``time_scales``. A recurrence that grows without bound at the start is refused.

    With ``clock=True`` what the damped oscillators of the first block read says how much time passes,

        δ_t = 1/50 + log(1 + e^{8(k·v_t/√N + c) + s}) times the step's own span,    s = log(e^{49/50} − 1).

    With k = c = 0 at the start it goes with the steps. A step can be passed over, or end what was remembered: so a
    stack latches, counts and adds what is marked. The clock reads the input alone, and blocks above have none: what is
    proved of their memory covers it.

    Reference: Orvieto et al. 2023, Smith et al. 2023 for blocks around linear recurrences; Ba et al. 2016 (layer norm),
    Dauphin et al. 2017 (gated linear unit); Gu and Dao 2023 for steps that the input chooses.

    `certificate` is that of the recurrence in a block, whatever the block reads.

    Args:
        input_size: channels of the input.
        hidden_size: units of a block, and features of the output.
        num_layers: blocks.
        bias: as in torch; it acts in the recurrences and the linear maps.
        batch_first: as in torch.
        dropout: variational dropout between blocks.
        bidirectional: as in torch.
        layer: the recurrence, by name (`RECURRENCES`) or as a class of the library's contract.
        time_scales: the shortest and the longest time scale at the start, in steps.
        half_life: steps that the recurrences provably remember, for those that take it: damped, unicornn, stable.
        clock: whether the damped oscillators of the first block have a clock; they cannot promise a half-life then.
        init: ``"tuned"``, or ``"paper"`` for the recurrence's own initial values and options, and p = 1.
        layer_options: further options of the recurrence, such as ``{"step_size": 0.1}``.
        proj_size: torch's; nothing but 0 is taken.
        device: as in torch.
        dtype: as in torch.

    Parameters of block ℓ: those of the recurrence under ``recurrence.`` (``recurrence_reverse.`` for the second
    direction); ``weight_ih_l{ℓ}`` W and ``bias_ih_l{ℓ}`` b where widths differ; ``delta_norm_l{ℓ}`` and
    ``bias_norm_l{ℓ}``; ``delta_scale_l{ℓ}`` p and ``delta_direct_l{ℓ}`` q; ``weight_gate_l{ℓ}`` M over N and
    ``bias_gate_l{ℓ}`` m, n; ``vector_clock_l0`` k and ``bias_clock_l0`` c. With N units and damped oscillators
    3N² + 11N numbers per block, N + 1 more for a clock, and N(d + 1) more for W and b. Poles and read-outs of damped
    oscillators are ``recurrence.delta_hh_l{ℓ}`` and ``recurrence.delta_hr_l{ℓ}``. What is called ``delta_…`` holds the
    difference from its start, a buffer ``start_…``: loops written for `torch.nn.LSTM` that draw every weight anew by
    its name, or every parameter around 0, leave a stack that learns.

    >>> layer = Stack(2, 8, num_layers=2, batch_first=True)
    >>> output, (y, z) = layer(torch.zeros(3, 50, 2))
    >>> output.shape, y.shape
    (torch.Size([3, 50, 8]), torch.Size([2, 3, 8]))
    """

    recipe = Recipe(
        {"hidden_size": 48, "num_layers": 3, "dropout": 0.1}, {"learning_rate": 0.004}, {"classification": "max"}
    )

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
        layer: str | type[RecurrentLayer] = "damped",
        time_scales: tuple[float, float] = (1.0, 1000.0),
        half_life: float | None = None,
        clock: bool = False,
        init: str = "tuned",
        layer_options: dict[str, Any] | None = None,
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("init", init, ("tuned", "paper"))
        check_flag("clock", clock)
        mapped = layer_options is None or isinstance(layer_options, Mapping)
        require(mapped, "expected layer_options by name, as {'step_size': 0.1}", f"got {layer_options!r}")
        self.layer, self.init, self.time_scales = _recurrence(layer), init, check_time_scales(time_scales)
        options = self.layer.recipe.in_block if init == "tuned" else {}
        if self.layer is DampedOscillators:
            options = {"time_scales": self.time_scales}
        if half_life is not None:
            promising, expected = self.layer.recipe.promising, "expected no half_life, or a layer that can promise one"
            require(promising is not None, expected, f"got {self.layer.__name__}", "damped, unicornn and stable can")
            options = {**options, **(promising or {}), "half_life": half_life}
        self._options = {**options, **(layer_options or {})}
        self.clock = bool(clock)
        if self.clock:
            fits = issubclass(self.layer, DampedOscillators) and self._options.get("half_life") is None
            got = f"got {self.layer.__name__}" + (" and a half_life" if self._options.get("half_life") else "")
            require(fits, "expected damped oscillators without a half_life for clock=True", got, "leave clock out")
        self.state_names, self.continuous = self.layer.state_names, self.layer.continuous  # pyright: ignore[reportAttributeAccessIssue]
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create what surrounds the recurrence of a block; the first block creates the recurrences of all."""
        size = self.hidden_size
        if layer == 0:
            made = self.layer(size, size, self.num_layers, self.bias, **self._options, **self._factory)
            made._step_cache = self._step_cache
            if self.layer is DampedOscillators:
                names = [weight_name(name, *cell) for cell in made.cells() for name in ("weight_hh", "weight_hr")]
                made.hold_differences(*names)
            self.add_module("recurrence_reverse" if reverse else "recurrence", made)
        if self.fan_in(layer) != size:
            self.new_parameter("weight_ih", layer, reverse, size, self.fan_in(layer))
            if self.bias:
                self.new_parameter("bias_ih", layer, reverse, size)
        for name in (*_VECTORS, "bias_norm"):
            self.new_parameter(name, layer, reverse, size)
        self.hold_differences(*(weight_name(name, layer, reverse) for name in _VECTORS))
        self.new_parameter("weight_gate", layer, reverse, 2 * size, size)
        if self.bias:
            self.new_parameter("bias_gate", layer, reverse, 2 * size)
        if self.clock and layer == 0:
            self.new_parameter("vector_clock", layer, reverse, size)
            if self.bias:
                self.new_parameter("bias_clock", layer, reverse, 1)

    def inner(self, reverse: bool = False) -> RecurrentLayer:
        """Give the recurrences of all blocks of one direction, as one layer of their own class."""
        return self.recurrence_reverse if reverse else self.recurrence  # pyright: ignore[reportReturnType]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw maps with variance 1/d, the first W smaller, norms as the identity, q = 1, k = 0, p from unit noise."""
        inner = [self.inner(bool(reverse)) for reverse in range(self.num_directions)]
        for layer in (self, *inner):
            layer.drop_starts()
        for layer in inner:
            layer.reset_parameters()
        for layer, reverse in self.cells():
            for name in _VECTORS:
                nn.init.ones_(self.weight(name, layer, reverse))
            nn.init.zeros_(self.weight("bias_norm", layer, reverse))
            bound = math.sqrt(3 / self.hidden_size)
            self.weight("weight_gate", layer, reverse).uniform_(-bound / math.sqrt(3), bound / math.sqrt(3))
            if self.bias:
                nn.init.zeros_(self.weight("bias_gate", layer, reverse))
            if self.fan_in(layer) != self.hidden_size:
                bound = (_WIDENED if layer == 0 else 1) * math.sqrt(3 / self.fan_in(layer))
                self.weight("weight_ih", layer, reverse).uniform_(-bound, bound)
                if self.bias:  # no larger than what one channel brings, or a constant hides inputs that are one-hot
                    self.weight("bias_ih", layer, reverse).uniform_(-bound / math.sqrt(3), bound / math.sqrt(3))
            if self._has_clock(layer):
                nn.init.zeros_(self.weight("vector_clock", layer, reverse))
                if self.bias:
                    nn.init.zeros_(self.weight("bias_clock", layer, reverse))
            if self.init == "tuned":
                _space_time_scales(self.inner(reverse), layer, self.time_scales)
            self._scale_to_unit_size(layer, reverse)
        for layer in (self, *inner):
            layer.keep_starts()

    def run(self, layer: int, reverse: bool, below: Below, state: Parts, timespans: Spans, lengths: Lengths) -> Ran:
        """Run one block: read, normalize, look into the past, mix, add; damped oscillators in one op."""
        stream, inner = self._widened(layer, reverse, below[-1]), self.inner(reverse)
        norm, norm_bias, scale, direct, gate, gate_bias = self._maps(layer, reverse)
        fused = runs_eagerly(stream) and stream.shape[0] * stream.shape[1] >= LEAST_ROWS and self._is_fused(inner)
        normed = stream
        if not fused or self._has_clock(layer):
            normed = F.layer_norm(stream, (self.hidden_size,), norm, norm_bias)
        if self._has_clock(layer):
            passing = self._passing_time(layer, reverse, normed).to(state[0].dtype)
            timespans, lengths = passing if timespans is None else passing * timespans, None
        if fused and isinstance(inner, DampedOscillators):
            inner.record("scan")
            weights = self._block_weights(layer, reverse, timespans if lengths is None else None)
            output, last = damped_block(
                stream, torch.cat(state, dim=-1), weights, lengths=lengths, backend=inner.backend
            )
            real, imaginary = last.chunk(2, dim=-1)
            return output, (real, imaginary)
        past, end = inner.run(layer, False, [normed], state, timespans, lengths)
        return mixed(stream, past, normed, scale, direct, gate, gate_bias), end

    def step_layers(self, x: Float[Tensor, "B d"], state: AllParts) -> tuple[Float[Tensor, "B H"], AllParts] | None:
        """Advance all blocks at once where one kernel does it."""
        inner: Any = self.inner()
        if type(self).run is not Stack.run or not self._is_fused(inner) or len(x) >= LEAST_ROWS:
            return None
        if any(self._has_clock(layer) for layer in range(self.num_layers)):
            return None
        step = self.derived("steps", 0, False, lambda: self._compiled_steps(inner))
        if step is None:
            return None
        inner.record("scan")
        output, real, imaginary = step(x, *state)
        return output, (real, imaginary)

    def _compiled_steps(self, inner: DampedOscillators) -> Any:
        widening = None
        if self.fan_in(0) != self.hidden_size:
            bias = self.weight("bias_ih", 0, False) if self.bias else None
            widening = self.weight("weight_ih", 0, False), bias
        blocks = [self._block_weights(layer, False, None) for layer in range(self.num_layers)]
        return compiled_steps(blocks, widening, backend=inner.backend)

    @staticmethod
    def _is_fused(inner: RecurrentLayer) -> bool:
        """Whether a block around this recurrence is one op."""
        return type(inner).run is DampedOscillators.run

    def _block_weights(self, layer: int, reverse: bool, spans: Spans) -> BlockWeights:
        """Gather the weights of a block around damped oscillators."""
        inner: Any = self.inner(reverse)
        norm, norm_bias, scale, direct, gate, gate_bias = self._maps(layer, reverse)
        power, gain = inner.held(layer, False, None) if spans is None else inner.rates(layer, False)
        readout, (enter, shift) = inner.weight("weight_hr", layer, False).view(2, -1), inner.input_map(layer, False)
        return BlockWeights(power, gain, readout, norm, norm_bias, enter, shift, scale, direct, gate, gate_bias, spans)

    def vector_field(
        self, h: Float[Tensor, "*batch state"], x: Float[Tensor, "*batch channel"], *, layer: int = 0
    ) -> Float[Tensor, "*batch state"]:
        """Give dh/dt of a block's recurrence, where ``x`` is what the block reads; a clock multiplies it."""
        norm = self.weight("vector_norm", layer, False), self.weight("bias_norm", layer, False)
        read = F.layer_norm(self._widened(layer, False, x), (self.hidden_size,), *norm)
        field = self.inner().vector_field(h, read, layer=layer)
        return field * self._passing_time(layer, False, read)[..., None] if self._has_clock(layer) else field

    def extra_repr(self) -> str:
        """Show the recurrence and its time scales too."""
        init = "" if self.init == "tuned" else f", init={self.init}"
        clock = ", clock" if self.clock else ""
        return f"{super().extra_repr()}, layer={self.layer.__name__}, time_scales={self.time_scales}{clock}{init}"

    def _widened(self, layer: int, reverse: bool, x: Float[Tensor, "*batch _"]) -> Float[Tensor, "*batch H"]:
        """Bring the input of a block to its width."""
        if self.fan_in(layer) == self.hidden_size:
            return x
        bias = self.weight("bias_ih", layer, reverse) if self.bias else None
        return F.linear(x, self.weight("weight_ih", layer, reverse), bias)

    def _has_clock(self, layer: int) -> bool:
        return self.clock and layer == 0

    def _clock_map(self, layer: int, reverse: bool) -> tuple[Float[Tensor, "1 H"], Float[Tensor, " 1"]]:
        """Give 8k/√N as a row, and 8c + s."""
        rate = _CLOCK_STEEPNESS / math.sqrt(self.hidden_size) * self.weight("vector_clock", layer, reverse)
        offset = _CLOCK_STEEPNESS * self.weight("bias_clock", layer, reverse) if self.bias else rate.new_zeros(1)
        return rate[None], offset + _CLOCK_START

    def _passing_time(self, layer: int, reverse: bool, normed: Float[Tensor, "*batch H"]) -> Float[Tensor, "*batch"]:
        """Give how much time passes at each step that reads v, in its own span."""
        rate, offset = self.derived("clock", layer, reverse, lambda: self._clock_map(layer, reverse))
        return _LEAST_TIME + F.softplus(F.linear(normed, rate).squeeze(-1).to(offset.dtype) + offset)

    def _passing_range(self, layer: int, reverse: bool) -> tuple[float, float]:
        """Bound how much time passes at a step from below and above, whatever the block reads."""
        if not self._has_clock(layer):
            return 1.0, 1.0
        rate, offset = self._clock_map(layer, reverse)
        largest = float(self._maps(layer, reverse).largest_drive(rate, None)[0]) * _CLOCK_MARGIN
        off, middle = 16 * torch.finfo(rate.dtype).eps, float(offset.detach())
        least, most = (_LEAST_TIME + float(np.logaddexp(0, middle + end)) for end in (-largest, largest))
        return least * (1 - off), most * (1 + off)

    def _scale_to_unit_size(self, layer: int, reverse: bool) -> None:
        """Set p so that noise of unit size comes out at unit size; refuse a recurrence that grows without bound."""
        like = self.weight("vector_scale", layer, reverse)
        if like.is_meta:
            return
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(_NOISE_STEPS, _NOISE_ROWS, self.hidden_size, generator=generator).to(like)
        start = tuple(like.new_zeros(_NOISE_ROWS, self.hidden_size) for _ in self.state_names)
        response, _ = self.inner(reverse).run(layer, False, [noise], start, None, None)
        largest = float(response.abs().max())
        if not largest < _LARGEST:
            got = f"got a response of {largest:.3g} to unit noise after {_NOISE_STEPS} steps"
            hint = "take a smaller step_size (layer_options) or init='tuned'"
            raise InputError(sentence(f"expected a {self.layer.__name__} that stays bounded", got, hint))
        if self.init == "tuned":
            like.copy_(1 / response.float().std((0, 1)).clamp(1e-4, _LARGEST))

    def refuse_timespans(self, timespans: object) -> None:
        """Speak of the recurrence inside: a stack knows of time what that does."""
        self.inner().refuse_timespans(timespans)

    def _certify(self, kind: str, layer: int, reverse: bool, spans: tuple[float, float]) -> Certificate:
        """Answer for the recurrence inside a block: what surrounds it keeps no state."""
        found = self.inner(reverse)._certify(kind, layer, False, spans)
        if not self._has_clock(layer) or found.rate is None:
            return found
        return replace(found, rate=found.rate * self._passing_range(layer, reverse)[0])

    def _certify_memory(self, spans: tuple[float, float], drive: float | None) -> MemoryCertificate:
        """Answer by the recurrences inside the blocks, and by what a block passes on."""
        blocks, found = [self._maps(layer, False) for layer in range(self.num_layers)], []
        for direction in range(self.num_directions):
            inner = self.inner(bool(direction))
            if isinstance(inner, DampedOscillators):
                drives: list[Any] = [drive] * self.num_layers
                if drive is None and self.num_directions == 1:
                    drives = [maps.largest_drive(*inner.input_map(layer, False)) for layer, maps in enumerate(blocks)]
                passing = [self._passing_range(layer, bool(direction)) for layer in range(self.num_layers)]
                found.append(inner.memory_within(spans, drives, passing))
            else:
                found.append(inner._certify_memory(spans, drive))
        return block_memory(found, blocks, spans)

    def _maps(self, layer: int, reverse: bool) -> BlockMaps:
        names = ["vector_norm", "bias_norm", "vector_scale", "vector_direct", "weight_gate"]
        norm, norm_bias, scale, direct, gate = (self.weight(name, layer, reverse) for name in names)
        gate_bias = self.weight("bias_gate", layer, reverse) if self.bias else None
        return BlockMaps(norm, norm_bias, scale, direct, gate, gate_bias)


def _recurrence(layer: Any) -> type[RecurrentLayer]:
    if isinstance(layer, str):
        check_choice("layer", layer, RECURRENCES)
        return LAYERS[layer]
    fits = isinstance(layer, type) and issubclass(layer, RecurrentLayer) and not issubclass(layer, Stack)
    require(fits, f"expected layer to be one of {', '.join(RECURRENCES)} or a RecurrentLayer class", f"got {layer!r}")
    return layer


def _space_time_scales(inner: RecurrentLayer, layer: int, time_scales: tuple[float, float]) -> None:
    """Space the time scales of independent units evenly in their logarithm; other recurrences stay as they are."""
    shortest, longest = (math.log(scale) for scale in time_scales)
    inner.space_time_scales(layer, torch.exp(torch.linspace(shortest, longest, inner.hidden_size)))

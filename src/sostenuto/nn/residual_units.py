"""Euler forms of the gated units: h ← h + ε·field(h, x), so that T steps of size 1/T follow one vector field."""

from abc import abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError, check_positive
from sostenuto.nn.base import Below, LayerState, Lengths, Parts, Ran, RecurrentLayer, Spans, uniform_by_width
from sostenuto.nn.certified import GATED
from sostenuto.ops.step import step_scan


class _ResidualGated(RecurrentLayer):
    """Gates as in torch, read from one stacked product; a subclass gives the field of its state."""

    gates: ClassVar[int]
    no_memory_proof = GATED

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
        step_size: float | None = None,
        proj_size: int = 0,  # noqa: ARG002
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if step_size is not None:
            check_positive("step_size", step_size)
        self.step_size = None if step_size is None else float(step_size)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def build(self, layer: int, reverse: bool) -> None:
        """Create torch's four gate parameters."""
        rows = self.gates * self.hidden_size
        self.new_parameter("weight_ih", layer, reverse, rows, self.fan_in(layer))
        self.new_parameter("weight_hh", layer, reverse, rows, self.hidden_size)
        if self.bias:
            self.new_parameter("bias_ih", layer, reverse, rows)
            self.new_parameter("bias_hh", layer, reverse, rows)

    def reset_parameters(self) -> None:
        """Draw as torch does."""
        uniform_by_width(self)

    @abstractmethod
    def field(self, x: Tensor, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the rate of change of each component from the gates' input and recurrent parts."""

    def run(self, layer: int, reverse: bool, below: Below, state: Parts, timespans: Spans, lengths: Lengths) -> Ran:
        """Step the field; without a step size every sequence takes 1/T, T being its own length."""
        scale = self.step_size if self.step_size is not None else 1 / below[0].shape[0]
        if self.step_size is None and timespans is not None:
            lengths = (timespans > 0).sum(0).clamp(min=1)
            timespans, scale = timespans / lengths, 1.0

        def step(x_t: Tensor, now: tuple[Tensor, ...], span: Tensor | float) -> tuple[Tensor, ...]:
            rates = self._rates(layer, reverse, x_t, now)
            return tuple(part + span * rate for part, rate in zip(now, rates, strict=True))

        return step_scan(self._input_gates(layer, reverse, below[-1]), state, step, timespans=timespans, scale=scale)

    def step(
        self, input_t: Float[Tensor, "*batch channel"], state: LayerState | None = None
    ) -> tuple[Tensor, LayerState]:
        """Advance one time step; needs a ``step_size``, since 1/T is not known before the sequence ends."""
        if self.step_size is None:
            raise InputError(
                "expected a step_size for streaming, got None (1/T of a whole sequence); pass step_size=…."
            )
        return super().step(input_t, state)

    def vector_field(
        self, h: Float[Tensor, "*batch state"], x: Float[Tensor, "*batch channel"], *, layer: int = 0
    ) -> Float[Tensor, "*batch state"]:
        """Return dh/dt; one step of the map advances t by ``step_size``."""
        parts = h.chunk(len(self.state_names), dim=-1)
        return torch.cat(self._rates(layer, False, self._input_gates(layer, False, x), parts), dim=-1)

    def extra_repr(self) -> str:
        """Show the step size too."""
        return f"{super().extra_repr()}, step_size={self.step_size}"

    def _input_gates(self, layer: int, reverse: bool, x: Tensor) -> Tensor:
        bias = self.weight("bias_ih", layer, reverse) if self.bias else None
        return F.linear(x, self.weight("weight_ih", layer, reverse), bias)

    def _rates(self, layer: int, reverse: bool, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        bias = self.weight("bias_hh", layer, reverse) if self.bias else None
        return self.field(x, F.linear(state[0], self.weight("weight_hh", layer, reverse), bias), state)


class ResidualGRU(_ResidualGated):
    """The GRU as a residual network: h ← h + ε(1 − z) ⊙ (n − h), gates r, z, n as in torch.

    ε is ``step_size``, or 1/T of each sequence. ε = 1 is torch's GRU. Reference: fermanian2021, section 2.

    >>> layer = ResidualGRU(1, 4, batch_first=True)
    >>> layer(torch.ones(2, 7, 1))[0].shape
    torch.Size([2, 7, 4])
    """

    state_names = ("h",)
    gates = 3

    def field(self, x: Tensor, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return (1 − z) ⊙ (n − h)."""
        x_r, x_z, x_n = x.chunk(3, dim=-1)
        h_r, h_z, h_n = hidden.chunk(3, dim=-1)
        reset, update = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        candidate = torch.tanh(x_n + reset * h_n)
        return ((1 - update) * (candidate - state[0]),)


class ResidualLSTM(_ResidualGated):
    """The LSTM as a residual network on (h, c), gates i, f, g, o as in torch.

    (h, c) ← (h, c) + ε(o ⊙ tanh(f ⊙ c + i ⊙ g) − h, (f − 1) ⊙ c + i ⊙ g); ε is ``step_size``, or 1/T of each
    sequence. ε = 1 is torch's LSTM. Reference: fermanian2021, section 2.

    >>> layer = ResidualLSTM(1, 4, batch_first=True, step_size=0.1)
    >>> output, (h, c) = layer(torch.ones(2, 7, 1))
    >>> output.shape, c.shape
    (torch.Size([2, 7, 4]), torch.Size([1, 2, 4]))
    """

    state_names = ("h", "c")
    gates = 4

    def field(self, x: Tensor, hidden: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return (o ⊙ tanh(c⁺) − h, c⁺ − c) with c⁺ = f ⊙ c + i ⊙ g."""
        h, c = state
        i, f, g, o = (x + hidden).chunk(4, dim=-1)
        target = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(target) - h, target - c

"""A residual recurrent network as a controlled differential equation dH̄ = F(H̄) dX̄ (fermanian2021, proposition 2)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError, check_fraction, check_positive, require
from sostenuto.nn.residual_rnn import ResidualRNN
from sostenuto.nn.residual_units import ResidualGRU, ResidualLSTM
from sostenuto.theory.activation import Activation, smooth_activation

Rate = Callable[[Float[Tensor, "*batch state"], Float[Tensor, "*batch channel"]], Float[Tensor, "*batch state"]]


@dataclass(frozen=True, eq=False)
class TensorField:
    """The field F of any continuous-time network: its columns are d constants and s·f(h, x).

    H̄ = (h, x) has n + d coordinates, X̄ = (X, (1 − L)/2·t) has d + 1. Column i ≤ d is the basis vector of x_i, and the
    last, time's, is (s·f(h, x), 0) with s = 2·duration/(1 − L). Reference: fermanian2021, proposition 2 and eq. (5).

    Args:
        rate: f(h, x) = dh/dt, smooth, on leading axes of any number.
        state_size: n.
        hidden_size: e, how many of the first coordinates of h a read-out sees (an LSTM's cell it does not).
        input_size: d.
        total_variation: L, the bound on the length of the paths, in [0, 1).
        duration: the time that a path takes, 1 in the paper; T·step_size for T steps of a fixed size.
        like: a tensor whose device and dtype the states have.
    """

    rate: Rate
    state_size: int
    hidden_size: int
    input_size: int
    total_variation: float = 0.5
    duration: float = 1.0
    like: Float[Tensor, "..."] = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))

    def __post_init__(self) -> None:
        check_fraction("total_variation", self.total_variation)
        check_positive("duration", self.duration)

    @property
    def letters(self) -> int:
        """d̄ = d + 1: the channels and time, which is last."""
        return self.input_size + 1

    @property
    def scale(self) -> float:
        """S = 2·duration/(1 − L), the weight of time's column."""
        return 2 * self.duration / (1 - self.total_variation)

    def start(self) -> Float[Tensor, " full"]:
        """Return H̄_0 = 0."""
        return self.like.new_zeros(self.state_size + self.input_size)

    def columns(self, state: Float[Tensor, "*batch full"]) -> Float[Tensor, "*batch full letter"]:
        """Return F(H̄), one column a letter."""
        h, x = state.split([self.state_size, self.input_size], dim=-1)
        time = F.pad(self.scale * self.rate(h, x), (0, self.input_size))
        constant = torch.eye(self.input_size, dtype=state.dtype, device=state.device)
        constant = F.pad(constant, (0, 0, self.state_size, 0)).expand(*state.shape[:-1], -1, -1)
        return torch.cat([constant, time.unsqueeze(-1)], dim=-1)


@dataclass(frozen=True, eq=False, kw_only=True)
class RNNField(TensorField):
    """The field of h′ = σ(U h + V x + b), whose star products have a closed recursion; made by `rnn_field`."""

    recurrent: Float[Tensor, "hidden hidden"]
    input_map: Float[Tensor, "hidden channel"]
    bias: Float[Tensor, " hidden"]
    activation: Activation


def rnn_field(
    recurrent: Float[Tensor, "hidden hidden"],
    input_map: Float[Tensor, "hidden channel"],
    bias: Float[Tensor, " hidden"] | None = None,
    activation: str = "tanh",
    *,
    total_variation: float = 0.5,
    duration: float = 1.0,
) -> RNNField:
    """Return the field of f(h, x) = σ(U h + V x + b) from its matrices, in float64; gradients flow to them.

    Reference: fermanian2021, eq. (2) and (5).

    >>> field = rnn_field(torch.zeros(2, 2), torch.zeros(2, 1), torch.ones(2), "identity")
    >>> field.columns(field.start()).tolist()
    [[0.0, 4.0], [0.0, 4.0], [1.0, 0.0]]
    """
    chosen = smooth_activation(activation)
    u, v = recurrent.double(), input_map.double()
    b = u.new_zeros(len(u)) if bias is None else bias.double()

    def rate(h: Tensor, x: Tensor) -> Tensor:
        return chosen(h @ u.mT + x @ v.mT + b)

    return RNNField(
        rate=rate,
        state_size=len(u),
        hidden_size=len(u),
        input_size=v.shape[1],
        total_variation=total_variation,
        duration=duration,
        like=u.detach(),
        recurrent=u,
        input_map=v,
        bias=b,
        activation=chosen,
    )


def tensor_field(layer: Any, *, total_variation: float = 0.5, duration: float | None = None) -> TensorField:
    """Return the field of a ResidualRNN with a smooth activation, a ResidualGRU or a ResidualLSTM, in float64.

    Args:
        layer: one layer, one direction; a `TensorField` is returned as it is.
        total_variation: L of fermanian2021.
        duration: the time a sequence takes. 1 where steps are 1/T; T·step_size has to be given for a fixed step size.

    >>> from sostenuto.nn import ResidualGRU
    >>> field = tensor_field(ResidualGRU(2, 3), total_variation=0.5)
    >>> field.columns(field.start()).shape, field.scale
    (torch.Size([5, 3]), 4.0)
    """
    if isinstance(layer, TensorField):
        return layer
    if not isinstance(layer, (ResidualRNN, ResidualGRU, ResidualLSTM)):
        named = type(layer).__name__
        raise InputError(f"expected a ResidualRNN, ResidualGRU or ResidualLSTM, or a TensorField, got {named}.")
    require(layer.num_layers == 1, "expected one layer", f"got {layer.num_layers}: no tensor field of a stack")
    require(not layer.bidirectional, "expected one direction", "got two: no tensor field of both")
    if duration is None:
        fixed = layer.step_size
        require(fixed is None, "expected duration = T·step_size", f"got none for the step size {fixed}", "pass it")
        duration = 1.0
    if isinstance(layer, (ResidualGRU, ResidualLSTM)):
        return _gated_field(layer, total_variation, duration)
    recurrent, input_map = (layer.weight(name, 0, False) for name in ("weight_hh", "weight_ih"))
    bias = layer.weight("bias_ih", 0, False) if layer.bias else None
    options = {"total_variation": total_variation, "duration": duration}
    return rnn_field(recurrent, input_map, bias, layer.activation, **options)


def _gated_field(layer: ResidualGRU | ResidualLSTM, total_variation: float, duration: float) -> TensorField:
    """Read the gates' weights as float64: nested derivatives lose what float32 would keep."""
    names = ("weight_ih_l0", "bias_ih_l0", "weight_hh_l0", "bias_hh_l0")
    w_x, b_x, w_h, b_h = (getattr(layer, name).double() if hasattr(layer, name) else None for name in names)
    assert w_x is not None
    assert w_h is not None
    parts = len(layer.state_names)

    def rate(h: Tensor, x: Tensor) -> Tensor:
        components = h.chunk(parts, dim=-1)
        return torch.cat(layer.field(F.linear(x, w_x, b_x), F.linear(components[0], w_h, b_h), components), dim=-1)

    return TensorField(
        rate, layer.state_size, layer.hidden_size, layer.input_size, total_variation, duration, like=w_h.detach()
    )

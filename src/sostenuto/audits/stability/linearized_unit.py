"""Gated units near their rest at zero: whether it is stable under a constant input, or why there is no rest."""

import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.applicability import not_applicable
from sostenuto.checks import check_count, require
from sostenuto.results import Numbers, Record


@dataclass(frozen=True, kw_only=True)
class LinearizedUnit(Record):
    """The matrix M of dh/dt = M h near h = 0, by rows, and its eigenvalues; the unit's own step is near h ← (I + M) h.

    ``abscissa`` is the largest real part, below 0 where the equation is stable; ``radius`` the largest modulus of the
    eigenvalues of I + M, below 1 where the step is. ``candidate`` is the largest |ĥ| at h = 0, which must be 0 there to
    be at rest: where it is not, ``reason`` says so, and nothing else is told.
    """

    matrix: tuple[Numbers, ...]
    eigenvalues_real: Numbers
    eigenvalues_imaginary: Numbers
    abscissa: float
    radius: float
    candidate: float
    reason: str

    def summary(self) -> str:
        """Say whether the rest at zero is stable."""
        if self.reason:
            return f"The linearization at rest is {self.reason}."
        kind = "stable" if self.abscissa < 0 else "not stable"
        step = "stable" if self.radius < 1 else "not stable"
        return (
            f"The rest at zero is {kind} (largest real part {self.abscissa:.4g}), and under the unit's own step {step} "
            f"(largest modulus {self.radius:.4g})."
        )


Unit = TypeVar("Unit", bound=LinearizedUnit)


def _linearized(
    kind: type[Unit], candidate: Float[Tensor, " hidden"], entering: Tensor, matrix: Float[Tensor, "state state"]
) -> Unit:
    """Describe M; or say that zero is no rest, because the candidate there is not 0."""
    # What rounding leaves of two biases that cancel is no candidate.
    resting = candidate.abs() <= 1e-12 * (1 + entering.abs())
    largest = float(candidate.abs().max())
    if not bool(resting.all()):
        return kind(
            matrix=(),
            eigenvalues_real=(),
            eigenvalues_imaginary=(),
            abscissa=math.nan,
            radius=math.nan,
            candidate=largest,
            reason=not_applicable("a candidate of 0 at h = 0", candidate, resting),
        )
    values = torch.linalg.eigvals(matrix)
    values = values[values.real.argsort(descending=True, stable=True)]
    return kind(
        matrix=tuple(tuple(row) for row in matrix.tolist()),
        eigenvalues_real=tuple(values.real.tolist()),
        eigenvalues_imaginary=tuple(values.imag.tolist()),
        abscissa=float(values.real.max()),
        radius=float((1 + values).abs().max()),
        candidate=largest,
        reason="",
    )


def _gate_inputs(
    unit: nn.RNNBase | nn.RNNCellBase, x: Float[Tensor, " channel"] | None, layer: int
) -> tuple[Float[Tensor, " gates"], Float[Tensor, " gates"], Float[Tensor, "gates hidden"]]:
    """Return W x + b_i, b_h and U of one layer in float64, all gates one after the other."""
    check_count("layer", layer, least=0)
    count = getattr(unit, "num_layers", 1)
    require(layer < count, f"expected a layer below {count}", f"got {layer}")
    suffix = "" if isinstance(unit, nn.RNNCellBase) else f"_l{layer}"

    def weight(name: str) -> Tensor:
        return getattr(unit, f"{name}{suffix}").detach().double().cpu()

    entering, recurrent = weight("weight_ih"), weight("weight_hh")
    nothing = recurrent.new_zeros(len(recurrent))
    first, second = (weight(name) if unit.bias else nothing for name in ("bias_ih", "bias_hh"))
    channels = entering.shape[1]
    values = entering.new_zeros(channels) if x is None else x.detach().double().cpu()
    shape = tuple(values.shape)
    require(shape == (channels,), f"expected an input of {channels} channels", f"got shape {shape}")
    return entering @ values + first, second, recurrent


@dataclass(frozen=True, kw_only=True)
class LinearizedLSTM(LinearizedUnit):
    """An LSTM near h = c = 0, the states (h, c) one after the other: see `LinearizedUnit`."""


def linearized_lstm(
    lstm: nn.LSTM | nn.LSTMCell, x: Float[Tensor, " channel"] | None = None, *, layer: int = 0
) -> LinearizedLSTM:
    """Linearize an LSTM at h = c = 0 under the constant input ``x``.

    With the gates i, f, o and the candidate g = tanh(W_g x + b_g + U_g h) taken at h = 0, where g must be 0, one step

        c ← f ⊙ c + i ⊙ g,   h ← o ⊙ tanh(c)

    is (h, c) ← (I + M)(h, c) to first order, and Euler's step of length 1 of d(h, c)/dt = M (h, c), with

        I + M = [[Diag(o ⊙ i) U_g, Diag(o ⊙ f)], [Diag(i) U_g, Diag(f)]]:

    the gates' own dependence on h drops out, because each multiplies what is 0 at rest. The eigenvalues of I + M that
    are not 0 are those of Diag(i ⊙ o) U_g + Diag(f). Reference: wang2024, appendix J, which does this for the GRU.

    Args:
        lstm: torch's unit or layer, or `sostenuto.nn.LSTM`; not one with projections.
        x: the constant input ``(channel,)``; zero if left out. In a stack, what this layer reads.
        layer: which layer of a stack.

    Returns:
        The matrix, its eigenvalues, and whether the rest is stable; or why zero is no rest.

    >>> lstm = nn.LSTMCell(1, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = lstm.weight_hh.copy_(torch.tensor([[0.0], [0.0], [8.0], [0.0]]))
    >>> linearized_lstm(lstm).matrix  # i = f = o = 1/2
    ((1.0, 0.25), (4.0, -0.5))
    """
    entering, own, recurrent = _gate_inputs(lstm, x, layer)
    i, f, candidate, o = (entering + own).chunk(4)
    i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
    from_state = i[:, None] * recurrent.chunk(4)[2]
    cell = torch.cat([from_state, torch.diag(f)], 1)
    step = torch.cat([o[:, None] * cell, cell])
    matrix = step - torch.eye(len(step), dtype=torch.float64)
    return _linearized(LinearizedLSTM, torch.tanh(candidate), entering.chunk(4)[2], matrix)


@dataclass(frozen=True, kw_only=True)
class LinearizedGRU(LinearizedUnit):
    """A GRU near h = 0: see `LinearizedUnit`."""


def linearized_gru(
    gru: nn.GRU | nn.GRUCell, x: Float[Tensor, " channel"] | None = None, *, layer: int = 0
) -> LinearizedGRU:
    """Linearize a GRU at h = 0 under the constant input ``x``.

    With update gate z, reset gate r and candidate ĥ all taken at h = 0, and ĥ = 0, the paper finds
    M = Diag(σ(b_z))(U_h Diag(σ(b_r)) − I), W x being part of every b. torch's unit differs: its z is the paper's 1 − z,
    r stands behind U_h, and U_h has a bias b_hn of its own inside r. For

        dh/dt = (1 − z) ⊙ (tanh(W_n x + b_n + r ⊙ (U_h h + b_hn)) − h)

    that is M = Diag(1 − z)(Diag(r) U_h + Diag(b_hn ⊙ r ⊙ (1 − r)) U_r − I). One step of torch's unit is Euler's step of
    length 1. Reference: wang2024, appendix J, eqs. (129)-(142).

    Args:
        gru: torch's unit or layer, or `sostenuto.nn.GRU`.
        x: the constant input ``(channel,)``; zero if left out. In a stack, what this layer reads.
        layer: which layer of a stack.

    >>> gru = nn.GRUCell(1, 2, bias=False)
    >>> with torch.no_grad():
    ...     _ = gru.weight_hh.copy_(torch.cat([torch.zeros(4, 2), 6 * torch.eye(2)]))
    >>> linearized_gru(gru).matrix  # 1 − z = r = 1/2: (6/2 − 1)/2
    ((1.0, 0.0), (0.0, 1.0))
    """
    entering, own, recurrent = _gate_inputs(gru, x, layer)
    (reset, update, candidate), (reset_own, update_own, bias) = entering.chunk(3), own.chunk(3)
    r, z = torch.sigmoid(reset + reset_own), torch.sigmoid(update + update_own)
    from_reset, _, from_state = recurrent.chunk(3)
    inner = r[:, None] * from_state + (bias * r * (1 - r))[:, None] * from_reset
    matrix = (1 - z)[:, None] * (inner - torch.eye(len(r), dtype=torch.float64))
    return _linearized(LinearizedGRU, torch.tanh(candidate + r * bias), candidate, matrix)

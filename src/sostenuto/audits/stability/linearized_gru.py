"""The linearized gated recurrent unit: whether its rest at zero is stable under a constant input."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.stability.linearized_unit import LinearizedUnit, at_rest, gate_inputs, not_at_rest


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
    entering, own, recurrent = gate_inputs(gru, x, layer)
    (reset, update, candidate), (reset_own, update_own, bias) = entering.chunk(3), own.chunk(3)
    r, z = torch.sigmoid(reset + reset_own), torch.sigmoid(update + update_own)
    answer = torch.tanh(candidate + r * bias)
    # What rounding leaves of two biases that cancel is no candidate.
    resting = answer.abs() <= 1e-12 * (1 + candidate.abs())
    if not bool(resting.all()):
        return not_at_rest(LinearizedGRU, answer, resting)
    from_reset, _, from_state = recurrent.chunk(3)
    inner = r[:, None] * from_state + (bias * r * (1 - r))[:, None] * from_reset
    matrix = (1 - z)[:, None] * (inner - torch.eye(len(r), dtype=torch.float64))
    return at_rest(LinearizedGRU, matrix, float(answer.abs().max()))

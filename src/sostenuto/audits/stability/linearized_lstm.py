"""The linearized long short-term memory unit: whether its rest at zero is stable under a constant input."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.stability.linearized_unit import LinearizedUnit, at_rest, gate_inputs, not_at_rest


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
    entering, own, recurrent = gate_inputs(lstm, x, layer)
    i, f, candidate, o = (entering + own).chunk(4)
    i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
    answer = torch.tanh(candidate)
    # What rounding leaves of two biases that cancel is no candidate.
    resting = answer.abs() <= 1e-12 * (1 + entering.chunk(4)[2].abs())
    if not bool(resting.all()):
        return not_at_rest(LinearizedLSTM, answer, resting)
    from_state = i[:, None] * recurrent.chunk(4)[2]
    cell = torch.cat([from_state, torch.diag(f)], 1)
    step = torch.cat([o[:, None] * cell, cell])
    return at_rest(LinearizedLSTM, step - torch.eye(len(step), dtype=torch.float64), float(answer.abs().max()))

"""The linearized gated recurrent unit: whether its rest at zero is stable under a constant input."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.applicability import not_applicable
from sostenuto.checks import check_count, require
from sostenuto.results import Numbers, Record


@dataclass(frozen=True, kw_only=True)
class LinearizedGRU(Record):
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


def linearized_gru(
    gru: nn.GRU | nn.GRUCell, x: Float[Tensor, " channel"] | None = None, *, layer: int = 0
) -> LinearizedGRU:
    """Linearize a GRU at h = 0 under the constant input ``x``.

    With update gate z, reset gate r and candidate ĥ all taken at h = 0, and ĥ = 0, the paper finds
    M = Diag(σ(b_z))(U_h Diag(σ(b_r)) − I), W x being part of every b. torch's unit differs: its z is the paper's 1 − z,
    r stands behind U_h, and U_h has a bias b_hn of its own inside r. For

        dh/dt = (1 − z) ⊙ (tanh(W_n x + b_n + r ⊙ (U_h h + b_hn)) − h)

    that is M = Diag(1 − z)(Diag(r) U_h + Diag(b_hn ⊙ r ⊙ (1 − r)) U_r − I). One step of torch's unit is Euler's step of
    length 1. Reference: paper 003, appendix J, eqs. (129)-(142).

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
    check_count("layer", layer, least=0)
    count = getattr(gru, "num_layers", 1)
    require(layer < count, f"expected a layer below {count}", f"got {layer}")
    suffix = "" if isinstance(gru, nn.GRUCell) else f"_l{layer}"
    entering, recurrent = (_weight(gru, name, suffix) for name in ("weight_ih", "weight_hh"))
    nothing = recurrent.new_zeros(len(recurrent))
    biases = [_weight(gru, name, suffix) if gru.bias else nothing for name in ("bias_ih", "bias_hh")]
    channels = entering.shape[1]
    given = entering.new_zeros(channels) if x is None else x.detach().double().cpu()
    require(given.shape == (channels,), f"expected an input of {channels} channels", f"got shape {tuple(given.shape)}")
    reset, update, candidate = (entering @ given + biases[0]).chunk(3)
    reset_own, update_own, bias = biases[1].chunk(3)
    r, z = torch.sigmoid(reset + reset_own), torch.sigmoid(update + update_own)
    answer = torch.tanh(candidate + r * bias)
    # What rounding leaves of two biases that cancel is no candidate.
    resting = answer.abs() <= 1e-12 * (1 + candidate.abs())
    largest = float(answer.abs().max())
    if not bool(resting.all()):
        return LinearizedGRU(
            matrix=(),
            eigenvalues_real=(),
            eigenvalues_imaginary=(),
            abscissa=math.nan,
            radius=math.nan,
            candidate=largest,
            reason=not_applicable("a candidate of 0 at h = 0", answer, resting),
        )
    from_reset, _, from_state = recurrent.chunk(3)
    inner = r[:, None] * from_state + (bias * r * (1 - r))[:, None] * from_reset
    matrix = (1 - z)[:, None] * (inner - torch.eye(len(r), dtype=torch.float64))
    values = torch.linalg.eigvals(matrix)
    values = values[values.real.argsort(descending=True, stable=True)]
    return LinearizedGRU(
        matrix=tuple(tuple(row) for row in matrix.tolist()),
        eigenvalues_real=tuple(values.real.tolist()),
        eigenvalues_imaginary=tuple(values.imag.tolist()),
        abscissa=float(values.real.max()),
        radius=float((1 + values).abs().max()),
        candidate=largest,
        reason="",
    )


def _weight(gru: nn.Module, name: str, suffix: str) -> Tensor:
    return getattr(gru, f"{name}{suffix}").detach().double().cpu()

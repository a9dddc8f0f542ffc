"""The norms of an RNN's weights, Lipschitz constants and largest rates that its bounds are made of."""

import math
from dataclasses import dataclass

from torch import Tensor, linalg

from sostenuto.theory.bound import Assumption, Bound, make_bound
from sostenuto.theory.tensor_field import RNNField


@dataclass(frozen=True)
class WeightNorms:
    """Norms of U, V, b of f(h, x) = τ·σ(U h + V x + b), τ being the duration.

    ``recurrent_rows`` is max_r ‖U_r‖₁, ``input_rows`` max_r ‖V_r‖₂, ``row_sum`` ‖(U V)‖_∞, ``frobenius`` ‖(U V)‖_F.
    ``lipschitz_state`` and ``lipschitz_input`` are K_h and K_x, the Lipschitz constants of f; ``largest_state`` is M,
    ``largest_rate`` bounds ‖f(h, x)‖ for ‖h‖ ≤ M and ‖x‖ ≤ L; both are infinite where
    e^{K_h} is beyond float64. ``word_gain`` is g₁ = max_r max(s‖U_r‖₁, |V_ri|) and
    ``letter_gain`` is g₂ = max_r √(s²‖U_r‖₁² + ‖V_r‖₂²).
    """

    recurrent_rows: float
    input_rows: float
    row_sum: float
    frobenius: float
    lipschitz_state: float
    lipschitz_input: float
    largest_state: float
    largest_rate: float
    word_gain: float
    letter_gain: float


def weight_norms(field: RNNField) -> WeightNorms:
    """Measure the weights of ``field``.

    >>> import torch
    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> norms = weight_norms(rnn_field(torch.full((2, 2), 0.5), torch.ones(2, 1), activation="tanh"))
    >>> norms.row_sum, round(norms.lipschitz_state, 9), round(norms.lipschitz_input**2, 9)
    (2.0, 1.0, 2.0)
    """
    u, v, b = field.recurrent.detach(), field.input_map.detach(), field.bias.detach()
    rows_u, rows_v = u.abs().sum(1), v.norm(dim=1)
    tau, slope = field.duration, field.activation.slope
    k_h, k_x = tau * slope * _spectral(u), tau * slope * _spectral(v)
    ceiling = tau * field.activation.ceiling * math.sqrt(field.hidden_size)
    first = min(ceiling, tau * float(field.activation(b).norm()) + k_x * field.total_variation)
    # Grönwall: ‖H_t‖ grows at most at the rate first + K_h·‖H_t‖.
    growth = 1.0 if k_h == 0 else math.expm1(k_h) / k_h if k_h < 709 else math.inf
    largest = first * growth if first > 0 else 0.0
    return WeightNorms(
        recurrent_rows=float(rows_u.max()),
        input_rows=float(rows_v.max()),
        row_sum=float((rows_u + v.abs().sum(1)).max()),
        frobenius=math.hypot(float(u.norm()), float(v.norm())),
        lipschitz_state=k_h,
        lipschitz_input=k_x,
        largest_state=largest,
        largest_rate=min(ceiling, first + k_h * largest),
        word_gain=max(field.scale * float(rows_u.max()), float(v.abs().max())),
        letter_gain=float(((field.scale * rows_u) ** 2 + rows_v**2).sqrt().max()),
    )


def unknown(quantity: str) -> Bound:
    """Say that no bound is known but for a feedforward RNN; fermanian2021 leaves gated units open."""
    return make_bound(quantity, math.nan, {}, [Assumption("f(h, x) = σ(U h + V x + b)", False)])


def _spectral(matrix: Tensor) -> float:
    """Bound the spectral norm from above: rounding must not take a bound below what it bounds."""
    return float(linalg.matrix_norm(matrix, 2)) * (1 + 1e-12)

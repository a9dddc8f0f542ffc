"""How far a network is from its continuous-time limit: proposition 1 of fermanian2021, and steps of higher order."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_choice, check_count
from sostenuto.theory.bound import Assumption, Bound, exponential, make_bound
from sostenuto.theory.increasing_trees import catalan_tail
from sostenuto.theory.ode import ORDERS, discretize, solve
from sostenuto.theory.tensor_field import RNNField, tensor_field
from sostenuto.theory.weight_norms import unknown, weight_norms


def discretization_bound(rnn: Any, steps: int, *, total_variation: float = 0.5) -> Bound:
    """Bound ‖H_{j/T} − h_j‖ for the network of T = ``steps`` steps and every path of length at most L.

    (‖f‖_∞(e^{K_h} − 1)/2 + K_x·L·e^{K_h})/T. The term ``paper`` is c₁/T of proposition 1, which is larger. Both ask for
    Lipschitz constants only, whatever the activation. Reference: fermanian2021, proposition 1.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> bound = discretization_bound(rnn_field(torch.zeros(1, 1), torch.ones(1, 1)), 100)
    >>> round(bound.value, 9)  # no recurrence: only the input is taken late
    0.005
    """
    check_count("steps", steps)
    field = tensor_field(rnn, total_variation=total_variation)
    if not isinstance(field, RNNField):
        return unknown("‖H − h‖")
    norms, length = weight_norms(field), field.total_variation
    k_h, k_x, rate = norms.lipschitz_state, norms.lipschitz_input, norms.largest_rate
    k = max(k_h, k_x)
    printed = k * exponential(k) * (length + (rate * exponential(k) if rate > 0 else 0.0))
    parts = (rate, (exponential(k_h) - 1) / 2), (k_x * length, exponential(k_h))
    value = sum(size * growth for size, growth in parts if size > 0)
    terms = {
        "paper": printed / steps,
        "lipschitz_state": k_h,
        "lipschitz_input": k_x,
        "largest_rate": rate,
        "largest_state": norms.largest_state,
    }
    return make_bound("‖H − h‖", value / steps, terms)


def discretization_error(
    rnn: Any, path: Float[Tensor, "*batch time channel"], *, method: str = "residual"
) -> Float[Tensor, "*batch time"]:
    """Measure ‖H_{j/T} − h_j‖ at every point of ``path``, against the solution to rounding: what the bounds bound.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> field = rnn_field(torch.ones(1, 1), torch.zeros(1, 1), torch.ones(1), "identity")  # h′ = h + 1
    >>> discretization_error(field, torch.zeros(2, 1)).tolist()
    [0.148..., 0.468...]
    """
    with torch.no_grad():
        return (discretize(rnn, path, method=method) - solve(rnn, path)).norm(dim=-1)


def runge_kutta_bound(
    rnn: Any, path: Float[Tensor, "*batch time channel"], *, method: str = "rk4", total_variation: float = 0.5
) -> Bound:
    """Bound every coordinate of the error of T steps of a Runge–Kutta method along ``path`` (the worst of a batch).

    Σ_j e^{K(1−(j+1)/T)}·(τ/T)·Σ_{n≥p} C_n γ_j^n (1 + 2^{−n}) with C_n the Catalan numbers, p the order,
    γ_j = ρ(τ‖U‖_∞/T + max_r‖V_r‖₂·|x_{j+1} − x_j|) and K = τ·sup|σ′|·‖U‖_∞, where every 4γ_j ≤ 1: O(1/T^p) on a path of
    bounded speed. ``method`` is one of `discretize`'s. Reference: fermanian2021, section 5; proof in
    ``docs/rnn_as_kernel.md``.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> line = torch.linspace(0.1, 1, 10)[:, None] / 4
    >>> bound = runge_kutta_bound(rnn_field(torch.ones(1, 1) / 4, torch.ones(1, 1) / 4), line)
    >>> bound.applicable, bound.value < 2e-4
    (True, True)
    """
    check_choice("method", method, ORDERS)
    field = tensor_field(rnn, total_variation=total_variation)
    quantity = f"error of {method}"
    if not isinstance(field, RNNField):
        return unknown(quantity)
    if field.activation.name == "identity":
        return make_bound(quantity, math.nan, {}, [Assumption("a bounded activation", False)])
    norms, tau, points = weight_norms(field), field.duration, path.to(field.like)
    steps = points.shape[-2]
    moves = torch.cat([points[..., :1, :], points.diff(dim=-2)], dim=-2).norm(dim=-1).reshape(-1, steps)
    gammas = field.activation.ratio * (tau * norms.recurrent_rows / steps + norms.input_rows * moves)
    worst = float(gammas.max())
    growth = tau * field.activation.slope * norms.recurrent_rows
    left = torch.exp(growth * (1 - torch.arange(1, steps + 1, dtype=torch.float64) / steps))
    order = ORDERS[method]
    value = math.nan
    if 4 * worst <= 1:
        tails = [[catalan_tail(g, order) + catalan_tail(g / 2, order) for g in row] for row in gammas.tolist()]
        value = float((torch.tensor(tails, dtype=torch.float64) * left).sum(1).max()) * tau / steps
    terms = {"order": float(order), "growth": growth, "largest_gamma": worst}
    return make_bound(quantity, value, terms, [Assumption("4γ_j ≤ 1 at every step", 4 * worst <= 1, 4 * worst)])

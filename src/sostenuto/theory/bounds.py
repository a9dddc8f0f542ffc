"""Bounds on expansions and norms of RNNs: propositions 3 to 5 of fermanian2021, repaired, and better ones at any width.

Proofs are in ``docs/rnn_as_kernel.md``. σ is bounded with |σ^(m)| ≤ ρ^m·m! (tanh: ρ = 1, logistic: ρ = 1/2), or the
identity. s = 2·duration/(1 − L), d̄ = d + 1. Every function answers with a `Bound`, which says what it assumed.
"""

import math
from typing import Any

import torch
from torch import Tensor, linalg, nn

from sostenuto.checks import check_count, check_fraction
from sostenuto.theory.bound import Assumption, Bound, make_bound, power
from sostenuto.theory.increasing_trees import catalan_tail, tree_weight
from sostenuto.theory.rkhs import as_readout, rkhs_norm
from sostenuto.theory.tensor_field import RNNField, tensor_field
from sostenuto.theory.weight_norms import WeightNorms, unknown, weight_norms


def signature_norm_bound(total_variation: float) -> Bound:
    """Bound ‖S_{[0,t]}(X̄)‖ for every path of length at most L: 1/√(1 − r²), r = (1 + L)/2.

    X̄ is r long, so ‖X̄^k‖ ≤ r^k. The term ``paper`` is 2/(1 − L) of proposition 3, which adds the levels' norms, not
    their squares. Reference: fermanian2021, proposition 3.

    >>> bound = signature_norm_bound(0.5)
    >>> round(bound.value, 3), bound.terms["paper"]
    (1.512, 4.0)
    """
    check_fraction("total_variation", total_variation)
    length = (1 + total_variation) / 2
    terms = {"paper": 2 / (1 - total_variation), "length": length}
    return make_bound("‖S(X̄)‖", 1 / math.sqrt(1 - length**2), terms)


def star_product_bound(rnn: Any, order: int, *, total_variation: float = 0.5) -> Bound:
    """Bound the largest coordinate of F^w(h̄) over all words of ``order`` N letters ending in time and all states h̄.

    |F^w|_∞ ≤ s·(ρ·g₁)^(N−1)·(2N−3)!!, g₁ = max(s‖U‖_∞, max|V_ri|). Terms: ``row_sum`` is s(s‖W‖_∞)^(N−1)(2N−3)!! of
    ``docs/errata.md`` (fermanian2021.3) where s ≥ 1; ``euclidean`` bounds ‖F^w‖; ``paper`` is proposition 5 in its
    repaired form (fermanian2021.2), for ‖F^w‖ too. For the identity the states are those with ‖h‖ ≤ M, ‖x‖ ≤ L and
    there is one tree.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> field = rnn_field(torch.zeros(9, 9), torch.zeros(9, 1), torch.full((9,), 30.0), "logistic")
    >>> star_product_bound(field, 1).terms["euclidean"]  # the paper's printed bound is 11.3
    12.0
    """
    check_count("order", order)
    field = tensor_field(rnn, total_variation=total_variation)
    quantity = f"largest star product of {order} letters"
    if not isinstance(field, RNNField):
        return unknown(quantity)
    return _largest_product(field, weight_norms(field), order, quantity)


def _largest_product(field: RNNField, norms: WeightNorms, order: int, quantity: str) -> Bound:
    s, width = field.scale, math.sqrt(field.hidden_size)
    if field.activation.name == "identity":
        first = norms.largest_rate / field.duration
        value = s * first if order == 1 else s * power(norms.word_gain, order - 1) * max(1.0, first)
        return make_bound(quantity, value, {"euclidean": width * value})
    trees = tree_weight(order)
    value = s * power(field.activation.ratio * norms.word_gain, order - 1) * trees
    row_sum = s * power(max(s, 1.0) * norms.row_sum, order - 1) * trees
    a = max({"logistic": 2.0, "tanh": 4.0}[field.activation.name], math.sqrt(field.hidden_size / 2))
    ratio = 4 * a**2 * max(s, 1.0) * norms.frobenius
    paper = math.sqrt(2) * a * s * power(ratio, order - 1) * math.factorial(order)
    return make_bound(quantity, value, {"row_sum": row_sum, "euclidean": width * value, "paper": paper})


def remainder_bound(rnn: Any, order: int, *, total_variation: float = 0.5) -> Bound:
    """Bound every coordinate of H_t − H_t^N, the error of the step-N expansion, for every path of length at most L.

    |H − H^N|_∞ ≤ τ·(2N−1)!!/N!·(ρ(τ‖U‖_∞ + L·max_r‖V_r‖₂))^N with the duration τ. It always holds, and falls with N
    when 2ρ(τ‖U‖_∞ + L‖V‖) < 1. Terms: ``euclidean`` bounds the norm; ``paper`` is proposition 4, Λ_{N+1}·d̄^(N+1)/(N+1)!
    with Λ from `star_product_bound`; ``ratio`` is the factor from one N to the next. For the identity (2N−1)!! is 1,
    and the largest rate stands before.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> remainder_bound(rnn_field(torch.full((1, 1), 0.125), torch.zeros(1, 1)), 3).value
    0.0048828125
    """
    check_count("order", order)
    field = tensor_field(rnn, total_variation=total_variation)
    quantity = f"error of the step-{order} expansion"
    if not isinstance(field, RNNField):
        return unknown(quantity)
    norms, tau = weight_norms(field), field.duration
    gain = tau * norms.recurrent_rows + field.total_variation * norms.input_rows
    if field.activation.name == "identity":
        trees, gain_each, first = 1.0, gain, max(1.0, norms.largest_rate / tau)
        ratio = gain / (order + 1)
    else:
        trees, gain_each, first = tree_weight(order + 1), field.activation.ratio * gain, 1.0
        ratio = 2 * gain_each
    value = tau * first * trees * power(gain_each, order) / math.factorial(order)
    largest = _largest_product(field, norms, order + 1, quantity).terms["euclidean"]
    paper = field.letters ** (order + 1) / math.factorial(order + 1) * largest
    terms = {"euclidean": math.sqrt(field.hidden_size) * value, "paper": paper, "ratio": ratio}
    return make_bound(quantity, value, terms)


def rkhs_norm_bound(
    rnn: Any, readout: Tensor | nn.Linear | None = None, *, total_variation: float = 0.5, order: int | None = None
) -> Bound:
    """Bound ‖ξ‖_H, all orders together, for a network of any width; the largest over outputs.

    ‖ξ‖ ≤ 2‖ψ‖₁·s/(1 + √(1 − 2ρg₂)) where 2ρg₂ ≤ 1, g₂ = max_r √(s²‖U_r‖₁² + ‖V_r‖₂²). With ``order`` N the first N
    levels are summed exactly and only the rest is bounded. Terms: ``row_sum`` is ‖ψ‖₁s/(1 − 2s√d̄·‖W‖_∞), the bound
    of ``docs/errata.md`` (fermanian2021.3), NaN where its denominator is not positive; ``tail`` what lies beyond
    ``order``; ``all_outputs`` the root of the sum of squares over outputs. For the identity ‖ξ‖ is finite for all
    weights.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> field = rnn_field(torch.zeros(1, 1), torch.zeros(1, 1), torch.full((1,), 30.0), "logistic")
    >>> rkhs_norm_bound(field, torch.ones(1)).value  # attained
    4.0
    """
    field = tensor_field(rnn, total_variation=total_variation)
    if not isinstance(field, RNNField):
        return unknown("‖ξ‖")
    weights = as_readout(readout, field)[0].detach()
    if field.activation.name == "identity":
        return _identity_norm_bound(field, weights)
    norms, s = weight_norms(field), field.scale
    condition = 2 * field.activation.ratio * norms.letter_gain
    assumptions = [Assumption("2ρ·max_r √(s²‖U_r‖₁² + ‖V_r‖₂²) ≤ 1", condition <= 1, condition)]
    size = weights.abs().sum(1)
    tails = size * s * catalan_tail(condition / 4, order or 0)
    each = tails
    if order is not None and condition <= 1:
        with torch.no_grad():
            each = (rkhs_norm(field, order, readout=weights).squared + tails**2).sqrt()
    q = 2 * max(s, 1.0) * math.sqrt(field.letters) * norms.row_sum
    terms = {
        "row_sum": float(size.max()) * s / (1 - q) if q < 1 else math.nan,
        "tail": float(tails.max()),
        "all_outputs": float(each.norm()),
        "condition": condition,
    }
    return make_bound("‖ξ‖", float(each.max()), terms, assumptions)


def _identity_norm_bound(field: RNNField, weights: Tensor) -> Bound:
    """Bound ‖ψ‖(s‖b‖ + s/2·e^{s‖U‖}·√(‖V‖_F² + s²‖Ub‖²)): the words are i·time⋯time, and 1/k! ≤ 1/(2(k−2)!)."""
    u, v, b, s = field.recurrent.detach(), field.input_map.detach(), field.bias.detach(), field.scale
    first = torch.sqrt(v.square().sum() + (s * (u @ b)).square().sum())
    later = s / 2 * torch.exp(s * linalg.matrix_norm(u, 2)) * first if bool(first > 0) else 0.0
    each = weights.norm(dim=1) * float(s * b.norm() + later) * (1 + 1e-12)
    return make_bound("‖ξ‖", float(each.max()), {"all_outputs": float(each.norm())})

"""The norm of a network in the reproducing kernel Hilbert space of the signature kernel (fermanian2021, theorem 1)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import check_choice, check_count, check_positive, require
from sostenuto.theory.sign_draws import draw_signs, level_draws
from sostenuto.theory.star_product import products_ending_in_time
from sostenuto.theory.tensor_field import TensorField, tensor_field

LARGEST_SWEEP = 2**22
"""Numbers that the coefficients of one sweep over draws may have."""

PILOT_DRAWS = 1000
LEAST_DRAWS = 200

Values = Float[Tensor, " *output"]


@dataclass(frozen=True, eq=False)
class RKHSNorm:
    """‖ξ‖² = Σ_{k=1}^N ‖α_k‖² of each output, and how far it can be trusted.

    ``squared`` is unbiased and differentiable; ``levels`` holds its parts, level 1 first. ``variance`` is that of one
    draw and ``standard_error`` that of ``squared``; both are 0 for the exact method, whose ``draws`` is 0. The constant
    term α_0, which is the read-out's bias, is left out.
    """

    squared: Values
    levels: Float[Tensor, "level *output"]
    standard_error: Values
    variance: Values
    draws: int
    order: int
    method: str

    @property
    def value(self) -> Values:
        """‖ξ‖ = √squared."""
        return self.squared.sqrt()

    @property
    def value_error(self) -> Values:
        """The standard error of ``value`` by the delta method, standard_error/(2·value); 0 where both are."""
        value = self.value.detach()
        return torch.where(value > 0, self.standard_error / (2 * value), self.standard_error)


def rkhs_norm(
    rnn: Any,
    order: int,
    *,
    readout: Tensor | nn.Linear | None = None,
    total_variation: float = 0.5,
    method: str = "exact",
    draws: int | None = None,
    relative_error: float | None = None,
    generator: torch.Generator | None = None,
) -> RKHSNorm:
    """Return the norm ‖ξ_α‖_H of the expansion to ``order`` N: ‖ξ‖² = Σ_k Σ_w (ψ·F^w(H̄_0)/k!)², one for each output.

    ``"exact"`` sums over the words, of which d̄^(k−1) end in time. ``"stochastic"`` draws sign vectors: the cost does
    not grow with d^k and ``squared`` has the right mean at every order. Reference: fermanian2021, theorem 1, section
    3.2.

    Args:
        rnn: a ResidualRNN with a smooth activation, a ResidualGRU or ResidualLSTM, or a `TensorField`.
        order: N ≥ 1.
        readout: ψ, ``(e,)`` for one output or ``(outputs, e)``, or a linear module, whose bias does not enter. None:
            each hidden unit is an output.
        total_variation: L, of a layer; a `TensorField` brings its own.
        method: ``"exact"`` or ``"stochastic"``.
        draws: number of draws of the stochastic method, 1000 unless given.
        relative_error: choose the draws so that the standard error is about this fraction of every output's
            ``squared``; the pilot draws that tell how many are thrown away, so that the answer stays unbiased.
        generator: source of the signs.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> field = rnn_field(torch.zeros(1, 1), torch.zeros(1, 1), torch.full((1,), 30.0), "logistic")
    >>> rkhs_norm(field, 3, readout=torch.ones(1)).value.item()  # s·σ(30), s = 4 at L = 1/2
    3.99...
    """
    check_choice("method", method, ("exact", "stochastic"))
    check_count("order", order)
    field = tensor_field(rnn, total_variation=total_variation)
    weights, single = as_readout(readout, field)
    if method == "exact":
        return _finished(_exact_levels(field, weights, order), single, order)
    if relative_error is not None:
        check_positive("relative_error", relative_error)
        require(draws is None, "expected draws or relative_error", "got both")
        draws = _needed_draws(field, weights, order, relative_error, generator)
    count = 1000 if draws is None else draws
    check_count("draws", count, least=2)
    parts = [part.mT for part in _sampled(field, weights, order, count, generator)]
    return _finished(torch.cat(parts, dim=-1), single, order, draws=count)


def as_readout(readout: Tensor | nn.Linear | None, field: TensorField) -> tuple[Float[Tensor, "output hidden"], bool]:
    """Bring a read-out to ``(outputs, e)`` in the field's dtype, and say whether it was a single vector."""
    if readout is None:
        return torch.eye(field.hidden_size, dtype=field.like.dtype, device=field.like.device), False
    weights = readout.weight if isinstance(readout, nn.Linear) else readout
    good = weights.ndim in (1, 2) and weights.shape[-1] == field.hidden_size
    require(
        good, f"expected a readout ({field.hidden_size},) or (outputs, {field.hidden_size})", f"got {weights.shape}"
    )
    return weights.to(field.like.dtype).reshape(-1, field.hidden_size), weights.ndim == 1


def _exact_levels(field: TensorField, readout: Tensor, order: int) -> Tensor:
    levels = []
    for k, ending in enumerate(products_ending_in_time(field, order), start=1):
        words = ending.reshape(-1, field.state_size)[:, : field.hidden_size]
        levels.append(((words @ readout.mT) / math.factorial(k)).square().sum(0))
    return torch.stack(levels)[..., None]


def _sampled(
    field: TensorField, readout: Tensor, order: int, draws: int, generator: torch.Generator | None
) -> Iterator[Float[Tensor, "level output draw"]]:
    """Draw in sweeps that stay in the processor's reach; a graph, where one is built, keeps them all."""
    sweep = max(1, LARGEST_SWEEP // (2**order * field.state_size))
    for start in range(0, draws, sweep):
        signs = draw_signs(field, min(sweep, draws - start), order, generator)
        yield level_draws(field, readout, signs)


def _needed_draws(
    field: TensorField, readout: Tensor, order: int, relative_error: float, generator: torch.Generator | None
) -> int:
    with torch.no_grad():
        parts = [part.mT for part in _sampled(field, readout, order, PILOT_DRAWS, generator)]
        totals = torch.cat(parts, dim=-1).sum(0)
        mean = totals.mean(-1)
        spread = torch.where(mean > 0, totals.std(-1) / mean, torch.zeros_like(mean)).max()
    # The pilot's spread is itself uncertain: a fifth more draws keeps the error asked for in most cases.
    return max(LEAST_DRAWS, math.ceil(1.2 * float(spread / relative_error) ** 2))


def _finished(draws_by_level: Tensor, single: bool, order: int, draws: int = 0) -> RKHSNorm:
    """Take means and errors over the last axis, the draws."""
    levels = draws_by_level.mean(-1)
    variance = torch.zeros_like(levels[0])
    if draws:
        variance = draws_by_level.detach().sum(0).var(-1)
    error = (variance / max(draws, 1)).sqrt()
    pick = (lambda values: values[..., 0]) if single else (lambda values: values)
    return RKHSNorm(
        squared=pick(levels.sum(0)),
        levels=pick(levels),
        standard_error=pick(error),
        variance=pick(variance),
        draws=draws,
        order=order,
        method="stochastic" if draws else "exact",
    )

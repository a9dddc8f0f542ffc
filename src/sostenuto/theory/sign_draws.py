"""One nested derivative along random signs instead of all (d+1)^k words: its square is right in the mean.

For independent sign vectors z_1 … z_k, F^{z1} ⋆ … ⋆ F^{zk} = Σ_w z_w F^w, and E z_w z_v is 1 if w = v, else 0: the mean
of the square is the sum of the squares over all words. A word ends in time (``docs/errata.md``, fermanian2021.5), so
its last sign is left out. The coefficients of all subsets of t_1 … t_{N−1} come out of one sweep; each subset of k − 1
of them is a draw for level k, and the mean over these subsets is taken.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.theory.nested_derivative import star_product
from sostenuto.theory.tensor_field import RNNField, TensorField


def draw_signs(field: TensorField, draws: int, order: int, generator: torch.Generator | None) -> Tensor:
    """Draw sign vectors, ``(draws, order − 1, d + 1)``."""
    bits = torch.randint(0, 2, (draws, order - 1, field.letters), generator=generator)
    return (2 * bits - 1).to(field.like)


def level_draws(
    field: TensorField, readout: Float[Tensor, "output hidden"], signs: Float[Tensor, "draw letter d"]
) -> Float[Tensor, "level draw output"]:
    """Return unbiased draws of ‖α_k‖² for k = 1 … N, of which α_k = F^w/k! read out, from N − 1 sign vectors each."""
    order = signs.shape[1] + 1
    if not isinstance(field, RNNField):
        return torch.stack([_nested_draws(field, readout, signs, k) for k in range(1, order + 1)])
    totals = [readout.new_zeros(len(signs), len(readout)) for _ in range(order)]
    for subset, expansion in enumerate(_subset_expansions(field, signs)):
        size = subset.bit_count()
        weight = field.scale / math.factorial(size + 1)
        share = 1 / math.comb(order - 1, size)
        totals[size] = totals[size] + share * (weight * expansion[0] @ readout.mT) ** 2
    return torch.stack(totals)


def _nested_draws(field: TensorField, readout: Tensor, signs: Tensor, k: int) -> Tensor:
    time = torch.zeros_like(signs[:, :1])
    time[..., -1] = 1
    values = star_product(field, torch.cat([signs[:, : k - 1], time], dim=1))
    return (values[:, : field.hidden_size] @ readout.mT / math.factorial(k)) ** 2


def _subset_expansions(field: RNNField, signs: Tensor) -> list[Tensor]:
    """Return the coefficients of σ, σ′, … for every subset of t_1 … t_n, read as the bits of its place in the list.

    Entry S is ``(derivative, draw, hidden)`` with as many derivatives as larger subsets still need. The recursion is
    that of the closed one over words: the block of the last letter of S is split off.
    """
    count = signs.shape[1]
    start = field.activation.derivatives(field.bias, count)
    expansions, blocks = [start.unsqueeze(1).expand(-1, len(signs), -1)], [signs.new_zeros(())]
    for j in range(count):
        time, channels = field.scale * signs[:, j, -1:], signs[:, j, :-1]
        moved = torch.stack([expansion[0] for expansion in expansions]) * time
        fresh = list((moved.flatten(0, 1) @ field.recurrent.mT).unflatten(0, (len(moved), -1)))
        fresh[0] = fresh[0] + channels @ field.input_map.mT
        blocks += fresh
        expansions += [_sum_over_subsets(expansions, fresh, rest, count) for rest in range(2**j)]
    return expansions


def _sum_over_subsets(expansions: list[Tensor], fresh: list[Tensor], rest: int, count: int) -> Tensor:
    """Sum (σ^(m+1))_A ⊙ P_{A′ ∪ last} over the subsets A of ``rest``, A′ being what is left of it."""
    kept = count - rest.bit_count()
    subset, total = rest, None
    while True:
        above, block = expansions[subset][1 : kept + 1], fresh[rest ^ subset]
        total = above * block if total is None else torch.addcmul(total, above, block)
        if subset == 0:
            return total
        subset = (subset - 1) & rest

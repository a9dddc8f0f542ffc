"""Star products F^{i1} ⋆ … ⋆ F^{ik}, the coefficients of a network's expansion in the signature (fermanian2021).

F ⋆ G = J(G) F is the derivative of G along F, taken from right to left. Each word's product is the coefficient of
t_1⋯t_k in k steps x_j = x_{j−1} + t_j F^{ij}(x_{j−1}) from H̄_0, where t_j² = 0; the coefficient of a subset of the t is
the product of that part of the word. All columns but time's are constant, so a word of two or more letters counts only
when its last letter is time (``docs/errata.md``, fermanian2021.5); tensors here that say "ending in time" leave that
letter out.
"""

from itertools import combinations, product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_count, require
from sostenuto.theory.nested_derivative import star_product
from sostenuto.theory.tensor_field import RNNField, TensorField, tensor_field

LARGEST = 2**27
"""Numbers that one level may have: a gibibyte in float64."""


def star_products(rnn: Any, order: int, *, total_variation: float = 0.5) -> tuple[Float[Tensor, "..."], ...]:
    """Return F^{i1} ⋆ … ⋆ F^{ik}(H̄_0) for every word of k = 1 … ``order`` letters.

    Level k has the shape (d+1, …, d+1, n+d): one axis a letter, first letter first, then the coordinates of H̄. An
    RNN's come from a closed recursion, those of any other field from nested forward derivatives. ``total_variation`` is
    that of a layer; a `TensorField` brings its own. Reference: fermanian2021, definition 2.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> u = torch.tensor([[2.0]])
    >>> levels = star_products(rnn_field(u, torch.ones(1, 1), torch.ones(1), "identity"), 2)
    >>> levels[0].tolist()  # the letter x, then time: s·b = 4
    [[0.0, 1.0], [4.0, 0.0]]
    >>> levels[1].tolist()  # x-time: s·V = 4; time-time: s·U·(s·b) = 32
    [[[0.0, 0.0], [4.0, 0.0]], [[0.0, 0.0], [32.0, 0.0]]]
    """
    field = tensor_field(rnn, total_variation=total_variation)
    full = field.state_size + field.input_size
    levels = [field.columns(field.start()).mT]
    for k, ending in enumerate(products_ending_in_time(field, order)[1:], start=2):
        level = ending.new_zeros(*(field.letters,) * k, full)
        index = torch.tensor(field.letters - 1, device=level.device)
        padded = torch.nn.functional.pad(ending, (0, field.input_size))
        levels.append(level.index_copy(k - 1, index[None], padded.unsqueeze(-2)))
    return tuple(levels)


def products_ending_in_time(field: TensorField, order: int) -> list[Float[Tensor, "..."]]:
    """Return, for k = 1 … ``order``, the words ending in time: (d+1, …, d+1, n) with k − 1 letters."""
    check_count("order", order)
    size = field.letters ** (order - 1) * field.state_size
    require(
        size <= LARGEST,
        f"expected at most {LARGEST} numbers in a level",
        f"got {size} at order {order} with {field.letters} letters and {field.state_size} states",
        'lower the order, or take method="stochastic" for a norm',
    )
    if isinstance(field, RNNField):
        return _closed_recursion(field, order)
    return [_by_nesting(field, k) for k in range(1, order + 1)]


def _closed_recursion(field: RNNField, order: int) -> list[Tensor]:
    """Expand σ^(m)(U h + V x + b) in words of n letters, m + n < order, the block of the last letter split off.

    With P_B the coefficient of U h + V x for the letters of B, the coefficient of σ^(m) for the letters 1 … n is
    Σ_A (σ^(m+1))_A ⊙ P_{{1…n} − A} over the subsets A of 1 … n−1. P_B is 0 when B has several letters and its last is
    not time.
    """
    values = field.activation.derivatives(field.bias, order - 1)
    expansions = [[value] for value in values]
    products, blocks = [field.scale * values[0]], []
    for n in range(1, order):
        blocks.append(products[-1] @ field.recurrent.mT)
        for m in range(order - n):
            above = expansions[m + 1]
            by_channel = above[n - 1].unsqueeze(-2) * field.input_map.mT
            by_time = _sum_over_subsets(above, blocks, n)
            expansions[m].append(torch.cat([by_channel, by_time.unsqueeze(-2)], dim=-2))
        products.append(field.scale * expansions[0][n])
    return products


def _sum_over_subsets(above: list[Tensor], blocks: list[Tensor], n: int) -> Tensor:
    """Sum over A ⊆ {1 … n−1}: ``above[|A|]`` on the letters of A times the block of the others and time."""
    total: Any = 0
    for size in range(n):
        for chosen in combinations(range(n - 1), size):
            rest = [position for position in range(n - 1) if position not in chosen]
            total = total + _spread(above[size], chosen, n - 1) * _spread(blocks[len(rest)], rest, n - 1)
    return total


def _spread(values: Tensor, positions: Any, axes: int) -> Tensor:
    """Place the letter axes of ``values`` at ``positions`` among ``axes`` and let the others broadcast."""
    shape = [1] * axes
    for axis, position in enumerate(positions):
        shape[position] = values.shape[axis]
    return values.reshape(*shape, values.shape[-1])


def _by_nesting(field: TensorField, k: int) -> Tensor:
    letters = field.letters
    basis = torch.eye(letters, dtype=field.like.dtype, device=field.like.device)
    words = [[*word, letters - 1] for word in product(range(letters), repeat=k - 1)]
    values = star_product(field, basis[torch.tensor(words, device=basis.device)])
    return values[:, : field.state_size].reshape(*(letters,) * (k - 1), field.state_size)

"""The step-N Taylor expansion of a network: a linear function of its input's signature (fermanian2021, section 2.3)."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.theory.rkhs import as_readout
from sostenuto.theory.signature import Paths, as_points, signature
from sostenuto.theory.star_product import products_ending_in_time
from sostenuto.theory.tensor_field import tensor_field


def taylor(
    rnn: Any, path: Paths, order: int, *, total_variation: float = 0.5, prefixes: bool = False
) -> Float[Tensor, "*batch hidden"]:
    """Return the step-N Taylor expansion of the state at the end of ``path``, or at every point of it.

    H^N = H_0 + Σ_{k=1}^N 1/k! Σ_w S^w(X̄)·F^w(H̄_0), in float64. Reference: fermanian2021, section 2.3 and, for every
    point (the sequence-to-sequence form), eq. (14).

    Args:
        rnn: a ResidualRNN with a smooth activation, a ResidualGRU or ResidualLSTM, or a `TensorField`.
        path: x_1 … x_T as a layer reads them: ``(time, channel)``, ``(batch, time, channel)``, or ragged. X goes
            evenly and linearly from the origin through these points.
        order: N ≥ 1.
        total_variation: L, of a layer; a `TensorField` brings its own.
        prefixes: give the state at every point, ``(…, time, hidden)``.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> field = rnn_field(torch.ones(1, 1), torch.zeros(1, 1), torch.ones(1), "identity")  # h′ = h + 1
    >>> [round(taylor(field, torch.zeros(3, 1), order).item(), 3) for order in (1, 2, 3, 9)]  # to e − 1
    [1.0, 1.5, 1.667, 1.718]
    """
    field = tensor_field(rnn, total_variation=total_variation)
    points, lengths, single = as_points(path)
    paths = [each[:length].to(field.like) for each, length in zip(points, lengths.tolist(), strict=True)]
    same = len(set(lengths.tolist())) == 1
    levels = signature(
        torch.stack(paths) if same else paths,
        order,
        normalization="none",
        prefixes=prefixes,
        basepoint=True,
        total_variation=field.total_variation,
    )
    state: Any = 0
    for k, ending in enumerate(products_ending_in_time(field, order), start=1):
        words = ending.reshape(-1, field.state_size)[:, : field.hidden_size]
        state = state + levels[k][..., -1].reshape(*levels.leading, -1) @ words
    return state[0] if single else state


def coefficients(
    rnn: Any, order: int, *, readout: Tensor | nn.Linear | None = None, total_variation: float = 0.5
) -> tuple[Float[Tensor, "output *letter"], ...]:
    """Return α_1 … α_N of theorem 1: α_k^w = ψ·Proj(F^w(H̄_0))/k!, of shape ``(outputs, d+1, …, d+1)``.

    The output of the network is ξ(X) = Σ_k ⟨α_k, X̄^k⟩ in the limit of small steps, X̄^k being the signature in the
    paper's normalization; α_0 is the read-out's bias. Only words ending in time are not 0. Reference: fermanian2021,
    theorem 1.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> field = rnn_field(torch.ones(1, 1), torch.ones(1, 1), torch.ones(1), "identity")
    >>> [alpha.tolist() for alpha in coefficients(field, 2, readout=torch.ones(1))]
    [[[0.0, 4.0]], [[[0.0, 2.0], [0.0, 8.0]]]]
    """
    field = tensor_field(rnn, total_variation=total_variation)
    weights, _ = as_readout(readout, field)
    result = []
    for k, ending in enumerate(products_ending_in_time(field, order), start=1):
        alpha = (ending[..., : field.hidden_size] @ weights.mT / math.factorial(k)).movedim(-1, 0)
        others = alpha.new_zeros(*alpha.shape, field.input_size)
        result.append(torch.cat([others, alpha.unsqueeze(-1)], dim=-1))
    return tuple(result)

"""Star products of any smooth field by nested forward derivatives, one nesting per letter."""

import warnings

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jvp, vmap

from sostenuto.theory.tensor_field import TensorField

LARGEST_BATCH = 2**20
"""Numbers that the states of the words of one sweep may have."""


def star_product(field: TensorField, directions: Float[Tensor, "word letter d"]) -> Float[Tensor, "word full"]:
    """Return F^{z1} ⋆ … ⋆ F^{zk}(H̄_0), F^z = Σ_i z_i F^i, for each row z_1 … z_k of ``directions``.

    A basis vector z_j takes one letter. The cost doubles with every letter; words are done side by side.
    Reference: fermanian2021, definition 2.

    >>> field = TensorField(lambda h, x: h + 1, 1, 1, 1, total_variation=0.5)
    >>> time = torch.tensor([0.0, 1.0], dtype=torch.float64)
    >>> star_product(field, torch.stack([time, time, time])[None]).tolist()  # s³
    [[64.0, 0.0]]
    """
    nested = vmap(lambda word: _nested(field, word)(field.start()))
    rows = max(1, LARGEST_BATCH // (2 ** directions.shape[1] * (field.state_size + field.input_size)))
    with warnings.catch_warnings():
        # torch's own first forward derivative scripts something and warns that scripting is deprecated.
        warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)
        return torch.cat([nested(part) for part in directions.split(rows)])


def _nested(field: TensorField, word: Float[Tensor, "letter d"]):
    def along(letter: int):
        return lambda state: field.columns(state) @ word[letter]

    value = along(len(word) - 1)
    for letter in range(len(word) - 2, -1, -1):
        value = _derivative(value, along(letter))
    return value


def _derivative(value, direction):
    """Give F ⋆ G = J(G) F as a function of the state."""
    return lambda state: jvp(value, (state,), (direction(state),))[1]

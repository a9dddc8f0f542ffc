"""Star products straight from definition 2 of fermanian2021: every word, nothing assumed of where it ends."""

import math
import warnings

import torch
from torch import Tensor
from torch.func import jacfwd, jacrev

from sostenuto.theory.tensor_field import TensorField


def all_words(field: TensorField, order: int) -> list[Tensor]:
    """Give level k = 1 … order as (letters, …, letters, full): T_{k+1}[i, …] = J(T_k[…])·F^i."""
    levels = [lambda state: field.columns(state).mT]
    for k in range(1, order):
        levels.append(_next(levels[-1], field, jacrev if k < 3 else jacfwd))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)
        return [level(field.start()) for level in levels]


def squared_norm(field: TensorField, order: int, readout: Tensor) -> Tensor:
    """Sum (ψ·F^w/k!)² over all words."""
    levels = all_words(field, order)
    return sum(
        ((level[..., : field.hidden_size] @ readout / math.factorial(k)) ** 2).sum()
        for k, level in enumerate(levels, start=1)
    )


def _next(level, field: TensorField, jacobian):
    return lambda state: torch.einsum("...j,ji->i...", jacobian(level)(state), field.columns(state))

"""The signature of piecewise linear paths to a level: check, choose a backend, apply."""

from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_choice, check_count
from sostenuto.ops.signature_levels.increments import path_increments
from sostenuto.ops.signature_levels.reference import signature_levels_reference

__all__ = ["BACKENDS", "path_increments", "signature_levels", "signature_size"]

BACKENDS = ("auto", "reference")


def signature_size(channels: int, level: int) -> int:
    """Count the numbers in levels 1 to ``level``: d + d² + … + d^N.

    >>> signature_size(2, 3)
    14
    """
    return sum(channels**k for k in range(1, level + 1))


def signature_levels(
    increments: Float[Tensor, "B T d"], level: int, *, prefixes: bool = False, backend: str = "auto"
) -> Float[Tensor, "B *T_size"]:
    """Give the iterated integrals of the path with these increments, levels 1 to N one after the other.

    Level k is ∫…∫_{u_1<…<u_k} dX ⊗ … ⊗ dX, (d,)*k flattened row by row: the usual normalization, without k!. Chen's
    identity S(X * Y) = S(X) ⊗ S(Y) and S(segment a) = exp(a) give it exactly. Result ``(B, d + … + d^N)``, or
    ``(B, T, d + … + d^N)`` of every prefix. Reference: paper 000, definition 1 (there multiplied by k!).

    >>> import torch
    >>> signature_levels(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]), 2).tolist()
    [[1.0, 2.0, 0.5, 2.0, 0.0, 2.0]]
    """
    check_count("level", level)
    check_choice("backend", backend, BACKENDS)
    return signature_levels_reference(increments, level, prefixes=prefixes)

"""The signature of piecewise linear paths to a level: check, choose a backend, apply."""

import importlib
import importlib.util

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import MissingExtraError, check_choice, check_count, require
from sostenuto.ops.signature_levels.increments import path_increments
from sostenuto.ops.signature_levels.reference import signature_levels_reference

__all__ = ["BACKENDS", "levels_backend", "path_increments", "signature_levels", "signature_size"]

BACKENDS = ("auto", "reference", "pysiglib")
HAS_PYSIGLIB = importlib.util.find_spec("pysiglib") is not None
"""Whether the extra ``signature`` is installed."""


def signature_size(channels: int, level: int) -> int:
    """Count the numbers in levels 1 to ``level``: d + d² + … + d^N.

    >>> signature_size(2, 3)
    14
    """
    return sum(channels**k for k in range(1, level + 1))


def levels_backend(requested: str, example: Tensor, *, prefixes: bool = False) -> str:
    """Settle ``"auto"``: pysiglib where it is installed and can do what is asked, the reference otherwise.

    pysiglib gives the whole path's signature in float32 or float64 on the CPU, and its gradient, but not a gradient's
    gradient and none in forward mode; so what is differentiated goes to the reference unless pysiglib is named.

    >>> levels_backend("auto", torch.zeros(1, 2, 3, requires_grad=True))
    'reference'
    """
    check_choice("backend", requested, BACKENDS)
    possible = example.device.type == "cpu" and example.dtype in (torch.float32, torch.float64) and not prefixes
    if requested == "auto":
        plain = possible and not example.requires_grad and not _looked_on(example)
        return "pysiglib" if HAS_PYSIGLIB and plain else "reference"
    if requested == "pysiglib":
        if not HAS_PYSIGLIB:
            raise MissingExtraError("pysiglib", "signature", "backend='pysiglib'")
        got = f"{example.dtype} on {example.device}" + (" with prefixes=True" if prefixes else "")
        require(possible, "expected whole paths in float32 or float64 on the CPU for pysiglib", f"got {got}")
    return requested


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
    if levels_backend(backend, increments, prefixes=prefixes) == "pysiglib":
        return _pysiglib(increments, level)
    return signature_levels_reference(increments, level, prefixes=prefixes)


def _looked_on(example: Tensor) -> bool:
    """Whether a compiler, a mapping or a forward-mode derivative follows this tensor: pysiglib knows none of them."""
    watched = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return watched or torch.autograd.forward_ad.unpack_dual(example).tangent is not None


def _pysiglib(increments: Tensor, level: int) -> Tensor:
    points = torch.nn.functional.pad(increments.cumsum(1), (0, 0, 1, 0)).contiguous()
    library = importlib.import_module("pysiglib.torch_api" if increments.requires_grad else "pysiglib")
    return library.sig(points, level, n_jobs=torch.get_num_threads())

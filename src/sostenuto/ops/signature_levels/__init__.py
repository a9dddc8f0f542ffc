"""The signature of piecewise linear paths to a level: check, choose a backend, apply."""

import importlib
import importlib.util

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import MissingExtraError, check_choice, check_count, require
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.dispatch import in_forward_mode
from sostenuto.ops.signature_levels.autograd import compiled_levels
from sostenuto.ops.signature_levels.increments import path_increments
from sostenuto.ops.signature_levels.reference import signature_levels_reference

__all__ = ["BACKENDS", "levels_backend", "path_increments", "signature_levels", "signature_size"]

BACKENDS = ("auto", "reference", "cpu", "pysiglib")
HAS_PYSIGLIB = importlib.util.find_spec("pysiglib") is not None
"""Whether the extra ``signature`` is installed."""


def signature_size(channels: int, level: int) -> int:
    """Count the numbers in levels 1 to ``level``: d + d² + … + d^N.

    >>> signature_size(2, 3)
    14
    """
    return sum(channels**k for k in range(1, level + 1))


def levels_backend(requested: str, example: Tensor, *, prefixes: bool = False) -> str:
    """Settle ``"auto"``: the compiled kernels for float32 and float64 on the CPU, the reference for everything else.

    The kernels have the gradient, of prefixes too; a gradient's gradient is the reference's, and so is what is
    differentiated in forward mode or goes through `torch.func`. pysiglib (extra ``signature``), where it is named,
    gives whole paths in float32 or float64 on the CPU, and their gradient.

    >>> levels_backend("auto", torch.zeros(1, 2, 3)), levels_backend("auto", torch.zeros(1, 2, 3).half())
    ('cpu', 'reference')
    """
    check_choice("backend", requested, BACKENDS)
    if requested == "pysiglib":
        if not HAS_PYSIGLIB:
            raise MissingExtraError("pysiglib", "signature", "backend='pysiglib'")
        possible = example.device.type == "cpu" and example.dtype in (torch.float32, torch.float64) and not prefixes
        got = f"{example.dtype} on {example.device}" + (" with prefixes=True" if prefixes else "")
        require(possible, "expected whole paths in float32 or float64 on the CPU for pysiglib", f"got {got}")
        return requested
    if in_forward_mode(example) or torch._C._are_functorch_transforms_active():
        require(
            requested != "cpu", "expected neither forward mode nor torch.func with backend='cpu'", "got one of them"
        )
        return "reference"
    return choose_backend(requested, example, built=("cpu",))


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
    chosen = levels_backend(backend, increments, prefixes=prefixes)
    if chosen == "pysiglib":
        return _pysiglib(increments, level)
    if chosen == "cpu":
        return compiled_levels(increments, level, prefixes)
    return signature_levels_reference(increments, level, prefixes=prefixes)


def _pysiglib(increments: Tensor, level: int) -> Tensor:
    points = torch.nn.functional.pad(increments.cumsum(1), (0, 0, 1, 0)).contiguous()
    library = importlib.import_module("pysiglib.torch_api" if increments.requires_grad else "pysiglib")
    return library.sig(points, level, n_jobs=torch.get_num_threads())

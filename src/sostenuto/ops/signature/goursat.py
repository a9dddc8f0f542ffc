"""The untruncated signature kernel, the solution of ∂²K/∂s∂t = ⟨ẋ_s, ẏ_t⟩ K, by pysiglib with its answers checked.

pysiglib expands the solution into polynomials on every pair of segments. Too low an order, or paths too long for
float64, give wrong numbers, NaN or 0 there without an error; here the order follows from the paths, and what cannot be
right is refused.
"""

import importlib
import math
import warnings
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError, MissingExtraError

LEAST_ORDER, HIGHEST_ORDER = 4, 64
TOLERANCE = 1e-14
_STATE_BYTES = 2**26


def goursat_kernel(left: Float[Tensor, "n S d"], right: Float[Tensor, "m R d"]) -> Float[Tensor, "n m"]:
    """Return K(X, Y) = Σ_k ⟨X^k, Y^k⟩ over all levels of the usual signature, from the increments of both paths.

    Reference: Cass, Lyons, Salvi and Yang, cited in fermanian2021, section 2.2. Needs the extra ``signature``.
    """
    order = solver_order(left, right)
    siglib = _pysiglib()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        matrix = siglib.sig_kernel_gram(
            _path(left), _path(right), method="polynomial", order=order, n_jobs=torch.get_num_threads()
        )
    return _checked(matrix, _length(left)[:, None], _length(right)[None])


def goursat_diagonal(increments: Float[Tensor, "n S d"]) -> Float[Tensor, " n"]:
    """Return K(X, X) of every path."""
    order = solver_order(increments, increments)
    path, length = _path(increments), _length(increments)
    siglib = _pysiglib()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        diagonal = siglib.sig_kernel(
            path, path.clone(), method="polynomial", order=order, n_jobs=torch.get_num_threads()
        )
    return _checked(diagonal, length, length, least=1.0)


def goursat_slopes(increments: Float[Tensor, "n S d"]) -> tuple[Float[Tensor, "n n"], Float[Tensor, "n n d"]]:
    """Return K(X, X) and its derivatives by the logarithm of a factor on each channel of both paths."""
    count, steps, channels = increments.shape
    order = solver_order(increments, increments)
    siglib = _pysiglib().torch_api
    rows, columns = torch.triu_indices(count, count)
    matrix, slopes = torch.empty(count, count, dtype=torch.float64), torch.empty(count, count, channels).double()
    chunk = max(1, _STATE_BYTES // (16 * (order + 1) * steps**2))
    for row, column in zip(rows.split(chunk), columns.split(chunk), strict=True):
        factor = torch.ones(len(row), 1, channels, dtype=torch.float64, requires_grad=True)
        values = siglib.sig_kernel(
            _path(increments[row]) * factor, _path(increments[column]) * factor, method="polynomial", order=order
        )
        (slope,) = torch.autograd.grad(values, factor, torch.ones_like(values))
        matrix[row, column] = matrix[column, row] = values.detach()
        slopes[row, column] = slopes[column, row] = slope[:, 0]
    length = _length(increments)
    return _checked(matrix, length[:, None], length[None]), slopes


def solver_order(left: Float[Tensor, "n S d"], right: Float[Tensor, "m R d"]) -> int:
    """Choose the polynomial degree P: the least with q^P/(P!)² ≤ 1e-14, q = longest segment × length of the other path.

    Along a segment a of X the coefficient of degree p is at most (‖a‖·‖Y‖_TV)^p/(p!)² times what was before it.

    >>> solver_order(torch.full((1, 3, 1), 0.1), torch.full((1, 3, 1), 0.1))
    6
    """
    if min(left.shape[1], right.shape[1]) == 0:
        return LEAST_ORDER
    segment = [float(torch.linalg.vector_norm(side, dim=-1).max()) for side in (left, right)]
    whole = [float(_length(side).max()) for side in (left, right)]
    q = max(segment[0] * whole[1], segment[1] * whole[0], 1e-300)
    for order in range(LEAST_ORDER, HIGHEST_ORDER + 1):
        if order * math.log(q) - 2 * math.lgamma(order + 1) <= math.log(TOLERANCE):
            return order
    raise InputError(
        "expected paths whose longest segment times the other's total variation is at most "
        f"{_longest():.0f} for the untruncated signature kernel, got {q:.4g}; scale the data down (a smaller scale), "
        "or give a level."
    )


def _longest() -> float:
    return math.exp((math.log(TOLERANCE) + 2 * math.lgamma(HIGHEST_ORDER + 1)) / HIGHEST_ORDER)


def _checked(values: Tensor, left: Tensor, right: Tensor, least: float = -math.inf) -> Tensor:
    """Refuse what is not finite, above the bound |K| ≤ I₀(2√(‖X‖_TV ‖Y‖_TV)), or below 1 on the diagonal."""
    reach = 2 * torch.sqrt(left * right)
    bound = torch.special.i0e(reach).log() + reach
    wrong = ~torch.isfinite(values) | (values.abs().log() > bound + 1e-6) | (values < least - 1e-9)
    if bool(wrong.any()):
        raise InputError(
            "expected signature kernels that float64 can hold, got an overflow or a diverged solution for "
            f"{int(wrong.sum())} of {wrong.numel()} pairs (total variation up to {float(left.max()):.4g} and "
            f"{float(right.max()):.4g}); scale the data down (a smaller scale), or give a level."
        )
    return values


def _length(increments: Tensor) -> Tensor:
    return torch.linalg.vector_norm(increments, dim=-1).sum(-1)


def _path(increments: Tensor) -> Tensor:
    """Sum increments to points, the origin first."""
    return torch.nn.functional.pad(increments.double().cumsum(1), (0, 0, 1, 0)).contiguous()


def _pysiglib() -> Any:
    try:
        return importlib.import_module("pysiglib")
    except ImportError as error:
        raise MissingExtraError("pysiglib", "signature", "The untruncated signature kernel") from error

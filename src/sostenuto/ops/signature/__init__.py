"""Signatures of piecewise linear paths and their inner products: check, choose a backend, apply."""

import importlib
import importlib.util

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import MissingExtraError, check_choice, check_count, require
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.dispatch import in_forward_mode
from sostenuto.ops.signature.autograd import compiled_levels
from sostenuto.ops.signature.reference import signature_kernel_reference, signature_levels_reference
from sostenuto.types import Lengths, Sequences

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
    """Return the iterated integrals of the path with these increments, levels 1 to N one after the other.

    Level k is ∫…∫_{u_1<…<u_k} dX ⊗ … ⊗ dX, (d,)*k flattened row by row: the usual normalization, without k!. Chen's
    identity S(X * Y) = S(X) ⊗ S(Y) and S(segment a) = exp(a) give it exactly. Result ``(B, d + … + d^N)``, or
    ``(B, T, d + … + d^N)`` of every prefix. Reference: fermanian2021, definition 1 (there multiplied by k!).

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


def signature_kernel_levels(
    left: Float[Tensor, "n S d"], right: Float[Tensor, "m R d"], level: int, *, backend: str = "auto"
) -> Float[Tensor, "n m levels"]:
    """Return ⟨X^k, Y^k⟩ for k = 0 … N of every pair of piecewise linear paths, from their increments.

    X^k is level k of the usual signature; the kernel of fermanian2021 is Σ_k (k!)² times these. Exact for piecewise
    linear paths: the terms 1/(p! q!) of segments that are met several times running are there. Time S·R·N³/3 a pair,
    memory R·N²: no tensor of d^N entries is formed. Shorter paths are padded with increments of 0, which change
    nothing.

    Computed in float64. The compiled backend has no gradient; tensors that ask for one go through the reference.

    >>> import torch
    >>> line = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
    >>> signature_kernel_levels(line, 3 * line, 2).tolist()  # 1, ⟨b, c⟩, ⟨b, c⟩²/(2!)²
    [[[1.0, 15.0, 56.25]]]
    """
    check_count("level", level)
    same = left.shape[2] == right.shape[2]
    require(same, f"expected paths of {left.shape[2]} channels on the right", f"got {right.shape[2]}")
    recorded = left.requires_grad or right.requires_grad
    if recorded or choose_backend(backend, left.double(), built=("cpu",)) == "reference":
        require(not recorded or backend != "cpu", "expected no gradient with backend='cpu'", "got requires_grad=True")
        return signature_kernel_reference(left.double(), right.double(), level)
    from sostenuto.ops.signature.cpu import kernel as cpu

    return cpu.forward(left, right, level, 0)[0]


def signature_kernel_slopes(
    left: Float[Tensor, "n S d"], right: Float[Tensor, "m R d"], level: int, scaled: int
) -> tuple[Float[Tensor, "n m levels"], Float[Tensor, "n m levels"]]:
    """Return ⟨X^k, Y^k⟩ and its derivative by the logarithm of a factor on the first ``scaled`` channels of both paths.

    >>> import torch
    >>> line = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
    >>> values, slopes = signature_kernel_slopes(line, line, 1, 1)  # 5 = s² + 4 at s = 1
    >>> values.tolist(), slopes.tolist()
    ([[[1.0, 5.0]]], [[[0.0, 2.0]]])
    """
    from sostenuto.ops.signature.cpu import kernel as cpu

    check_count("level", level)
    check_count("scaled", scaled)
    return cpu.forward(left, right, level, scaled)


def signature_kernel_diagonal(increments: Float[Tensor, "n S d"], level: int) -> Float[Tensor, "n levels"]:
    """Return ⟨X^k, X^k⟩ for k = 0 … N of every path.

    >>> import torch
    >>> signature_kernel_diagonal(torch.tensor([[[1.0, 2.0]]], dtype=torch.float64), 1).tolist()
    [[1.0, 5.0]]
    """
    from sostenuto.ops.signature.cpu import kernel as cpu

    check_count("level", level)
    return cpu.diagonal(increments, level)


def path_increments(
    points: Sequences, lengths: Lengths | None = None, *, basepoint: bool = False, time_scale: float | Tensor = 0.0
) -> Float[Tensor, "batch time _"]:
    """Return the increments a_t = x_t − x_{t−1} of each path, one for every point, zero past its length.

    The first increment is 0, so that the path begins at its first point; with ``basepoint`` it is x_1, so that the path
    begins at the origin. A ``time_scale`` τ other than 0 appends the channel τ·t, where t runs evenly from 0 to 1 over
    the segments of each path; a path of one point without basepoint stands still for that time.

    An increment of 0 changes no signature, which is why padding needs nothing else.

    >>> points = torch.tensor([[[1.0], [3.0], [2.0]]])
    >>> path_increments(points).flatten().tolist()
    [0.0, 2.0, -1.0]
    >>> path_increments(points, basepoint=True, time_scale=0.3)[0].tolist()
    [[1.0, 0.10...], [2.0, 0.10...], [-1.0, 0.10...]]
    """
    steps = points.shape[1]
    first = points[:, :1] if basepoint else torch.zeros_like(points[:, :1])
    increments = torch.cat([first, points.diff(dim=1)], dim=1)
    count = lengths if lengths is not None else torch.full((len(points),), steps)
    count = count.to(points.device)[:, None]
    order = torch.arange(steps, device=points.device)[None]
    increments = torch.where((order < count)[..., None], increments, torch.zeros_like(increments))
    if isinstance(time_scale, float) and time_scale == 0:
        return increments
    segments = count if basepoint else (count - 1).clamp(min=1)
    moving = (order < count) & ((order > 0) | torch.tensor(basepoint) | (count == 1))
    time = moving.to(points.dtype) / segments * time_scale
    return torch.cat([increments, time[..., None]], dim=-1)

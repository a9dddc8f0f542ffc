"""Inner products of signatures, level by level, without the tensors: check, choose a backend, apply."""

from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_count, require
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.signature_kernel.reference import signature_kernel_reference


def signature_kernel_levels(
    left: Float[Tensor, "n S d"], right: Float[Tensor, "m R d"], level: int, *, backend: str = "auto"
) -> Float[Tensor, "n m levels"]:
    """Give ⟨X^k, Y^k⟩ for k = 0 … N of every pair of piecewise linear paths, from their increments.

    X^k is level k of the usual signature; the kernel of paper 000 is Σ_k (k!)² times these. Exact for piecewise linear
    paths: the terms 1/(p! q!) of segments that are met several times running are there. Time S·R·N³/3 a pair, memory
    R·N²: no tensor of d^N entries is formed. Shorter paths are padded with increments of 0, which change nothing.

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
    from sostenuto.ops.signature_kernel import cpu

    return cpu.forward(left, right, level, 0)[0]


def signature_kernel_slopes(
    left: Float[Tensor, "n S d"], right: Float[Tensor, "m R d"], level: int, scaled: int
) -> tuple[Float[Tensor, "n m levels"], Float[Tensor, "n m levels"]]:
    """Give ⟨X^k, Y^k⟩ and its derivative by the logarithm of a factor on the first ``scaled`` channels of both paths.

    >>> import torch
    >>> line = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
    >>> values, slopes = signature_kernel_slopes(line, line, 1, 1)  # 5 = s² + 4 at s = 1
    >>> values.tolist(), slopes.tolist()
    ([[[1.0, 5.0]]], [[[0.0, 2.0]]])
    """
    from sostenuto.ops.signature_kernel import cpu

    check_count("level", level)
    check_count("scaled", scaled)
    return cpu.forward(left, right, level, scaled)


def signature_kernel_diagonal(increments: Float[Tensor, "n S d"], level: int) -> Float[Tensor, "n levels"]:
    """Give ⟨X^k, X^k⟩ for k = 0 … N of every path.

    >>> import torch
    >>> signature_kernel_diagonal(torch.tensor([[[1.0, 2.0]]], dtype=torch.float64), 1).tolist()
    [[1.0, 5.0]]
    """
    from sostenuto.ops.signature_kernel import cpu

    check_count("level", level)
    return cpu.diagonal(increments, level)

"""Solutions, exponentials and eigenvalues of matrices: torch's, and by products alone in a graph for ONNX.

ONNX has no operator for them. There the numbers are found in float64 by iterations whose every step is a product.
onnxruntime folds the first two into constants when it loads the file; eigenvalues, whose steps are one Scan, it finds
at every call: `torch.nn.utils.parametrize.remove_parametrizations` before the export spares that.
"""

import torch
from jaxtyping import Float
from torch import Tensor

NEWTON_STEPS = 48
"""Newton's steps for an inverse: enough for condition numbers up to 1e6."""
TERMS, HALVINGS = 18, 16
"""Terms of e^A for ‖A‖ ≤ 1, to float64's rounding; and halvings at most, for ‖A‖ ≤ 2¹⁶."""

SWEEPS = 10
"""Sweeps of Jacobi's rotations over all pairs; they converge quadratically, within 6 to 8."""


def solve(matrix: Float[Tensor, "*#n h h"], right: Float[Tensor, "*#n h k"]) -> Float[Tensor, "... h k"]:
    """Solve A X = B, with one A for every B or one for each.

    >>> solve(2 * torch.eye(2, dtype=torch.bfloat16), torch.ones(2, 1, dtype=torch.bfloat16)).flatten().tolist()
    [0.5, 0.5]
    """
    if in_onnx_graph():
        return (_inverse(matrix.double()) @ right.double()).to(right.dtype)
    wide = torch.promote_types(matrix.dtype, torch.float32)  # there is no factorization in half precision
    return torch.linalg.solve(matrix.to(wide), right.to(wide)).to(right.dtype)


def matrix_exp(matrix: Float[Tensor, "h h"]) -> Float[Tensor, "h h"]:
    """Compute e^A.

    >>> matrix_exp(torch.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if in_onnx_graph():
        return _exponential(matrix.double()).to(matrix.dtype)
    wide = torch.promote_types(matrix.dtype, torch.float32)
    return torch.linalg.matrix_exp(matrix.to(wide)).to(matrix.dtype)


def in_onnx_graph() -> bool:
    """Whether a graph for ONNX is being made.

    >>> in_onnx_graph()
    False
    """
    return torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export()  # which takes imports: asked last


def eigh(matrix: Float[Tensor, "h h"]) -> tuple[Float[Tensor, " h"], Float[Tensor, "h h"]]:
    """Find eigenvalues and eigenvectors of a symmetric matrix, for ONNX by Jacobi's rotations, in any order.

    >>> eigh(torch.diag(torch.tensor([2.0, 1.0])))[0].tolist()
    [1.0, 2.0]
    """
    return _rotated(matrix) if in_onnx_graph() else torch.linalg.eigh(matrix)


def _inverse(matrix: Tensor) -> Tensor:
    """Iterate X ← X(2I − AX) from Aᵀ/(‖A‖₁‖A‖_∞), which converges for every invertible A."""
    size = matrix.abs()
    norms = size.sum(-1).amax(-1) * size.sum(-2).amax(-1)
    inverse, twice = matrix.mT / norms[..., None, None], 2 * torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    for _ in range(NEWTON_STEPS):
        inverse = inverse @ (twice - matrix @ inverse)
    return inverse


def _exponential(matrix: Tensor) -> Tensor:
    """Sum the series of e^{A/2ˢ} and square it s times."""
    norm = matrix.abs().sum(-1).amax(-1)
    halvings = torch.log2(norm.clamp(min=1)).ceil().clamp(max=HALVINGS)
    scaled, identity = matrix / torch.exp2(halvings), torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    total = identity
    for term in range(TERMS, 0, -1):
        total = identity + scaled @ total / term
    for index in range(HALVINGS):
        total = torch.where(halvings > index, total @ total, total)
    return total


def _rotated(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Turn a symmetric matrix diagonal by Jacobi's rotations; of odd size, with a row of zeros that is never turned."""
    from torch._higher_order_ops.scan import scan

    size = matrix.shape[-1]
    square = torch.nn.functional.pad(matrix, (0, size % 2, 0, size % 2)).contiguous()
    identity, *others = _pairing(square)

    def step(now: tuple[Tensor, Tensor], _: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        square, vectors = _turned(*now, identity, *others)
        return (square, vectors), square[0].clone()

    rounds = matrix.new_zeros(SWEEPS * (len(square) - 1))
    (square, vectors), _ = scan(step, (square, identity.clone()), rounds)
    return (square * identity).sum(-1), vectors[:size]


def _pairing(square: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pair row i with the i-th from the end, and move all rows but the first on by one.

    In as many rounds as there are other rows every pair has met. Gives I, I turned over, the move, and the sign of a
    pair's first and second row.
    """
    even = square.shape[-1]
    identity = torch.eye(even, dtype=square.dtype)
    move = torch.cat([identity[:1], identity[1:].roll(1, 0)])
    sign = torch.where(torch.arange(even) < even // 2, 1.0, -1.0).to(square.dtype)
    return identity, identity.flip(0), move, sign


def _turned(
    square: Tensor, vectors: Tensor, identity: Tensor, across: Tensor, move: Tensor, sign: Tensor
) -> tuple[Tensor, Tensor]:
    """Rotate every pair so that its entry off the diagonal vanishes, by tan θ = ±b/(|a| + √(a² + b²)); then move on."""
    square = (square + square.mT) / 2  # or rounding would turn the two rows of a pair by different angles
    here, off = (square * identity).sum(-1), (square * across).sum(-1)
    half = (across @ here - here) / 2
    length = half.abs() + torch.sqrt(half * half + off * off)
    tangent = torch.where(half == 0, sign, half.sign()) * off / torch.where(length == 0, 1.0, length)
    cosine = torch.rsqrt(1 + tangent * tangent)
    rotation = (cosine[:, None] * identity + (tangent * cosine)[:, None] * across) @ move.mT
    return rotation.mT @ square @ rotation, vectors @ rotation

"""M x on the tensor cores, M held on the chip as the left factor: x rounded to tf32, or exactly, in two parts each.

The tensor cores cut float32 to the 11 bits of tf32. Rounding beforehand halves the error and takes its bias away. The
exact product cuts both factors into what tf32 keeps and the rest, itself kept to 11 bits, and leaves out the product of
the rests: an error of some 2⁻²¹, float32's own.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops._gpu.tanh import INTERPRETED

SPLIT = 2.0**13 + 1
"""x times this, less the difference of that and x, is x rounded to 11 bits (Dekker's splitting)."""
HALF, KEPT = tl.constexpr(0x1000), tl.constexpr(-0x2000)
"""Half of the last of the 11 bits of tf32, and the bits that tf32 keeps."""


def parts(matrix: Float[Tensor, "N K"], *, exact: bool) -> Float[Tensor, "..."]:
    """Round a matrix to tf32, or stack what tf32 keeps of it upon the rest.

    >>> kept, rest = parts(torch.tensor([[1.0001, -3.7]]), exact=True)
    >>> (kept + rest).tolist(), parts(torch.tensor([[1.0001]]), exact=False).item()
    ([[1.000100016593933, -3.700000047683716]], 1.0)
    """
    matrix = matrix.contiguous()
    far = SPLIT * matrix
    kept = far - (far - matrix)
    return torch.stack([kept, matrix - kept]) if exact else kept


@no_type_check
@triton.jit
def matrix(at, o_n, o_k, H, ROW, WITHOUT_DIAGONAL: tl.constexpr):
    """Load the rows ``o_n`` of a matrix of H columns as a left factor, with or without its diagonal."""
    o_k = tl.trans(o_k)
    m_nk = (o_n < H) & (o_k < H)
    if WITHOUT_DIAGONAL:
        m_nk = m_nk & (o_n != o_k)
    return tl.load(at + o_n * ROW + o_k, mask=m_nk, other=0.0)


@no_type_check
@triton.jit
def _nothing(b_like):
    """Give zeros that the compiler does not know to be zeros: it would add the sum inside the tensor cores."""
    if INTERPRETED:
        return tl.zeros_like(b_like)
    return tl.inline_asm_elementwise("mov.b32 $0, 0;", "=r,r", [b_like], dtype=tl.float32, is_pure=True, pack=1)


@no_type_check
@triton.jit
def product(b_m, b_rest, b_x, b_sum, EXACT: tl.constexpr):
    """Add M x to the sum; ``b_rest`` is the matrix's second part where the product is exact.

    The tensor cores cut what they add, always towards zero: a state carried through them for many steps would shrink.
    """
    b_bits = b_x.to(tl.int32, bitcast=True)
    if EXACT:
        b_kept = (b_bits & KEPT).to(tl.float32, bitcast=True)
        b_mx = tl.dot(b_rest, b_kept, acc=_nothing(b_sum), input_precision="tf32")
        b_mx = tl.dot(b_m, b_x - b_kept, acc=b_mx, input_precision="tf32")
        b_mx = tl.dot(b_m, b_kept, acc=b_mx, input_precision="tf32")
    else:
        b_round = ((b_bits + HALF) & KEPT).to(tl.float32, bitcast=True)
        b_round = tl.where(b_x == b_x, b_round, b_x)
        b_mx = tl.dot(b_m, b_round, acc=_nothing(b_sum), input_precision="tf32")
    return b_sum + b_mx

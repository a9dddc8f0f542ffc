"""tanh and its slope for Triton kernels, float32: short dependency chains, relative error below 1e-6.

|x| < 0.55: an odd polynomial. Beyond: tanh x = 1 − 2/(1 + e^{2x}). The caller gives
2·log₂(e)·x beside x: a scan has it from scaled weights, one multiplication earlier.
"""

import triton
import triton.language as tl

from sostenuto.ops import backend

INTERPRETED = tl.constexpr(backend.INTERPRETED)
BORDER = tl.constexpr(0.55)
TWO_LOG2E = tl.constexpr(2.885390081777927)
A3, A5 = tl.constexpr(-0.33332946635941113), tl.constexpr(0.13320725043716364)
A7, A9 = tl.constexpr(-0.052671812820810855), tl.constexpr(0.016437579911369165)


@triton.jit
def reciprocal(x):
    """Give 1/x to 1 ulp: one instruction on the GPU, a plain division under the interpreter."""
    if INTERPRETED:
        return 1.0 / x
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _near(x):
    u = x * x
    return x + x * u * (((u * A9 + A7) * u + A5) * u + A3)


@triton.jit
def tanh(x, scaled):
    """Compute tanh x, given also scaled = 2·log₂(e)·x."""
    r = reciprocal(tl.exp2(scaled) + 1.0)
    far = 1.0 - r * 2.0  # pyright: ignore[reportOperatorIssue]
    return tl.where(tl.abs(x) < BORDER, _near(x), far)


@triton.jit
def tanh_with_slope(x, scaled):
    """Compute tanh x and its derivative, given also scaled = 2·log₂(e)·x.

    The slope comes from exp(−2|x|), which keeps its relative accuracy where tanh is nearly 1.
    """
    e = tl.exp2(-tl.abs(scaled))
    r = reciprocal(e + 1.0)
    far = (1.0 - e) * r
    return tl.where(tl.abs(x) < BORDER, _near(x), tl.where(x < 0, -far, far)), 4.0 * e * r * r

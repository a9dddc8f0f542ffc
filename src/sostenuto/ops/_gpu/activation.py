"""The nonlinearities for Triton kernels, float32; the code of one is a compile-time constant."""

from typing import no_type_check

import triton
import triton.language as tl

from sostenuto.ops._gpu.tanh import TWO_LOG2E, tanh


@no_type_check
@triton.jit
def activate(b_a, b_bend, CODE: tl.constexpr):
    """Give σ(a); ``CODE`` is the place in `sostenuto.ops.activation.ACTIVATIONS`."""
    if CODE == 0:
        b_u = tanh(b_a, b_a * TWO_LOG2E)
    elif CODE == 1:
        b_u = tl.where(b_a < 0.0, 0.0, b_a)
    elif CODE == 2:
        b_u = tl.where(b_a < -1.0, -1.0, tl.where(b_a > 1.0, 1.0, b_a))
    elif CODE == 3:
        b_u = 0.5 + 0.5 * tanh(0.5 * b_a, 0.5 * b_a * TWO_LOG2E)
    elif CODE == 4:
        b_u = b_a
    elif CODE == 5:
        b_size = tl.abs(b_a) + b_bend
        b_size = tl.where((b_size < 0.0) | (b_a == 0.0), 0.0, b_size)
        b_u = tl.where(b_a < 0.0, -b_size, b_size)
    else:
        tl.static_assert(False, "an activation without a formula for Triton")
    return b_u


@no_type_check
@triton.jit
def slope(b_u, CODE: tl.constexpr):
    """Give σ′ from the value u = σ(a)."""
    if CODE == 0:
        b_s = 1.0 - b_u * b_u
    elif CODE == 2:
        b_s = tl.where(tl.abs(b_u) < 1.0, 1.0, 0.0)
    elif CODE == 3:
        b_s = b_u * (1.0 - b_u)
    elif CODE == 4:
        b_s = tl.zeros_like(b_u) + 1.0
    elif CODE == 1 or CODE == 5:
        b_s = tl.where(b_u == 0.0, 0.0, 1.0)
    else:
        tl.static_assert(False, "an activation without a slope for Triton")
    return b_s

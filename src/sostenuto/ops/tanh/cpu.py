"""tanh and its slope for Numba kernels: no branch and no call in them, so that the loop around them vectorises.

With m = e^{2|x|} − 1: tanh|x| = m/(m + 2) and 1 − tanh²x = 4(m + 1)/(m + 2)², both to full relative accuracy, also
where tanh is nearly 1. The README has the derivation and the errors found.
"""

import math
from typing import Any, no_type_check

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

_F = np.float32
LIMIT_32, ZERO_32, ONE_32, TWO_32, FOUR_32 = (_F(value) for value in (10, 0, 1, 2, 4))
LOG2E_32, MAGIC_32 = _F(1.4426950408889634), _F(1.5 * 2**23)
LN2_HIGH_32, LN2_LOW_32 = _F(0.693359375), _F(-2.12194440054690583e-4)
D2, D3, D4, D5, D6, D7 = (_F(1 / math.factorial(n)) for n in range(2, 8))

LIMIT_64 = 20.0
LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
MAGIC_64 = 1.5 * 2**52  # adding it rounds to a whole number and leaves that number in the low bits
C2, C3, C4, C5, C6, C7 = (1 / math.factorial(n) for n in range(2, 8))
C8, C9, C10, C11, C12, C13 = (1 / math.factorial(n) for n in range(8, 14))

_JIT: Any = {"fastmath": {"contract"}, "error_model": "numpy"}


def tanh(x: Any) -> Any:
    """Compute the hyperbolic tangent of a float; only compiled code can call it."""
    raise TypingError(f"tanh is for compiled kernels, got {type(x).__name__}")


def tanh_with_slope(x: Any) -> Any:
    """Compute the hyperbolic tangent of a float and its derivative; only compiled code can call it."""
    raise TypingError(f"tanh_with_slope is for compiled kernels, got {type(x).__name__}")


@no_type_check
@overload(tanh, jit_options=_JIT)
def _tanh(x):
    grown, zero, two = (_grown_32, ZERO_32, TWO_32) if x == types.float32 else (_grown_64, 0.0, 2.0)

    def compute(x):
        m = grown(x)
        value = m / (m + two)
        return -value if x < zero else value

    return compute


@no_type_check
@overload(tanh_with_slope, jit_options=_JIT)
def _tanh_with_slope(x):
    single = x == types.float32
    grown, zero, one, two, four = (
        (_grown_32, ZERO_32, ONE_32, TWO_32, FOUR_32) if single else (_grown_64, 0.0, 1.0, 2.0, 4.0)
    )

    def compute(x):
        m = grown(x)
        inverse = one / (m + two)
        value = m * inverse
        return (-value if x < zero else value), four * (m + one) * inverse * inverse

    return compute


def _grown_32(x: Any) -> Any:
    """Give e^{2|x|} − 1; only compiled code can call it."""
    raise TypingError(f"expected to be compiled, got {x}")


def _grown_64(x: Any) -> Any:
    """Give e^{2|x|} − 1; only compiled code can call it."""
    raise TypingError(f"expected to be compiled, got {x}")


@no_type_check
@overload(_grown_32, jit_options=_JIT)
def _grown_single(x):  # noqa: ARG001
    def compute(x):
        a = -x if x < ZERO_32 else x
        c = LIMIT_32 if a > LIMIT_32 else a
        c = c + c
        shifted = c * LOG2E_32 + MAGIC_32
        k = shifted - MAGIC_32
        r = (c - k * LN2_HIGH_32) - k * LN2_LOW_32
        tail = ((((D7 * r + D6) * r + D5) * r + D4) * r + D3) * r + D2
        grown = tail * r * r + r
        power = _power_of_two_32(shifted)  # pyright: ignore[reportCallIssue]
        return power * grown + (power - ONE_32)

    return compute


@no_type_check
@overload(_grown_64, jit_options=_JIT)
def _grown_double(x):  # noqa: ARG001
    def compute(x):
        a = -x if x < 0.0 else x
        c = LIMIT_64 if a > LIMIT_64 else a
        c = c + c
        shifted = c * LOG2E + MAGIC_64
        k = shifted - MAGIC_64
        r = (c - k * LN2_HIGH) - k * LN2_LOW
        high = ((((C13 * r + C12) * r + C11) * r + C10) * r + C9) * r + C8
        tail = (((((high * r + C7) * r + C6) * r + C5) * r + C4) * r + C3) * r + C2
        grown = tail * r * r + r
        power = _power_of_two_64(shifted)  # pyright: ignore[reportCallIssue]
        return power * grown + (power - 1.0)

    return compute


@no_type_check
def _exponent(width, bias, shift, kind, number):
    """Read k from the low bits of k + 1.5·2^p and write 2^k straight into an exponent."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        word = ir.IntType(width)
        biased = builder.add(builder.bitcast(arguments[0], word), ir.Constant(word, bias))
        return builder.bitcast(builder.shl(biased, ir.Constant(word, shift)), kind)

    return number(number), generate


@no_type_check
@intrinsic
def _power_of_two_32(typing_context, shifted):  # noqa: ARG001
    return _exponent(32, 127, 23, ir.FloatType(), types.float32)


@no_type_check
@intrinsic
def _power_of_two_64(typing_context, shifted):  # noqa: ARG001
    return _exponent(64, 1023, 52, ir.DoubleType(), types.float64)


@no_type_check
def tanh_of_vectors(builder, values, vector, size):
    """Write the instructions that compute the hyperbolic tangent of vectors, for loops written by hand."""
    single = size == 4
    limit, log2e, magic, high, low = (
        (LIMIT_32, LOG2E_32, MAGIC_32, LN2_HIGH_32, LN2_LOW_32)
        if single
        else (LIMIT_64, LOG2E, MAGIC_64, LN2_HIGH, LN2_LOW)
    )
    terms = (D7, D6, D5, D4, D3, D2) if single else (C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2)
    width, bias, shift = (32, 127, 23) if single else (64, 1023, 52)
    words = ir.VectorType(ir.IntType(width), vector.count)

    def each(number, kind=vector):
        return ir.Constant(kind, [number if kind is words else float(number)] * vector.count)

    def fused(one, other, added):
        flags = ("contract",)
        return builder.fadd(builder.fmul(one, other, flags=flags), added, flags=flags)

    def less(taken, one, other):
        flags = ("contract",)
        return builder.fsub(taken, builder.fmul(one, other, flags=flags), flags=flags)

    sign = each(1 << (width - 1), words)
    signs = [builder.and_(builder.bitcast(x, words), sign) for x in values]
    c = [builder.bitcast(builder.xor(builder.bitcast(x, words), s), vector) for x, s in zip(values, signs, strict=True)]
    c = [builder.select(builder.fcmp_ordered(">", a, each(limit)), each(limit), a) for a in c]
    c = [builder.fadd(a, a) for a in c]
    shifted = [fused(a, each(log2e), each(magic)) for a in c]
    k = [builder.fsub(a, each(magic)) for a in shifted]
    r = [less(less(a, n, each(high)), n, each(low)) for a, n in zip(c, k, strict=True)]
    tail = [each(terms[0])] * len(r)
    for term in terms[1:]:
        tail = [fused(t, a, each(term)) for t, a in zip(tail, r, strict=True)]
    grown = [fused(builder.fmul(t, a, flags=("contract",)), a, a) for t, a in zip(tail, r, strict=True)]
    power = [builder.add(builder.bitcast(a, words), each(bias, words)) for a in shifted]
    power = [builder.bitcast(builder.shl(n, each(shift, words)), vector) for n in power]
    m = [fused(p, g, builder.fsub(p, each(1))) for p, g in zip(power, grown, strict=True)]
    value = [builder.bitcast(builder.fdiv(a, builder.fadd(a, each(2))), words) for a in m]
    return [builder.bitcast(builder.or_(a, s), vector) for a, s in zip(value, signs, strict=True)]

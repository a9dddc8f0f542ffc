"""tanh and its slope for Numba kernels: no branch and no call in them, so that the loop around them vectorizes.

With m = (e^{2|x|} − 1)/2 and d = 1/(m + 1): tanh|x| = m·d and 1 − tanh²x = d(2 − d), both to full relative accuracy,
also where tanh is nearly 1. The README has the derivation and the errors found.
"""

import math
from typing import Any, NamedTuple, no_type_check

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


class _Form(NamedTuple):
    """What a size of numbers needs: where |x| is cut off, ln 2 in parts, the polynomial and the layout of its bits."""

    limit: float
    halves: tuple[float, ...]
    terms: tuple[float, ...]
    width: int
    mantissa: int


_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_FITTED = 2.0, 1.3333239555358887, 0.6666697263717651, 0.26771101355552673, 0.08894632011651993
_TAYLOR = tuple(2.0**n / math.factorial(n) for n in range(2, 14))
_FORMS = {
    4: _Form(10.0, (math.log(2) / 2,), _FITTED, 32, 23),
    8: _Form(20.0, (_LN2_HIGH / 2, _LN2_LOW / 2), _TAYLOR, 64, 52),
}
_FUSED = ("contract",)


@no_type_check
@intrinsic
def tanh(typing_context, x):  # noqa: ARG001
    """Compute the hyperbolic tangent of a float; only compiled code can call it."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return tanh_of_vectors(builder, arguments, arguments[0].type, x.bitwidth // 8)[0]

    return (x(x), generate) if x in types.real_domain else None


@no_type_check
@intrinsic
def tanh_with_slope(typing_context, x):  # noqa: ARG001
    """Compute the hyperbolic tangent of a float and its derivative; only compiled code can call it."""

    def generate(context, builder, signature, arguments):
        result = tanh_with_slope_of_vectors(builder, arguments, arguments[0].type, x.bitwidth // 8)
        return context.make_tuple(builder, signature.return_type, [part for (part,) in result])

    return (types.UniTuple(x, 2)(x), generate) if x in types.real_domain else None


@no_type_check
def tanh_of_vectors(builder, values, kind, size):
    """Write the instructions that compute the hyperbolic tangent of vectors, or of numbers, of so many bytes each."""
    one = _each(1.0, kind)
    grown = grown_by_half(builder, values, kind, size)
    results = [builder.fdiv(m, builder.fadd(m, one)) for m in grown]
    return _signed(builder, results, values, kind, size)


@no_type_check
def tanh_with_slope_of_vectors(builder, values, kind, size):
    """Write the instructions that compute the hyperbolic tangent of vectors, or of numbers, and its derivative."""
    one, two = _each(1.0, kind), _each(2.0, kind)
    grown = grown_by_half(builder, values, kind, size)
    rest = [builder.fdiv(one, builder.fadd(m, one)) for m in grown]
    ratios = [builder.fmul(m, d) for m, d in zip(grown, rest, strict=True)]
    slopes = [builder.fmul(d, builder.fsub(two, d)) for d in rest]
    return _signed(builder, ratios, values, kind, size), slopes


@no_type_check
def grown_by_half(builder, values, kind, size):
    """Give (e^{2|x|} − 1)/2, |x| cut off: all values a stage at a time, so that none waits for itself."""
    form = _FORMS[size]
    words = _words(kind, form.width)
    magic = _each(1.5 * 2**form.mantissa, kind)  # adding it rounds to a whole number, which is then in the low bits

    def fused(one, other, added):
        return builder.fadd(builder.fmul(one, other, flags=_FUSED), added, flags=_FUSED)

    limit, positive = _each(form.limit, kind), _each((1 << (form.width - 1)) - 1, words)
    a = [builder.bitcast(builder.and_(builder.bitcast(x, words), positive), kind) for x in values]
    a = [builder.select(builder.fcmp_ordered(">", part, limit), limit, part) for part in a]
    shifted = [fused(part, _each(2 / math.log(2), kind), magic) for part in a]
    k = [builder.fsub(part, magic) for part in shifted]
    h = a
    for half in form.halves:
        h = [fused(n, _each(-half, kind), part) for n, part in zip(k, h, strict=True)]
    square = [builder.fmul(part, part) for part in h]
    tail = None
    for at in range((len(form.terms) - 1) // 2 * 2, -1, -2):
        low, *high = form.terms[at : at + 2]
        pair = [fused(_each(high[0], kind), part, _each(low, kind)) if high else _each(low, kind) for part in h]
        tail = pair if tail is None else [fused(*each) for each in zip(tail, square, pair, strict=True)]
    grown = [fused(t, s, builder.fadd(part, part)) for t, s, part in zip(tail, square, h, strict=True)]
    bias = (1 << (form.width - form.mantissa - 2)) - 2  # one less than that of the format: half of the power
    shift, bias = _each(form.mantissa, words), _each(bias << form.mantissa, words)
    power = [builder.add(builder.shl(builder.bitcast(part, words), shift), bias) for part in shifted]
    power = [builder.bitcast(part, kind) for part in power]
    return [fused(p, g, builder.fsub(p, _each(0.5, kind))) for p, g in zip(power, grown, strict=True)]


@no_type_check
def _signed(builder, results, values, kind, size):
    """Give what was found the signs of the values."""
    width = _FORMS[size].width
    words = _words(kind, width)
    sign = _each(1 << (width - 1), words)
    signs = [builder.and_(builder.bitcast(x, words), sign) for x in values]
    joined = [builder.or_(builder.bitcast(part, words), s) for part, s in zip(results, signs, strict=True)]
    return [builder.bitcast(part, kind) for part in joined]


@no_type_check
def _words(kind, width):
    """Give the whole numbers that lie where those of ``kind`` do."""
    word = ir.IntType(width)
    return ir.VectorType(word, kind.count) if isinstance(kind, ir.VectorType) else word


@no_type_check
def _each(number: Any, kind: Any) -> Any:
    """Write a constant, the same in all places of a vector."""
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)

"""The adjoint of oscillator steps for Numba kernels: a few columns at a time, all that a step carries in registers.

A loop over columns inside one over steps reads and writes six rows that are carried from step to step, and waits for
them most of its time. Here the steps are the inner loop. It is written in LLVM's own instructions, as the products of
`panel_product`, because only that makes sure that what is carried stays in registers.
"""

from typing import no_type_check

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sostenuto.ops._cpu.compiled import procedure
from sostenuto.ops._cpu.panel_product import VECTOR_BYTES, VECTORS, broadcast, side_by_side, whole
from sostenuto.ops._cpu.prefetch import emit_prefetch
from sostenuto.ops._cpu.step_loop import step_loop

_TOGETHER = VECTORS // 2
"""Vectors that are walked at once: steps of one depend on each other, and those of another fill the gaps."""
WALK_BYTES = _TOGETHER * VECTOR_BYTES
"""Bytes of a row that are walked at once."""
_FUSED = ("contract",)


@no_type_check
def _walk(vectors, vector_bytes):
    """Make the walk of so many vectors; of one number, where a vector has no bytes."""

    @intrinsic
    def walk(typing_context, alpha, count, before, rows, strides, shared, carried):  # noqa: ARG001
        size = 4 if alpha == types.float32 else 8
        lanes = vector_bytes // size or 1

        def generate(context, builder, signature, arguments):  # noqa: ARG001
            alpha, count, before, *tuples = arguments
            lists = [cgutils.unpack_tuple(builder, values) for values in tuples]
            number = ir.FloatType() if size == 4 else ir.DoubleType()
            _generate(builder, ir.VectorType(number, lanes), size, vectors, alpha, count, before, *lists)
            return context.get_dummy_value()

        words = [types.UniTuple(types.intp, length) for length in (6, 6, 2, 6)]
        return types.void(alpha, types.intp, types.intp, *words), generate

    return walk


@no_type_check
def _generate(builder, vector, size, vectors, alpha, count, before, rows, strides, shared, carried):
    """Walk from the last of ``count`` steps to the first; what every argument is, `walk_backward` says."""
    width = size * vector.count
    alpha = broadcast(builder, alpha, vector, vector.count)
    read, write = side_by_side(builder, vector, size, vectors)
    weight, factor = (read(address) for address in shared)

    def step(index, states):
        at = builder.sub(builder.sub(count, whole(1)), index)
        out, rise, arriving, drive, stride, span = (
            builder.add(row, builder.mul(at, apart)) for row, apart in zip(rows, strides, strict=True)
        )
        out = builder.select(builder.icmp_signed(">", at, whole(0)), builder.sub(out, strides[0]), before)
        inputs = zip(*(read(address) for address in (out, rise, arriving, stride, span)), weight, factor, strict=True)
        beside = [whole(width * (vectors + v)) for v in range(vectors)]  # the next columns: their rows lie far apart
        emit_prefetch(builder, [builder.add(address, skip) for address in (out, rise, arriving) for skip in beside], 1)
        columns = zip(*states, inputs, strict=True)
        stepped = [_step_backward(builder, vector, alpha, given, *state) for *state, given in columns]
        write([cotangent for cotangent, _ in stepped], drive)
        return [list(parts) for parts in zip(*(after for _, after in stepped), strict=True)]

    states = step_loop(builder, vector, count, [read(address) for address in carried], step)
    for values, address in zip(states, carried, strict=True):
        write(values, address)


@no_type_check
def _step_backward(builder, vector, alpha, given, z, y_bar, z_bar, w_sum, g_sum, b_sum):
    """Give the drive's gradient x̄ = g z̄ (tanh² − 1), and what goes on to the step before."""
    y, value, arriving, g, span, weight, factor = given

    def times(one, other):
        return builder.fmul(one, other, flags=_FUSED)

    def plus(one, other):
        return builder.fadd(one, other, flags=_FUSED)

    def minus(one, other):
        return builder.fsub(one, other, flags=_FUSED)

    one = ir.Constant(vector, [1.0] * vector.count)
    force = plus(value, times(alpha, y))
    y_b = builder.fadd(y_bar, builder.fmul(arriving, factor))
    z_b = plus(z_bar, times(g, y_b))
    x_b = times(times(g, z_b), minus(times(value, value), one))
    w_sum = plus(w_sum, times(x_b, y))
    g_sum = plus(g_sum, times(span, minus(times(y_b, z), builder.fmul(z_b, force))))
    z = plus(z, times(g, force))
    y_bar = minus(plus(y_b, times(weight, x_b)), times(times(g, alpha), z_b))
    return x_b, (z, y_bar, z_b, w_sum, g_sum, plus(b_sum, x_b))


_walk_many, _walk_one, _walk_single = _walk(_TOGETHER, VECTOR_BYTES), _walk(1, VECTOR_BYTES), _walk(1, 0)


@no_type_check
@procedure
def walk_backward(alpha, size, columns, count, before, rows, strides, shared, carried):
    """Step ``columns`` numbers of ``size`` bytes back through ``count`` steps z ← z − g(tanh(…) + αy), y ← y + g z.

    All arrays are addresses. ``before`` is y before the first step. ``rows`` has, at the first step: y after it,
    tanh(…), the gradient that arrives at y, what takes the gradient of the drive, g and the time span; ``strides`` the
    bytes from a step to the next, 0 where all share a row. ``shared`` has w, and what the arriving gradient is
    multiplied by. ``carried`` has z, ȳ and z̄, and the sums of the gradients of w, g and b.
    """
    lanes = VECTOR_BYTES // size
    at = 0
    while at < columns:
        skip = at * size
        first = (rows[0] + skip, rows[1] + skip, rows[2] + skip, rows[3] + skip, rows[4] + skip, rows[5] + skip)
        held = (carried[0] + skip, carried[1] + skip, carried[2] + skip, carried[3] + skip, carried[4] + skip,
                carried[5] + skip)  # fmt: skip
        fixed = shared[0] + skip, shared[1] + skip
        if columns - at >= _TOGETHER * lanes:
            _walk_many(alpha, count, before + skip, first, strides, fixed, held)
            at += _TOGETHER * lanes
        elif columns - at >= lanes:
            _walk_one(alpha, count, before + skip, first, strides, fixed, held)
            at += lanes
        else:
            _walk_single(alpha, count, before + skip, first, strides, fixed, held)
            at += 1

"""Oscillator steps and their adjoint for Numba kernels, tanh included: all that a step carries in registers.

Some columns at a time run through a few steps. The loops are written in LLVM's own instructions, because one that is
vectorised by itself reads every constant of tanh from memory again, and prefetches no row.
"""

from functools import partial
from typing import no_type_check

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.panel_product import VECTOR_BYTES, VECTORS, broadcast, side_by_side, whole
from sostenuto.ops._cpu.prefetch import emit_prefetch
from sostenuto.ops._cpu.step_loop import step_loop
from sostenuto.ops._cpu.tanh import tanh_of_vectors, tanh_with_slope_of_vectors

STEPS = 4
"""Steps that columns run through before the next columns do; best of 2, 3, 4 and 8 forth, as good as 2 and 3 back."""
_FUSED = ("contract",)


@no_type_check
def _step_forward(builder, vector, size, alpha, weight, rows, states):
    """Give y and z after a step; the rows are the drive and g."""
    times, plus, minus = _arithmetic(builder)
    (drive, g), (y, z) = rows, states
    (value,) = tanh_of_vectors(builder, [plus(times(weight, y), drive)], vector, size)
    z = minus(z, times(g, plus(value, times(alpha, y))))
    y = plus(y, times(g, z))
    return y, (y, z)


@no_type_check
def _step_backward(builder, vector, size, alpha, weight, rows, states):
    """Give the drive's gradient, and what goes on to the step before.

    The rows are x, y, ō and g. A fifth is the time span, and then the sum of the drive's gradient is among the states.
    """
    times, plus, minus = _arithmetic(builder)
    (drive, y, arriving, g, *span), (z, y_bar, z_bar, w_sum, g_sum, *b_sum) = rows, states
    (value,), (slope,) = tanh_with_slope_of_vectors(builder, [plus(times(weight, y), drive)], vector, size)
    force = plus(value, times(alpha, y))
    y_b = plus(y_bar, arriving)
    z_b = plus(z_bar, times(g, y_b))
    pull = times(g, z_b)
    x_b = builder.fneg(times(pull, slope))
    if span:
        g_sum = plus(g_sum, times(*span, minus(times(y_b, z), times(z_b, force))))
    else:
        g_sum = minus(plus(g_sum, times(y_b, z)), times(z_b, force))
    y_bar = minus(plus(y_b, times(weight, x_b)), times(alpha, pull))
    z = plus(z, times(g, force))
    return x_b, (z, y_bar, z_b, plus(w_sum, times(x_b, y)), g_sum, *(plus(total, x_b) for total in b_sum))


@no_type_check
def _arithmetic(builder):
    """Give what multiplies, adds and subtracts; a product and a sum become one instruction."""
    return (partial(write, flags=_FUSED) for write in (builder.fmul, builder.fadd, builder.fsub))


@no_type_check
def _walk(vectors, vector_bytes, write_step, ahead, lengths, steps=None):
    """Make the walk of so many vectors; of one number, where a vector has no bytes.

    ``lengths`` says how many rows there are, the one that is written last, how many of them come from afar, and how
    many states. Those from afar are prefetched ``ahead`` steps before they are read; where it is negative, the last
    step is walked first. Where the number of ``steps`` is known, rows not from afar are the same for all, and a step's
    rows are read before the step before writes, or the machine may take one for what was just written, and wait for it.
    """
    count_of_rows, count_of_far, count_of_states = lengths

    @intrinsic
    def walk(typing_context, alpha, count, rows, strides, weight, carried):  # noqa: ARG001
        size = 4 if alpha == types.float32 else 8
        number, lanes = ir.FloatType() if size == 4 else ir.DoubleType(), vector_bytes // size or 1
        vector = ir.VectorType(number, lanes)

        def generate(context, builder, signature, arguments):  # noqa: ARG001
            alpha, count, rows, strides, weight, carried = arguments
            count = count if steps is None else whole(steps)
            rows, strides, carried = (cgutils.unpack_tuple(builder, values) for values in (rows, strides, carried))
            alpha = broadcast(builder, alpha, vector, lanes)
            read, write = side_by_side(builder, vector, size, vectors)
            weight = read(weight)
            staying = [] if steps is None else [read(address) for address in rows[count_of_far:-1]]

            def look(index):
                """Read the rows of a step, ask for those that come later, and say where it writes."""
                if ahead < 0:
                    index = builder.sub(builder.sub(count, whole(1)), index)
                *given, target = (
                    builder.add(row, builder.mul(index, stride)) for row, stride in zip(rows, strides, strict=True)
                )
                for address, stride in zip(given[:count_of_far], strides, strict=False):
                    far = builder.add(address, builder.mul(stride, whole(ahead)))
                    emit_prefetch(builder, [builder.add(far, whole(size * lanes * v)) for v in range(vectors)], 2)
                moving = given if steps is None else given[:count_of_far]
                return [read(address) for address in moving] + staying, target

            def step(given, target, states):
                """Step one vector after the other: the machine sees further than where all go a stage at a time."""
                each = zip(weight, zip(*given, strict=True), zip(*states, strict=True), strict=True)
                results = [write_step(builder, vector, size, alpha, *parts) for parts in each]
                write([written for written, _ in results], target)
                return list(zip(*(states for _, states in results), strict=True))

            states = [read(address) for address in carried]
            if steps is None:
                states = step_loop(builder, vector, count, states, lambda index, states: step(*look(index), states))
            else:
                coming = [look(whole(0))]
                for after in range(1, steps + 1):
                    coming += [look(whole(after))] if after < steps else []
                    states = step(*coming.pop(0), states)
            for values, address in zip(states, carried, strict=True):
                write(values, address)
            return context.get_dummy_value()

        words = [types.UniTuple(types.intp, length) for length in (count_of_rows, count_of_rows, count_of_states)]
        return types.void(alpha, types.intp, words[0], words[1], types.intp, words[2]), generate

    return walk


@no_type_check
@intrinsic
def _from(typing_context, addresses, at):  # noqa: ARG001
    """Go so many bytes on from all of the addresses."""

    def generate(context, builder, signature, arguments):
        addresses = [builder.add(address, arguments[1]) for address in cgutils.unpack_tuple(builder, arguments[0])]
        return context.make_tuple(builder, signature.return_type, addresses)

    return addresses(addresses, types.intp), generate


_FORWARD = _step_forward, STEPS, (3, 1, 2)
_forward_all, _forward_many, _forward_one, _forward_single = (
    _walk(VECTORS, VECTOR_BYTES, *_FORWARD, STEPS),
    _walk(VECTORS, VECTOR_BYTES, *_FORWARD),
    _walk(1, VECTOR_BYTES, *_FORWARD),
    _walk(1, 0, *_FORWARD),
)
_PLAIN, _BIASED, _SPANNED = ((_step_backward, -STEPS, lengths) for lengths in ((5, 3, 5), (5, 3, 6), (6, 3, 6)))
_plain_all, _biased_all, _biased_one, _biased_single = (
    _walk(1, VECTOR_BYTES, *_PLAIN, STEPS),
    _walk(1, VECTOR_BYTES, *_BIASED, STEPS),
    _walk(1, VECTOR_BYTES, *_BIASED),
    _walk(1, 0, *_BIASED),
)
_spanned_one, _spanned_single = _walk(1, VECTOR_BYTES, *_SPANNED), _walk(1, 0, *_SPANNED)


@no_type_check
@procedure
def walk_forward(alpha, x, g, has_time_stride, weight, states, out):
    """Step y and z through the steps of ``out``: z ← z − g(tanh(w y + x) + αy), y ← y + g z.

    ``x``, ``g`` and ``out`` have a row for each step, and columns side by side; where ``has_time_stride`` is 0, all
    steps share the first row of ``g``. ``states`` has the rows y and z.
    """
    size, (count, columns) = out.itemsize, out.shape
    rows, strides = (
        (x.ctypes.data, g.ctypes.data, out.ctypes.data),
        (x.strides[0], g.strides[0] * has_time_stride, out.strides[0]),
    )
    w, held = weight.ctypes.data, (states.ctypes.data, states.ctypes.data + states.strides[0])
    many, one, end = VECTORS * VECTOR_BYTES, VECTOR_BYTES, columns * size
    at = 0
    while not has_time_stride and count == STEPS and end - at >= many:
        _forward_all(alpha, count, _from(rows, at), strides, w + at, _from(held, at))
        at += many
    while end - at >= many:  # loops of their own: one for all would not keep the constants of each in registers
        _forward_many(alpha, count, _from(rows, at), strides, w + at, _from(held, at))
        at += many
    while end - at >= one:
        _forward_one(alpha, count, _from(rows, at), strides, w + at, _from(held, at))
        at += one
    while at < end:
        _forward_single(alpha, count, _from(rows, at), strides, w + at, _from(held, at))
        at += size


@no_type_check
@procedure
def walk_backward(alpha, x, before, arriving, has_time_stride, g, weight, states, sums, wants_bias, x_bar):
    """Step back through the steps of ``x_bar``, which takes the gradient of x, as the README of the scan derives it.

    All rows as in `walk_forward`: ``before`` is y before each step, ``arriving`` the gradient at y after it, whose
    first row is that of all steps unless it ``has_time_stride``. ``states`` has the rows z, ȳ and z̄, and ``sums``
    those of the gradients of w, g, the same for all steps, and x; the last may be left out where nobody ``wants_bias``.
    """
    size, (count, columns) = x_bar.itemsize, x_bar.shape
    rows = x.ctypes.data, before.ctypes.data, arriving.ctypes.data, g.ctypes.data, x_bar.ctypes.data
    strides = x.strides[0], before.strides[0], arriving.strides[0] * has_time_stride, 0, x_bar.strides[0]
    w, held, total = weight.ctypes.data, _rows_of(states), _rows_of(sums)
    end, at = columns * size, 0
    while count == STEPS and not wants_bias and end - at >= VECTOR_BYTES:
        _plain_all(alpha, count, _from(rows, at), strides, w + at, _from((*held, *total[:2]), at))
        at += VECTOR_BYTES
    while count == STEPS and end - at >= VECTOR_BYTES:
        _biased_all(alpha, count, _from(rows, at), strides, w + at, _from((*held, *total), at))
        at += VECTOR_BYTES
    while end - at >= VECTOR_BYTES:
        _biased_one(alpha, count, _from(rows, at), strides, w + at, _from((*held, *total), at))
        at += VECTOR_BYTES
    while at < end:
        _biased_single(alpha, count, _from(rows, at), strides, w + at, _from((*held, *total), at))
        at += size


@no_type_check
@procedure
def walk_backward_by_spans(alpha, x, before, arriving, has_time_stride, g, span, weight, states, sums, x_bar):
    """As `walk_backward` where g and the time span have a row for each step."""
    size, (count, columns) = x_bar.itemsize, x_bar.shape
    rows = (x.ctypes.data, before.ctypes.data, arriving.ctypes.data, g.ctypes.data, span.ctypes.data,
            x_bar.ctypes.data)  # fmt: skip
    strides = (x.strides[0], before.strides[0], arriving.strides[0] * has_time_stride, g.strides[0], span.strides[0],
             x_bar.strides[0])  # fmt: skip
    w, held = weight.ctypes.data, (*_rows_of(states), *_rows_of(sums))
    end, at = columns * size, 0
    while end - at >= VECTOR_BYTES:
        _spanned_one(alpha, count, _from(rows, at), strides, w + at, _from(held, at))
        at += VECTOR_BYTES
    while at < end:
        _spanned_single(alpha, count, _from(rows, at), strides, w + at, _from(held, at))
        at += size


@no_type_check
@njit(**OPTIONS)
def _rows_of(array):
    """Give the addresses of the first three rows."""
    first, stride = array.ctypes.data, array.strides[0]
    return first, first + stride, first + 2 * stride

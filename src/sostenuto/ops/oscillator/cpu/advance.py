"""Oscillator steps for Numba kernels: a few columns at a time, all that a step carries in registers.

As in `oscillator_adjoint` the steps are the inner loop, and it is written in LLVM's own instructions. What becomes of
the outputs is done while they are in registers: handed up to the next layer, or followed for their largest values.
"""

from typing import no_type_check

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sostenuto.ops._cpu.compiled import procedure
from sostenuto.ops._cpu.panel_product import VECTOR_BYTES, VECTORS, broadcast, side_by_side
from sostenuto.ops._cpu.step_loop import step_loop
from sostenuto.ops._cpu.tanh import tanh_of_vectors

_TOGETHER = VECTORS
"""Vectors that are walked at once: steps of one depend on each other, and those of another fill the gaps."""
_FUSED = ("contract",)


@no_type_check
def _walk(vectors, vector_bytes, has_layer_above):
    """Make the walk of so many vectors; of one number, where a vector has no bytes."""

    @intrinsic
    def walk(typing_context, alpha, count, rows, strides, shared, carried):  # noqa: ARG001
        size = 4 if alpha == types.float32 else 8
        lanes = vector_bytes // size or 1

        def generate(context, builder, signature, arguments):  # noqa: ARG001
            alpha, count, *tuples = arguments
            lists = [cgutils.unpack_tuple(builder, values) for values in tuples]
            number = ir.FloatType() if size == 4 else ir.DoubleType()
            _generate(builder, ir.VectorType(number, lanes), size, vectors, has_layer_above, alpha, count, *lists)
            return context.get_dummy_value()

        words = [types.UniTuple(types.intp, length) for length in (5, 5, 3, 4)]
        return types.void(alpha, types.intp, *words), generate

    return walk


@no_type_check
def _generate(builder, vector, size, vectors, has_layer_above, alpha, count, rows, strides, shared, carried):
    """Walk from the first of ``count`` steps to the last; what every argument is, `walk` says."""
    alpha = broadcast(builder, alpha, vector, vector.count)
    read, write = side_by_side(builder, vector, size, vectors)
    carried = carried[:2] if has_layer_above else carried
    weight, bias, factor = (read(address) for address in shared)

    def step(index, states):
        drive, stride, rise, out, above = (
            builder.add(row, builder.mul(index, apart)) for row, apart in zip(rows, strides, strict=True)
        )
        y, z, *peaks = states
        value, y, z = _advance(builder, vector, size, alpha, (y, z), (read(drive), read(stride), weight, bias))
        write(value, rise)
        write(y, out)
        if has_layer_above:
            write([builder.fmul(one, part) for one, part in zip(y, factor, strict=True)], above)
        else:
            peaks = _follow(builder, vector, y, *peaks)
        return y, z, *peaks

    states = step_loop(builder, vector, count, [read(address) for address in carried], step)
    for values, address in zip(states, carried, strict=True):
        write(values, address)


@no_type_check
def _advance(builder, vector, size, alpha, states, given):
    """Give tanh(w y + x + b), and the states after a step."""

    def times(ones, others):
        return [builder.fmul(one, other, flags=_FUSED) for one, other in zip(ones, others, strict=True)]

    def plus(ones, others):
        return [builder.fadd(one, other, flags=_FUSED) for one, other in zip(ones, others, strict=True)]

    def minus(ones, others):
        return [builder.fsub(one, other, flags=_FUSED) for one, other in zip(ones, others, strict=True)]

    (y, z), (drive, g, weight, bias) = states, given
    value = tanh_of_vectors(builder, plus(times(weight, y), plus(drive, bias)), vector, size)
    z = minus(z, times(g, plus(value, times([alpha] * len(y), y))))
    return value, plus(y, times(g, z)), z


@no_type_check
def _follow(builder, vector, values, largest, holders):
    """Take a step into the largest values so far and the number of steps that have them."""
    one = ir.Constant(vector, [1.0] * vector.count)
    rises = [builder.fcmp_ordered(">", *pair) for pair in zip(values, largest, strict=True)]
    holds = [builder.fcmp_ordered("==", *pair) for pair in zip(values, largest, strict=True)]
    most = [builder.select(*each) for each in zip(rises, values, largest, strict=True)]
    grown = [builder.select(same, builder.fadd(one, had), had) for same, had in zip(holds, holders, strict=True)]
    return most, [builder.select(rise, one, had) for rise, had in zip(rises, grown, strict=True)]


_below_many, _below_one, _below_single = (
    _walk(_TOGETHER, VECTOR_BYTES, True),
    _walk(1, VECTOR_BYTES, True),
    _walk(1, 0, True),
)
_peak_many, _peak_one, _peak_single = (
    _walk(_TOGETHER, VECTOR_BYTES, False),
    _walk(1, VECTOR_BYTES, False),
    _walk(1, 0, False),
)


@no_type_check
@procedure
def walk(alpha, size, columns, count, has_layer_above, rows, strides, shared, carried):
    """Step ``columns`` numbers of ``size`` bytes through ``count`` steps z ← z − g(tanh(…) + αy), y ← y + g z.

    All arrays are addresses. ``rows`` has, at the first step: the drive x, g, and what takes tanh(w y + x + b), y and,
    where it ``has_layer_above``, y for the layer above; ``strides`` the bytes from a step to the next, 0 where all
    share a row. ``shared`` has w, b, and what y is multiplied by for the layer above. ``carried`` has y and z and,
    where nothing is handed up, the largest y so far and how many steps have it.
    """
    lanes = VECTOR_BYTES // size
    at = 0
    while at < columns:
        skip = at * size
        first = (rows[0] + skip, rows[1] + skip, rows[2] + skip, rows[3] + skip, rows[4] + skip)
        fixed = shared[0] + skip, shared[1] + skip, shared[2] + skip
        held = carried[0] + skip, carried[1] + skip, carried[2] + skip, carried[3] + skip
        if columns - at >= _TOGETHER * lanes:
            if has_layer_above:
                _below_many(alpha, count, first, strides, fixed, held)
            else:
                _peak_many(alpha, count, first, strides, fixed, held)
            at += _TOGETHER * lanes
        elif columns - at >= lanes:
            if has_layer_above:
                _below_one(alpha, count, first, strides, fixed, held)
            else:
                _peak_one(alpha, count, first, strides, fixed, held)
            at += lanes
        else:
            if has_layer_above:
                _below_single(alpha, count, first, strides, fixed, held)
            else:
                _peak_single(alpha, count, first, strides, fixed, held)
            at += 1

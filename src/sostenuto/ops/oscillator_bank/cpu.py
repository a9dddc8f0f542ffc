"""The oscillator bank on the CPU: one block of `LANES` units walks through a sequence with all it keeps in registers.

The loop over steps is written in LLVM's own instructions: states, counts and products of a block stay in registers,
thresholds and coefficients come from the first-level cache, and no output is ever written.
"""

from typing import Any, no_type_check

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops._cpu.panel_product import broadcast, load, side_by_side, whole
from sostenuto.ops._cpu.parallel_for import parallel_for
from sostenuto.ops._cpu.threads import run_kernel
from sostenuto.ops._cpu.vector_loop import step_loop
from sostenuto.ops.oscillator_bank.bank import LANES, PARTS, THRESHOLDS, PackedBank

_OPTIONS = OPTIONS | {"fastmath": False}
_FUSED = ("contract",)
_NUMBER = ir.FloatType()
_VECTOR = ir.VectorType(_NUMBER, LANES)
_BYTES = 4 * LANES


@no_type_check
def _walk(kind, counts):
    """Make the loop over steps of one block: its units are of ``kind``, and ``counts`` thresholds are counted."""

    @intrinsic
    def walk(typing_context, steps, drive, inputs, block, state, output):  # noqa: ARG001
        words = types.intp
        pair = types.UniTuple(words, 2)
        signature = types.void(words, pair, types.UniTuple(words, 3), types.UniTuple(words, 6), words, words)

        def generate(context, builder, signature, arguments):  # noqa: ARG001
            steps, drive, inputs, block, state, output = arguments
            drive, inputs, block = (cgutils.unpack_tuple(builder, group) for group in (drive, inputs, block))
            _generate(builder, kind, counts, steps, drive, inputs, block, state, output)
            return context.get_dummy_value()

        return signature, generate

    return walk


@no_type_check
def _generate(builder, kind, counts, steps, drive, inputs, block, state, output):
    """Write the loop.

    ``drive`` is the address of the first step's values and the bytes to the next step; ``inputs`` those of the spans'
    indices, the bytes from one to the next, and of the spans; ``block`` those of the channels' offsets, their number,
    of the mix, of the coefficients with the bytes from one span's to the next, and of read-out and thresholds.
    """
    (values, stride), (index, index_stride, spans) = drive, inputs
    channels, channel_count, mix, table, table_stride, constants = block
    read, write = side_by_side(builder, _VECTOR, 4, 1)
    times, plus = _arithmetic(builder)

    def at(base, position):
        return read(builder.add(base, whole(_BYTES * position)))[0]

    def step(t, carried):
        (sr,), (si,), (vr,), (vi,), *above = carried
        row = builder.add(values, builder.mul(t, stride))

        def add_channel(c, total):
            offset = load(builder, builder.add(channels, builder.mul(c, whole(8))), ir.IntType(64), 8)
            value = broadcast(builder, load(builder, builder.add(row, offset), _NUMBER, 4), _VECTOR, LANES)
            weight = read(builder.add(mix, builder.mul(c, whole(_BYTES))))[0]
            return [[plus(total[0][0], times(weight, value))]]

        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        ((u,),) = step_loop(builder, _VECTOR, channel_count, [[zero]], add_channel)
        place = load(builder, builder.add(index, builder.mul(t, index_stride)), ir.IntType(32), 4)
        place = builder.sext(place, ir.IntType(64))
        span = load(builder, builder.add(spans, builder.mul(place, whole(4))), _NUMBER, 4)
        row = builder.add(table, builder.mul(place, table_stride))
        sr, si = _rotate(builder, (at(row, 0), at(row, 1)), (sr, si), (at(row, 2), at(row, 3)), (u, None))
        if kind == 0:
            y = plus(times(at(constants, 0), sr), times(at(constants, 1), si))
        else:
            entering = (sr, si)
            if kind == 2:
                square = plus(times(sr, sr), times(si, si))
                form = ir.FunctionType(_VECTOR, [_VECTOR])
                root = cgutils.get_or_insert_function(builder.module, form, f"llvm.sqrt.v{LANES}f32")
                entering = times(builder.call(root, [square]), at(constants, 2)), None
            vr, vi = _rotate(builder, (at(row, 4), at(row, 5)), (vr, vi), (at(row, 6), at(row, 7)), entering)
            y = plus(times(at(constants, 0), vr), times(at(constants, 1), vi))
        if not counts:
            write([y], builder.add(output, builder.mul(t, whole(_BYTES))))
            return [[sr], [si], [vr], [vi]]
        weight = broadcast(builder, span, _VECTOR, LANES)
        exceeds = [builder.fcmp_ordered(">", y, at(constants, PARTS + j)) for j in range(counts)]
        added = [
            [builder.fadd(total[0], builder.select(mask, weight, zero))]
            for mask, total in zip(exceeds, above, strict=True)
        ]
        return [[sr], [si], [vr], [vi], *added]

    places = [builder.add(state, whole(_BYTES * position)) for position in range(4 + counts)]
    carried = step_loop(builder, _VECTOR, steps, [read(place) for place in places], step)
    for value, place in zip(carried, places, strict=True):
        write(value, place)


@no_type_check
def _rotate(builder, factor, state, gain, entering):
    """Give λ s + φ u of complex numbers, each a pair of vectors; a real u has no second part."""
    times, plus = _arithmetic(builder)
    (a, b), (x, y), (p, q), (u, v) = factor, state, gain, entering
    real = plus(times(a, x), times(p, u))
    real = builder.fsub(real, times(b, y), flags=_FUSED)
    imaginary = plus(plus(times(b, x), times(a, y)), times(q, u))
    if v is not None:
        real = builder.fsub(real, times(q, v), flags=_FUSED)
        imaginary = plus(imaginary, times(p, v))
    return real, imaginary


@no_type_check
def _arithmetic(builder):
    """Give what multiplies and adds; a product and a sum become one instruction."""
    return (
        lambda left, right: builder.fmul(left, right, flags=_FUSED),
        lambda left, right: builder.fadd(left, right, flags=_FUSED),
    )


_count_single, _count_cascade, _count_envelope = (_walk(kind, THRESHOLDS) for kind in range(3))
_write_single, _write_cascade, _write_envelope = (_walk(kind, 0) for kind in range(3))


@no_type_check
@njit(**_OPTIONS)
def _advance(steps, drive, inputs, block, state, output):
    """Walk a block, a row of `PackedBank.plan`, through ``steps`` steps.

    Outputs are written where there is an address for them; elsewhere the time above thresholds is counted.
    """
    kind = block[0]
    rest = (block[2], block[3], block[4], block[5], block[6], block[7])
    if output:
        if kind == 0:
            _write_single(steps, drive, inputs, rest, state, output)
        elif kind == 1:
            _write_cascade(steps, drive, inputs, rest, state, output)
        else:
            _write_envelope(steps, drive, inputs, rest, state, output)
    elif kind == 0:
        _count_single(steps, drive, inputs, rest, state, 0)
    elif kind == 1:
        _count_cascade(steps, drive, inputs, rest, state, 0)
    else:
        _count_envelope(steps, drive, inputs, rest, state, 0)


@no_type_check
@njit(**_OPTIONS)
def _difference(values, index, spans, before, result):
    """Write slopes and their slopes, each over the span before a step; ``before`` has the last values and slopes.

    ``before`` (3, C): values, slopes, and how many steps came before, up to 2.
    """
    steps, channels = values.shape
    for t in range(steps):
        span = spans[index[t % len(index)]]
        for c in range(channels):
            x = values[t, c]
            slope = (x - before[0, c]) / span if before[2, c] > 0 else np.float32(0)
            result[0, t, c] = slope
            result[1, t, c] = (slope - before[1, c]) / span if before[2, c] > 1 else np.float32(0)
            before[0, c], before[1, c] = x, slope
            before[2, c] = min(before[2, c] + 1, np.float32(2))


@no_type_check
@njit(**_OPTIONS)
def _run(values, index, spans, plan, before, states, differences, output, stride):
    """Walk all blocks through the steps of ``values``, from ``before`` and ``states``, which are left at the end.

    ``output`` is the address of the first block's outputs, or 0 where the time above thresholds is counted, and
    ``stride`` the bytes from a block's to the next.
    """
    _difference(values, index, spans, before, differences)
    rows = (
        (values.ctypes.data, values.strides[0]),
        (differences[0].ctypes.data, differences.strides[1]),
        (differences[1].ctypes.data, differences.strides[1]),
    )
    inputs = (index.ctypes.data, index.strides[0] if len(index) > 1 else 0, spans.ctypes.data)
    state, row = states.ctypes.data, states.strides[0]
    for b in range(len(plan)):
        at = output + b * stride if output else 0
        _advance(len(values), rows[plan[b, 1]], inputs, plan[b], state + b * row, at)


@no_type_check
@njit(**_OPTIONS)
def _pool(values, borders, index, spans, plan, out, start, stop):
    """Write, for sequences ``start`` to ``stop``, the share of the time each unit spends above each threshold."""
    units, longest = out.shape[2], 0
    for n in range(start, stop):
        longest = max(longest, borders[n + 1] - borders[n])
    differences = np.empty((2, longest, values.shape[1]), np.float32)
    before = np.empty((3, values.shape[1]), np.float32)
    states = np.empty((len(plan), 4 + THRESHOLDS, LANES), np.float32)
    for n in range(start, stop):
        low, high = borders[n], borders[n + 1]
        mine = index if len(index) == 1 else index[low:high]
        before[:] = 0
        states[:] = 0
        _run(values[low:high], mine, spans, plan, before, states, differences, 0, 0)
        total = np.float32(0)
        for t in range(high - low):
            total += spans[mine[t % len(mine)]]
        for j in range(THRESHOLDS):
            for u in range(units):
                out[n, j, u] = states[u // LANES, 4 + j, u % LANES] / total


@no_type_check
@njit(**_OPTIONS)
def _pool_blocks(entry, threads, count, block, *arguments):
    parallel_for(_pool, entry, threads, count, block, arguments)


def pool(values: Any, borders: Any, index: Any, packed: PackedBank, out: Any) -> None:
    """Fill ``out`` (N, THRESHOLDS, U) with the shares of time above thresholds, on torch's number of threads."""
    arguments = (values, borders, index, packed.spans, packed.plan, out)
    run_kernel(_pool, _pool_blocks, arguments, len(out), max(1, min(16, len(out) // 8)))


@no_type_check
@njit(**_OPTIONS)
def write_outputs(values, borders, index, spans, plan, picked, out):
    """Fill ``out`` (picked, blocks, LANES) with every unit's output at the picked steps, which rise."""
    before = np.empty((3, values.shape[1]), np.float32)
    states = np.empty((len(plan), 4, LANES), np.float32)
    outputs = np.empty((len(plan), np.diff(borders).max(), LANES), np.float32)
    place = 0
    for n in range(len(borders) - 1):
        low, high = borders[n], borders[n + 1]
        differences = np.empty((2, high - low, values.shape[1]), np.float32)
        before[:] = 0
        states[:] = 0
        mine = index if len(index) == 1 else index[low:high]
        _run(values[low:high], mine, spans, plan, before, states, differences, outputs.ctypes.data, outputs.strides[0])
        while place < len(picked) and picked[place] < high:
            out[place] = outputs[:, picked[place] - low]
            place += 1


@no_type_check
@njit(**_OPTIONS)
def push(values, index, spans, plan, before, states, differences):
    """Walk on through the steps of ``values``; the time above thresholds grows in ``states``."""
    _run(values, index, spans, plan, before, states, differences, 0, 0)

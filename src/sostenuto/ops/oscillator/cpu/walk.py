"""Columns driven through steps, for Numba kernels: all that a step carries stays in registers.

Some columns at a time run through all the steps of a stretch. The loop is written in LLVM's own instructions: one that
is vectorized by itself reads every constant of tanh from memory again, and a loop over columns inside one over steps
reads and writes at every step what is carried.

Every walk is called with ``(alpha, size, columns, count, rows, strides, shared, carried)``: α, the bytes of a number,
columns, steps, and addresses. ``rows`` are those of the first step that a walk reads and, after them, that it writes;
``strides`` the bytes from a step to the next, 0 where all share a row. ``shared`` rows are read once. ``carried`` rows
are the states, read before the first step and written after the last.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, no_type_check

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sostenuto.ops._cpu.compiled import procedure
from sostenuto.ops._cpu.panel_product import VECTOR_BYTES, VECTORS, broadcast, side_by_side, whole
from sostenuto.ops._cpu.prefetch import emit_prefetch
from sostenuto.ops._cpu.vector_loop import Lanes, step_loop
from sostenuto.ops.oscillator.cpu.step import adjoint, advance, invert

STEPS = 4
"""Steps that columns of a scan run through before the next columns do; best of 2, 3, 4 and 8."""
PAIR_BYTES = VECTORS // 2 * VECTOR_BYTES
"""Bytes of a row that `walk_back` takes at once: steps of one vector wait for each other, another fills the gaps."""


class _Walk(NamedTuple):
    """How a formula is driven.

    ``formula`` takes α and lists of what is shared, read and carried; it gives lists of what is written and carried.
    ``reads`` and ``writes`` count rows, ``shared`` and ``carried`` what their names say. ``backward`` walks begin at
    the last step. The first ``far`` rows are prefetched: ``ahead`` steps before they are read, or else for the next
    columns. With ``unrolled`` steps there is a body of so many, for rows that come from afar alone and others that all
    steps share: it reads a step's rows before the step before writes, or the processor may take one for what was just
    written, and wait for it.
    """

    formula: Callable[..., tuple[Any, Any]]
    reads: int
    writes: int
    shared: int
    carried: int
    vectors: int = VECTORS
    backward: bool = False
    far: int = 0
    ahead: int = 0
    unrolled: int = 0
    unrolled_vectors: int = VECTORS


@no_type_check
def _body(walk, vectors, vector_bytes, unrolled=0):
    """Make the walk of so many vectors; of one number, where a vector has no bytes."""
    counts = (walk.reads + walk.writes, walk.reads + walk.writes, walk.shared, walk.carried)

    @intrinsic
    def body(typing_context, alpha, count, rows, strides, shared, carried):  # noqa: ARG001
        size = 4 if alpha == types.float32 else 8
        vector = ir.VectorType(ir.FloatType() if size == 4 else ir.DoubleType(), vector_bytes // size or 1)

        def generate(context, builder, signature, arguments):  # noqa: ARG001
            alpha, count, *addresses = arguments
            alpha = Lanes(builder, broadcast(builder, alpha, vector, vector.count), size)
            addresses = [cgutils.unpack_tuple(builder, each) for each in addresses]
            _generate(builder, walk, vector, size, vectors, unrolled, alpha, count, *addresses)
            return context.get_dummy_value()

        return types.void(alpha, types.intp, *(types.UniTuple(types.intp, length) for length in counts)), generate

    return body


@no_type_check
def _generate(builder, walk, vector, size, vectors, unrolled, alpha, count, rows, strides, shared, carried):
    """Write the instructions: read what is shared and carried, step, and write what is carried."""
    read_values, write_values = side_by_side(builder, vector, size, vectors)
    width = size * vector.count

    def read(address):
        return [Lanes(builder, value, size) for value in read_values(address)]

    def write(lanes, address):
        write_values([each.value for each in lanes], address)

    def look(index, moving):
        """Read a step's first ``moving`` rows, prefetch those of later steps or columns, and say where it writes."""
        if walk.backward:
            index = builder.sub(builder.sub(count, whole(1)), index)
        at = [builder.add(row, builder.mul(index, stride)) for row, stride in zip(rows, strides, strict=True)]
        for address, stride in zip(at[: walk.far], strides, strict=False):
            later = builder.add(address, builder.mul(stride, whole(walk.ahead)))
            first = 0 if walk.ahead else vectors
            places = [builder.add(later, whole(width * (first + v))) for v in range(vectors)]
            emit_prefetch(builder, places, 2 if walk.ahead else 1)
        return [read(address) for address in at[:moving]], at[walk.reads :]

    def step(inputs, targets, states):
        """Step one vector after the other: the processor sees further ahead than where all go a stage at a time."""
        each = zip(*(zip(*values, strict=True) for values in (fixed, inputs, states)), strict=True)
        results = [walk.formula(alpha, *parts) for parts in each]
        for values, target in zip(zip(*(written for written, _ in results), strict=True), targets, strict=True):
            write(values, target)
        return list(zip(*(after for _, after in results), strict=True))

    def looped(index, values):
        states = [[Lanes(builder, value, size) for value in part] for part in values]
        return [[each.value for each in part] for part in step(*look(index, walk.reads), states)]

    fixed, states = [read(address) for address in shared], [read(address) for address in carried]
    if unrolled:
        count, staying = whole(unrolled), [read(row) for row in rows[walk.far : walk.reads]]
        coming = [look(whole(0), walk.far)]
        for after in range(1, unrolled + 1):
            coming += [look(whole(after), walk.far)] if after < unrolled else []
            inputs, targets = coming.pop(0)
            states = step(inputs + staying, targets, states)
    else:
        values = [[each.value for each in part] for part in states]
        states = step_loop(builder, vector, count, values, looped)
        states = [[Lanes(builder, value, size) for value in part] for part in states]
    for part, address in zip(states, carried, strict=True):
        write(part, address)


@no_type_check
@intrinsic
def _from(typing_context, addresses, at):  # noqa: ARG001
    """Go so many bytes on from all of the addresses."""

    def generate(context, builder, signature, arguments):
        addresses = [builder.add(address, arguments[1]) for address in cgutils.unpack_tuple(builder, arguments[0])]
        return context.make_tuple(builder, signature.return_type, addresses)

    return addresses(addresses, types.intp), generate


@no_type_check
def _procedure(walk):
    """Make the walk over all columns: several vectors at a time, then one, then single numbers."""
    many, one, single = _body(walk, walk.vectors, VECTOR_BYTES), _body(walk, 1, VECTOR_BYTES), _body(walk, 1, 0)
    many_bytes = walk.vectors * VECTOR_BYTES

    # Loops of their own: one for all would not keep the constants of each in registers.
    @no_type_check
    def run(alpha, size, columns, count, rows, strides, shared, carried):
        at, end = 0, columns * size
        while end - at >= many_bytes:
            many(alpha, count, _from(rows, at), strides, _from(shared, at), _from(carried, at))
            at += many_bytes
        while end - at >= VECTOR_BYTES:
            one(alpha, count, _from(rows, at), strides, _from(shared, at), _from(carried, at))
            at += VECTOR_BYTES
        while at < end:
            single(alpha, count, _from(rows, at), strides, _from(shared, at), _from(carried, at))
            at += size

    rest = procedure(run)
    if not walk.unrolled:
        return rest
    steps, last, whole_bytes = walk.unrolled, walk.reads - 1, walk.unrolled_vectors * VECTOR_BYTES
    whole_steps = _body(walk, walk.unrolled_vectors, VECTOR_BYTES, steps)

    @no_type_check
    def run_unrolled(alpha, size, columns, count, rows, strides, shared, carried):
        at, end = 0, columns * size
        while count == steps and strides[last] == 0 and end - at >= whole_bytes:
            whole_steps(alpha, count, _from(rows, at), strides, _from(shared, at), _from(carried, at))
            at += whole_bytes
        rest(alpha, size, columns - at // size, count, _from(rows, at), strides, _from(shared, at), _from(carried, at))

    return procedure(run_unrolled)


def _scan(alpha: Lanes, shared: Any, inputs: Any, states: Any) -> tuple[Any, Any]:
    (weight,), (drive, g), (y, z) = shared, inputs, states
    _, y, z = advance(alpha, weight, drive, g, y, z)
    return (y,), (y, z)


def _lower(alpha: Lanes, shared: Any, inputs: Any, states: Any) -> tuple[Any, Any]:
    (weight, bias, factor), (drive, g), (y, z) = shared, inputs, states
    value, y, z = advance(alpha, weight, drive + bias, g, y, z)
    return (value, y, y * factor), (y, z)


def _top(alpha: Lanes, shared: Any, inputs: Any, states: Any) -> tuple[Any, Any]:
    (weight, bias), (drive, g), (y, z, largest, holders) = shared, inputs, states
    value, y, z = advance(alpha, weight, drive + bias, g, y, z)
    counted = y.where_equal(largest, holders + 1.0, holders)
    return (value, y), (y, z, largest.larger(y), largest.where_below(y, 1.0, counted))


def _inverse(alpha: Lanes, shared: Any, inputs: Any, states: Any) -> tuple[Any, Any]:
    (weight, bias), (drive, g), (y, z, y_peak, z_peak) = shared, inputs, states
    value, y_before, z_before = invert(alpha, weight, drive + bias, g, y, z)
    peaks = y_peak.larger(y_before).larger(-y_before), z_peak.larger(z_before).larger(-z_before)
    return (value, y, z), (y_before, z_before, *peaks)


def _scan_adjoint(alpha: Lanes, shared: Any, inputs: Any, states: Any) -> tuple[Any, Any]:
    (weight,), (drive, y, arriving, g, span) = shared, inputs
    return _with_sums(alpha, weight, y, (weight * y + drive).tanh(), arriving, g, span, states)


def _tile_adjoint(alpha: Lanes, shared: Any, inputs: Any, states: Any) -> tuple[Any, Any]:
    (weight, factor), (y, value, arriving, g, span) = shared, inputs
    return _with_sums(alpha, weight, y, (value, 1.0 - value * value), arriving * factor, g, span, states)


def _with_sums(
    alpha: Lanes, weight: Lanes, y: Lanes, activated: Any, arriving: Lanes, g: Lanes, span: Lanes, states: Any
) -> tuple[Any, Any]:
    *after, w_sum, g_sum, b_sum = states
    x_bar, g_bar, before = adjoint(alpha, weight, g, y, activated, arriving, tuple(after))
    return (x_bar,), (*before, w_sum + x_bar * y, g_sum + span * g_bar, b_sum + x_bar)


walk_scan = _procedure(_Walk(_scan, 2, 1, 1, 2, far=1, ahead=STEPS, unrolled=STEPS))
"""Reads the drive and g, writes y; shares w; carries y and z."""
walk_lower = _procedure(_Walk(_lower, 2, 3, 3, 2))
"""Reads the drive and g, writes tanh, y and y times a factor; shares w, b and the factor; carries y and z."""
walk_top = _procedure(_Walk(_top, 2, 2, 2, 4))
"""Reads the drive and g, writes tanh and y; shares w and b; carries y, z, the largest y and how many steps have it."""
walk_inverse = _procedure(_Walk(_inverse, 2, 3, 2, 4, vectors=PAIR_BYTES // VECTOR_BYTES, backward=True))
"""Reads the drive and g, writes tanh, y and z; shares w and b; carries y, z, and the largest |y| and |z|."""
walk_scan_back = _procedure(
    _Walk(_scan_adjoint, 5, 1, 1, 6, 1, backward=True, far=3, ahead=-STEPS, unrolled=STEPS, unrolled_vectors=1)
)
"""Reads the drive, y before, ȳ's arriving part, g and the span, writes x̄; shares w; carries z, ȳ, z̄ and sums."""
walk_back = _procedure(_Walk(_tile_adjoint, 5, 1, 2, 6, PAIR_BYTES // VECTOR_BYTES, backward=True, far=3))
"""As `walk_scan_back` with tanh in place of the drive; shares w and what the arriving gradient is multiplied by."""

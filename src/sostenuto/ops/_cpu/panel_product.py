"""Matrix products for Numba kernels, whose right factor is packed once and used thousands of times.

A library product packs its factors at every call and may start threads of its own; a scan multiplies by the same
matrix at every step, on a thread that is one of several. Here the right factor lies in panels of up to `VECTORS`
vector registers of columns, and the inner kernel keeps a block of the result, `ROWS` by a panel, in registers. It is
written in LLVM's own instructions, because only that makes sure that the block stays there.
"""

from typing import Any, no_type_check

import llvmlite.binding as llvm
import torch
from jaxtyping import Float
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.prefetch import emit_prefetch, next_lines
from sostenuto.ops._cpu.workspace import LINE

_WIDE = bool(llvm.get_host_cpu_features().get("avx512f", False))
VECTOR_BYTES = 64 if _WIDE else 32
VECTORS = 4 if _WIDE else 2
"""Vector registers across a panel: with `ROWS` rows 16 of 32 registers hold the block, or 8 of 16."""
ROWS = 4

_WORD = ir.IntType(64)


def pack(matrix: Float[Tensor, "K N"]) -> Any:
    """Lay the right factor of a product out in panels, as one flat array; columns are filled up to whole vectors."""
    packed = torch.empty(matrix.shape[0] * padded(matrix.shape[1], matrix.dtype), dtype=matrix.dtype).numpy()
    pack_into(matrix.detach().numpy(), packed)
    return packed


def pack_into(matrix: Any, packed: Any) -> None:
    """Lay a right factor out in panels in the flat array ``packed``."""
    depth, columns = matrix.shape
    panel = VECTORS * VECTOR_BYTES // packed.itemsize
    count = columns // panel
    full = count * panel
    if full > 0:
        panels = packed[: depth * full].reshape(count, depth, panel)
        panels[:] = matrix[:, :full].reshape(depth, count, panel).swapaxes(0, 1)
    if full < columns:
        last = packed[depth * full :].reshape(depth, -1)
        last[:, : columns - full] = matrix[:, full:]
        last[:, columns - full :] = 0


def padded(columns: int, dtype: torch.dtype) -> int:
    """Give the columns of a packed factor, and of a result: whole vectors.

    >>> padded(1, torch.float32) * 4 == VECTOR_BYTES
    True
    """
    lanes = VECTOR_BYTES // dtype.itemsize
    return -(-columns // lanes) * lanes


@no_type_check
@njit(inline="always", **OPTIONS)
def whole_vectors(columns, like):
    """Count the numbers of whole vectors that hold ``columns``."""
    lanes = VECTOR_BYTES // like.itemsize
    return -(-columns // lanes) * lanes


@no_type_check
def _block(rows, vectors, asks=0):
    """Make the inner kernel: rows × vectors of the result stay in registers while the depth runs.

    One that ``asks`` takes also where lines lie that will be needed, and how many, and asks for one at every step.
    """

    @intrinsic
    def block(typing_context, zero, a, a_row, a_column, b, b_row, c, c_row, count, keep, part):  # noqa: ARG001
        single = zero == types.float32

        def generate(context, builder, signature, arguments):  # noqa: ARG001
            *operands, part = arguments[1:]
            begin, lines = cgutils.unpack_tuple(builder, part)
            end = builder.mul(builder.sub(lines, whole(1)), whole(LINE))

            def beside(k):
                if asks:
                    at = builder.mul(k, whole(LINE))
                    at = builder.select(builder.icmp_signed("<", at, end), at, end)
                    emit_prefetch(builder, [builder.add(begin, at)], 2)

            _generate(builder, single, rows, vectors, beside, *operands)
            return context.get_dummy_value()

        return types.void(zero, *(types.intp,) * 8, types.boolean, types.UniTuple(types.intp, 2)), generate

    return block


@no_type_check
def _generate(builder, single, rows, vectors, beside, a, a_row, a_column, b, b_row, c, c_row, count, keep):
    """Write c = (c where ``keep``) + a·b for one block, and what is done ``beside``; all addresses are in bytes."""
    number, size = (ir.FloatType(), 4) if single else (ir.DoubleType(), 8)
    lanes = VECTOR_BYTES // size
    vector = ir.VectorType(number, lanes)
    a_at, c_at = ([_plus(builder, at, row, r) for r in range(rows)] for at, row in ((a, a_row), (c, c_row)))
    places = [(r, v) for r in range(rows) for v in range(vectors)]
    c_at = [builder.add(c_at[r], whole(VECTOR_BYTES * v)) for r, v in places]
    none = ir.Constant(vector, [0.0] * lanes)
    held = [builder.select(keep, load(builder, at, vector, size), none) for at in c_at]
    entry = builder.block
    head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    k, a_offset, b_at = (builder.phi(_WORD) for _ in range(3))
    sums = [builder.phi(vector) for _ in places]
    for phi, value in zip([k, a_offset, b_at, *sums], [whole(0), whole(0), b, *held], strict=True):
        phi.add_incoming(value, entry)
    builder.cbranch(builder.icmp_signed("<", k, count), body, done)
    builder.position_at_end(body)
    beside(k)
    right = [load(builder, builder.add(b_at, whole(VECTOR_BYTES * v)), vector, size) for v in range(vectors)]
    left = [broadcast(builder, load(builder, builder.add(at, a_offset), number, size), vector, lanes) for at in a_at]
    fused = ("contract",)
    grown = [
        builder.fadd(builder.fmul(left[r], right[v], flags=fused), total, flags=fused)
        for (r, v), total in zip(places, sums, strict=True)
    ]
    steps = [builder.add(k, whole(1)), builder.add(a_offset, a_column), builder.add(b_at, b_row)]
    for phi, value in zip([k, a_offset, b_at, *sums], [*steps, *grown], strict=True):
        phi.add_incoming(value, body)
    builder.branch(head)
    builder.position_at_end(done)
    for at, total in zip(c_at, sums, strict=True):
        builder.store(total, builder.inttoptr(at, vector.as_pointer()), align=size)


@no_type_check
def whole(value):
    """Write a whole number."""
    return ir.Constant(_WORD, value)


@no_type_check
def _plus(builder, address, stride, times):
    return builder.add(address, builder.mul(stride, whole(times)))


@no_type_check
def load(builder, address, kind, size):
    """Read a number or a vector from an address; it need begin at a number's border only."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=size)


@no_type_check
def side_by_side(builder, vector, size, count):
    """Give what reads so many vectors that lie side by side from an address, and what writes them to one."""

    def places(address):
        return [builder.add(address, whole(size * vector.count * v)) for v in range(count)]

    def read(address):
        return [load(builder, place, vector, size) for place in places(address)]

    def write(values, address):
        for value, place in zip(values, places(address), strict=True):
            builder.store(value, builder.inttoptr(place, vector.as_pointer()), align=size)

    return read, write


@no_type_check
def broadcast(builder, value, vector, lanes):
    """Repeat one number over a vector."""
    place = ir.IntType(32)
    nothing = ir.Constant(vector, ir.Undefined)
    single = builder.insert_element(nothing, value, ir.Constant(place, 0))
    return builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(place, lanes), [0] * lanes))


_tall = [_block(ROWS, vectors) for vectors in range(1, VECTORS + 1)]
_flat = [_block(1, vectors) for vectors in range(1, VECTORS + 1)]
_tall_1, _tall_2, _tall_3, _tall_4 = (*_tall, *_tall)[:4]
_prefetching = _block(ROWS, VECTORS, asks=1)
_flat_1, _flat_2, _flat_3, _flat_4 = (*_flat, *_flat)[:4]


@no_type_check
@procedure
def multiply(zero, a, a_row, a_column, rows, packed, depth, c, c_row, count, keep, ahead):
    """Write c = (c where ``keep``) + a·b for the ``rows`` of a and ``count`` of its columns.

    ``a``, ``packed`` and ``c`` are addresses, ``a_row``, ``a_column`` and ``c_row`` strides in bytes; ``zero`` gives
    the kind of number. Rows of c are whole vectors, and ``depth`` ≥ ``count`` is what the panels have room for. On the
    way it asks for what the list ``ahead`` has.
    """
    left = c_row // VECTOR_BYTES
    while left > 0:
        vectors = min(left, VECTORS)
        b_row = vectors * VECTOR_BYTES
        _strip(zero, a, a_row, a_column, rows, packed, b_row, vectors, c, c_row, count, keep, ahead)
        packed += depth * b_row
        c += b_row
        left -= vectors


@no_type_check
@procedure
def multiply_rows(zero, a, a_row, a_column, rows, b, b_row, c, c_row, count, keep, ahead):
    """As `multiply` with a right factor whose rows, filled up to whole vectors, lie ``b_row`` bytes apart.

    For a factor that is used once: packing it takes up to a third of the time of its product.
    """
    left = c_row // VECTOR_BYTES
    while left > 0:
        vectors = min(left, VECTORS)
        _strip(zero, a, a_row, a_column, rows, b, b_row, vectors, c, c_row, count, keep, ahead)
        b += vectors * VECTOR_BYTES
        c += vectors * VECTOR_BYTES
        left -= vectors


@no_type_check
@procedure
def _strip(zero, a, a_row, a_column, rows, b, b_row, vectors, c, c_row, count, keep, ahead):
    """Write ``vectors`` vectors of columns of the result, block by block of rows."""
    i = 0
    while i < rows:
        part = 0, 0
        if ahead is not None:
            part = next_lines(ahead, count)
        a_i, c_i = a + i * a_row, c + i * c_row
        if i + ROWS <= rows:
            if vectors == VECTORS and part[1] > 0:
                _prefetching(zero, a_i, a_row, a_column, b, b_row, c_i, c_row, count, keep, part)
            elif vectors == 4:
                _tall_4(zero, a_i, a_row, a_column, b, b_row, c_i, c_row, count, keep, part)
            elif vectors == 3:
                _tall_3(zero, a_i, a_row, a_column, b, b_row, c_i, c_row, count, keep, part)
            elif vectors == 2:
                _tall_2(zero, a_i, a_row, a_column, b, b_row, c_i, c_row, count, keep, part)
            else:
                _tall_1(zero, a_i, a_row, a_column, b, b_row, c_i, c_row, count, keep, part)
            i += ROWS
        else:
            if vectors == 4:
                _flat_4(zero, a_i, a_row, a_column, b, b_row, c_i, c_row, count, keep, part)
            elif vectors == 3:
                _flat_3(zero, a_i, a_row, a_column, b, b_row, c_i, c_row, count, keep, part)
            elif vectors == 2:
                _flat_2(zero, a_i, a_row, a_column, b, b_row, c_i, c_row, count, keep, part)
            else:
                _flat_1(zero, a_i, a_row, a_column, b, b_row, c_i, c_row, count, keep, part)
            i += 1

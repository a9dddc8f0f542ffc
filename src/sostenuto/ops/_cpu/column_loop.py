"""Loops over a tile for Numba kernels: column by column, what all rows share stays in vector registers.

As `vector_loop`, from the formula of one number. A tile is read a vector's width of columns at a time, row after row:
vectors that all rows share are read once for a tile, and what a row hands on to the next, a state or a sum, stays in
registers. Rows of tensors are narrow and end with their last number; those of tiles have whole vectors.
"""

from collections.abc import Callable, Sequence
from typing import Any, no_type_check

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sostenuto.ops._cpu.panel_product import VECTOR_BYTES, broadcast, load, whole
from sostenuto.ops._cpu.vector_loop import Lanes

_WORD, _PLACE, _FLAG = ir.IntType(64), ir.IntType(32), ir.IntType(1)


def column_loop(narrow_read: int = 0, narrow_written: int = 0) -> Callable[..., Any]:
    """Make compiled code's ``loop(zero, length, units, rows, shared, carried, read, single, written)`` of a formula.

    ``formula(shared, carried, read, single)`` takes lists of vectors and gives what is carried on and what is written.
    ``shared`` and ``carried`` are tuples of addresses of vectors; ``carried`` is written back. ``read``, ``single`` and
    ``written`` are pairs: the addresses of their first rows, and the bytes from a row to the next. Rows of ``single``
    are one number. ``length`` is the bytes of whole vectors, ``units`` counts the numbers of narrow rows, which are the
    first ``narrow_read`` and ``narrow_written``.
    """

    def made(formula: Callable[..., tuple[Sequence[Lanes], Sequence[Lanes]]]) -> Any:
        @no_type_check
        @intrinsic
        def loop(typing_context, zero, length, units, rows, shared, carried, read, single, written):  # noqa: ARG001
            def generate(context, builder, signature, arguments):  # noqa: ARG001
                _, length, units, rows, shared, carried, *pairs = arguments
                vectors = _Vectors(builder, zero == types.float32, units)
                shared, carried = (cgutils.unpack_tuple(builder, part) for part in (shared, carried))
                read, single, written = (_pairs(builder, part) for part in pairs)

                def column(at, _):
                    mask = vectors.inside(at) if narrow_read or narrow_written else None
                    columns = [(builder.add(place, at), stride) for place, stride in read]
                    targets = [(builder.add(place, at), stride) for place, stride in written]
                    places = [builder.add(place, at) for place in carried]
                    constants = [vectors.read(builder.add(place, at)) for place in shared]

                    def row(at_row, held):
                        def place(column):
                            return builder.add(column[0], builder.mul(at_row, column[1]))

                        values = [
                            vectors.read(place(each), mask if index < narrow_read else None)
                            for index, each in enumerate(columns)
                        ]
                        numbers = [vectors.repeated(place(each)) for each in single]
                        state = [vectors.lanes(value) for value in held]
                        carried_on, results = formula(constants, state, values, numbers)
                        for index, (each, result) in enumerate(zip(targets, results, strict=True)):
                            vectors.write(result, place(each), mask if index < narrow_written else None)
                        return [value.value for value in carried_on]

                    start = [vectors.read(place).value for place in places]
                    for place, value in zip(places, _counted(builder, rows, 1, start, row), strict=True):
                        vectors.write(vectors.lanes(value), place)
                    return []

                _counted(builder, length, VECTOR_BYTES, [], column)
                return context.get_dummy_value()

            pairs = (types.Tuple([_words(part[0]), _words(part[1])]) for part in (read, single, written))
            return types.void(zero, *(types.intp,) * 3, _words(shared), _words(carried), *pairs), generate

        return loop

    return made


def row_sums(results: int) -> Callable[..., Any]:
    """Make compiled code's ``sums(zero, length, units, shared, narrow, single)`` of a formula: sums over one row.

    ``formula(shared, narrow, single)`` takes lists of vectors and gives ``results`` of them. ``shared`` and ``narrow``
    are tuples of addresses of rows, the second ones end with their last number; ``single`` is a tuple of numbers.
    """

    def made(formula: Callable[..., Sequence[Lanes]]) -> Any:
        @no_type_check
        @intrinsic
        def sums(typing_context, zero, length, units, shared, narrow, single):  # noqa: ARG001
            def generate(context, builder, signature, arguments):
                _, length, units, *addresses = arguments
                shared, narrow, single = (cgutils.unpack_tuple(builder, part) for part in addresses)
                vectors = _Vectors(builder, zero == types.float32, units)
                numbers = [vectors.lanes(broadcast(builder, value, vectors.kind, vectors.count)) for value in single]

                def column(at, totals):
                    mask = vectors.inside(at)
                    values = [vectors.read(builder.add(place, at)) for place in shared]
                    ending = [vectors.read(builder.add(place, at), mask) for place in narrow]
                    terms = [
                        builder.select(mask, part.value, vectors.none) for part in formula(values, ending, numbers)
                    ]
                    return [builder.fadd(one, other) for one, other in zip(totals, terms, strict=True)]

                totals = _counted(builder, length, VECTOR_BYTES, [vectors.none] * results, column)
                return context.make_tuple(builder, signature.return_type, [vectors.total(value) for value in totals])

            kinds = _words(shared), _words(narrow), types.Tuple([zero] * len(single))
            return types.Tuple([zero] * results)(zero, types.intp, types.intp, *kinds), generate

        return sums

    return made


class _Vectors:
    """Vector registers of one kind of number, and how they come from memory and go there."""

    def __init__(self, builder: Any, single: bool, units: Any) -> None:
        self.builder, self.units, self.size = builder, units, 4 if single else 8
        self.number = ir.FloatType() if single else ir.DoubleType()
        self.count = VECTOR_BYTES // self.size
        self.kind = ir.VectorType(self.number, self.count)
        self.none = ir.Constant(self.kind, [0.0] * self.count)

    def lanes(self, value: Any) -> Lanes:
        return Lanes(self.builder, value, self.size)

    def inside(self, at: Any) -> Any:
        """Give which places of the vector that begins so many bytes into a narrow row belong to it."""
        left = self.builder.sub(self.units, self.builder.sdiv(at, whole(self.size)))
        places = ir.VectorType(_PLACE, self.count)
        left = broadcast(self.builder, self.builder.trunc(left, _PLACE), places, self.count)
        return self.builder.icmp_signed("<", ir.Constant(places, list(range(self.count))), left)

    def read(self, place: Any, mask: Any = None) -> Lanes:
        if mask is None:
            return self.lanes(load(self.builder, place, self.kind, self.size))
        pointer = self.builder.inttoptr(place, self.kind.as_pointer())
        call = self._masked("load", self.kind, [self.kind.as_pointer(), _PLACE, mask.type, self.kind])
        return self.lanes(self.builder.call(call, [pointer, ir.Constant(_PLACE, self.size), mask, self.none]))

    def write(self, value: Lanes, place: Any, mask: Any = None) -> None:
        pointer = self.builder.inttoptr(place, self.kind.as_pointer())
        if mask is None:
            self.builder.store(value.value, pointer, align=self.size)
            return
        call = self._masked("store", ir.VoidType(), [self.kind, self.kind.as_pointer(), _PLACE, mask.type])
        self.builder.call(call, [value.value, pointer, ir.Constant(_PLACE, self.size), mask])

    def repeated(self, place: Any) -> Lanes:
        """Read one number into all places of a vector."""
        number = load(self.builder, place, self.number, self.size)
        return self.lanes(broadcast(self.builder, number, self.kind, self.count))

    def total(self, value: Any) -> Any:
        """Add up the places of a vector, halves first."""
        width, undefined = self.count, ir.Constant(self.kind, ir.Undefined)
        while width > 1:
            width //= 2
            order = [(place + width) % self.count for place in range(self.count)]
            turned = self.builder.shuffle_vector(
                value, undefined, ir.Constant(ir.VectorType(_PLACE, self.count), order)
            )
            value = self.builder.fadd(value, turned)
        return self.builder.extract_element(value, ir.Constant(_PLACE, 0))

    def _masked(self, name: str, result: Any, arguments: list[Any]) -> Any:
        kind = f"v{self.count}f{8 * self.size}"
        form = ir.FunctionType(result, arguments)
        return cgutils.get_or_insert_function(self.builder.module, form, f"llvm.masked.{name}.{kind}.p0")


@no_type_check
def _counted(builder, stop, step, start, body):
    """Write a loop from 0 in steps; ``body(at, values)`` gives the next values, and the last ones are returned."""
    entry = builder.block
    head, inside, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    at, values = builder.phi(_WORD), [builder.phi(value.type) for value in start]
    for phi, value in zip([at, *values], [whole(0), *start], strict=True):
        phi.add_incoming(value, entry)
    builder.cbranch(builder.icmp_signed("<", at, stop), inside, done)
    builder.position_at_end(inside)
    following = body(at, values)
    for phi, value in zip([at, *values], [builder.add(at, whole(step)), *following], strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(done)
    return values


@no_type_check
def _pairs(builder, pair):
    places, strides = (cgutils.unpack_tuple(builder, part) for part in cgutils.unpack_tuple(builder, pair))
    return list(zip(places, strides, strict=True))


@no_type_check
def _words(kinds):
    """Give a tuple of addresses, which may be empty."""
    return types.Tuple([types.intp] * len(kinds))

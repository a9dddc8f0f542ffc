"""Loops for Numba kernels in LLVM's own instructions: over a row, from the formula of one number, and over steps.

A compiler vectorizes a loop over many arrays only where it can prove that they do not overlap, which it gives up for
more than a few. Here the loop is written in LLVM's own instructions: every array begins at an address, all are read,
and then all results are written.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, no_type_check

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sostenuto.ops._cpu.panel_product import VECTOR_BYTES, load, whole
from sostenuto.ops._cpu.tanh import grown_by_half, tanh_of_vectors, tanh_with_slope_of_vectors

_WORD, _FUSED = ir.IntType(64), ("contract",)


class Lanes:
    """A vector in a formula: arithmetic, also with constants, and the functions that scans need."""

    def __init__(self, builder: Any, value: Any, size: int) -> None:
        self.builder, self.value, self.size = builder, value, size

    def __add__(self, other: Any) -> "Lanes":
        return self._made(self.builder.fadd, self, self._lanes(other))

    def __sub__(self, other: Any) -> "Lanes":
        return self._made(self.builder.fsub, self, self._lanes(other))

    def __mul__(self, other: Any) -> "Lanes":
        return self._made(self.builder.fmul, self, self._lanes(other))

    def __rsub__(self, other: float) -> "Lanes":
        return self._lanes(other) - self

    def __neg__(self) -> "Lanes":
        return Lanes(self.builder, self.builder.fneg(self.value), self.size)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: "Lanes") -> "Lanes":
        return Lanes(self.builder, self.builder.fdiv(self.value, other.value), self.size)

    def where_below(self, limit: Any, one: Any, other: "Lanes") -> "Lanes":
        """Give ``one`` where this is below the limit and ``other`` elsewhere, also where either is not a number."""
        return self._where("<", limit, one, other)

    def where_equal(self, number: Any, one: Any, other: "Lanes") -> "Lanes":
        """Give ``one`` where this equals the number and ``other`` elsewhere."""
        return self._where("==", number, one, other)

    def larger(self, other: "Lanes") -> "Lanes":
        """Give the other where it is larger, and this elsewhere: what is not a number is not larger than any."""
        return self._where("<", other, other, self)

    def faded(self) -> tuple["Lanes", "Lanes"]:
        """Give e⁻ˣ and e⁻ˣ − 1 for x ≥ 0, both to full relative accuracy; e⁻ˣ beyond x = 20 (float64: 40) stays."""
        grown = Lanes(
            self.builder, grown_by_half(self.builder, [(self * 0.5).value], self.value.type, self.size)[0], self.size
        )
        left = self._lanes(1.0) / (grown * 2.0 + 1.0)
        return left, grown * left * -2.0

    def half_angle(self) -> tuple["Lanes", "Lanes"]:
        """Give sin(x/2) and cos(x/2), both with the other sign after an odd number of turns."""
        half, magic = math.pi, 1.5 * 2.0 ** (23 if self.size == 4 else 52)
        high = float(np.float32(half)) if self.size == 4 else half
        low = half - high if self.size == 4 else 1.2246467991473532e-16
        turns = self * (0.5 / half) + magic - magic
        r = self * 0.5 - turns * high - turns * low
        square, terms = r * r, 6 if self.size == 4 else 11
        sine, cosine = self._lanes(0.0), self._lanes(0.0)
        for n in reversed(range(terms)):
            sine = sine * square + (-1) ** n / math.factorial(2 * n + 1)
        for n in reversed(range(terms + 1)):
            cosine = cosine * square + (-1) ** n / math.factorial(2 * n)
        return sine * r, cosine

    def tanh_alone(self) -> "Lanes":
        """Give the hyperbolic tangent."""
        (value,) = tanh_of_vectors(self.builder, [self.value], self.value.type, self.size)
        return Lanes(self.builder, value, self.size)

    def tanh(self) -> tuple["Lanes", "Lanes"]:
        """Give the hyperbolic tangent and its derivative."""
        result = tanh_with_slope_of_vectors(self.builder, [self.value], self.value.type, self.size)
        return Lanes(self.builder, result[0][0], self.size), Lanes(self.builder, result[1][0], self.size)

    def _where(self, relation: str, number: Any, one: Any, other: "Lanes") -> "Lanes":
        holds = self.builder.fcmp_ordered(relation, self.value, self._lanes(number).value)
        return Lanes(self.builder, self.builder.select(holds, self._lanes(one).value, other.value), self.size)

    def _made(self, operation: Any, left: "Lanes", right: "Lanes") -> "Lanes":
        return Lanes(self.builder, operation(left.value, right.value, flags=_FUSED), self.size)

    def _lanes(self, value: Any) -> "Lanes":
        if isinstance(value, Lanes):
            return value
        kind = self.value.type
        return Lanes(self.builder, ir.Constant(kind, [float(value)] * kind.count), self.size)


@no_type_check
@intrinsic
def address(typing_context, values):  # noqa: ARG001
    """Give where an array's numbers begin, as a signed whole number: a sum with an unsigned one would be a float."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, _WORD)

    return types.intp(values), generate


def vector_loop(formula: Callable[..., Sequence[Lanes]]) -> Any:
    """Make compiled code's ``loop(zero, length, read, written)`` of a formula from vectors to a tuple of vectors.

    ``zero`` gives the kind of number, ``length`` is in bytes, a multiple of `VECTOR_BYTES`, and ``read`` and
    ``written`` are tuples of the addresses where rows begin. A row may be both read and written.
    """

    @no_type_check
    @intrinsic
    def loop(typing_context, zero, length, read, written):  # noqa: ARG001
        single = zero == types.float32

        def generate(context, builder, signature, arguments):  # noqa: ARG001
            _, length, read, written = arguments
            size = 4 if single else 8
            vector = ir.VectorType(ir.FloatType() if single else ir.DoubleType(), VECTOR_BYTES // size)
            places, targets = cgutils.unpack_tuple(builder, read), cgutils.unpack_tuple(builder, written)
            entry = builder.block
            head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
            builder.branch(head)
            builder.position_at_end(head)
            at = builder.phi(_WORD)
            at.add_incoming(whole(0), entry)
            builder.cbranch(builder.icmp_signed("<", at, length), body, done)
            builder.position_at_end(body)
            values = [Lanes(builder, load(builder, builder.add(place, at), vector, size), size) for place in places]
            for target, result in zip(targets, formula(*values), strict=True):
                pointer = builder.inttoptr(builder.add(target, at), vector.as_pointer())
                builder.store(result.value, pointer, align=size)
            at.add_incoming(builder.add(at, whole(VECTOR_BYTES)), builder.block)
            builder.branch(head)
            builder.position_at_end(done)
            return context.get_dummy_value()

        places, targets = (types.UniTuple(types.intp, len(each)) for each in (read, written))
        return types.void(zero, types.intp, places, targets), generate

    return loop


@no_type_check
def step_loop(builder, vector, count, held, step):
    """Call ``step(index, states)`` for ``count`` steps; it gives the states that go on. Give the last ones.

    ``held`` has the first states, each a list of vectors.
    """
    entry = builder.block
    head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    index, states = builder.phi(_WORD), [[builder.phi(vector) for _ in values] for values in held]
    index.add_incoming(whole(0), entry)
    _join(states, held, entry)
    builder.cbranch(builder.icmp_signed("<", index, count), body, done)
    builder.position_at_end(body)
    following = step(index, states)
    tail = builder.block  # not the block the step began in, where it holds a loop of its own
    _join(states, following, tail)
    index.add_incoming(builder.add(index, whole(1)), tail)
    builder.branch(head)
    builder.position_at_end(done)
    return states


@no_type_check
def _join(states, values, block):
    for phis, parts in zip(states, values, strict=True):
        for phi, part in zip(phis, parts, strict=True):
            phi.add_incoming(part, block)

"""A loop over steps in LLVM's own instructions, which makes sure that what steps carry stays in registers."""

from typing import no_type_check

from llvmlite import ir
from numba.core import cgutils

from sostenuto.ops.panel_product.cpu import whole

_WORD = ir.IntType(64)


@no_type_check
def carry(builder, vector, count, held, step):
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
    _join(states, step(index, states), body)
    index.add_incoming(builder.add(index, whole(1)), body)
    builder.branch(head)
    builder.position_at_end(done)
    return states


@no_type_check
def _join(states, values, block):
    for phis, parts in zip(states, values, strict=True):
        for phi, part in zip(phis, parts, strict=True):
            phi.add_incoming(part, block)


@no_type_check
def fetch(builder, addresses, level):
    """Ask for what will be read soon, into the first cache or the second: the machine does not see rows coming."""
    kind, place = ir.IntType(32), ir.IntType(8).as_pointer()
    form = ir.FunctionType(ir.VoidType(), [place, kind, kind, kind])
    prefetch = cgutils.get_or_insert_function(builder.module, form, "llvm.prefetch.p0")
    for address in addresses:
        hints = [ir.Constant(kind, hint) for hint in (0, 4 - level, 1)]  # to read, how near, numbers
        builder.call(prefetch, [builder.inttoptr(address, place), *hints])

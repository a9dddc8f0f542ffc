"""A loop over steps in LLVM's own instructions, which makes sure that what steps carry stays in registers."""

from typing import no_type_check

from llvmlite import ir

from sostenuto.ops._cpu.panel_product import whole

_WORD = ir.IntType(64)


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

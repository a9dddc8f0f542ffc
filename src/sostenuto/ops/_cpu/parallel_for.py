"""Blocks of a compiled kernel on several threads, begun from compiled code.

Where Python gives out the blocks, every thread waits its turn at the interpreter before each of them, and to be woken
for it takes 40 to 50 µs: a tenth of a millisecond at every pass of a step of training. Here a thread of OpenMP runs
nothing but the kernel.
"""

from typing import no_type_check

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sostenuto.ops._cpu.compiled import compile_into

_WORD, _PLACE = ir.IntType(64), ir.IntType(8).as_pointer()


@no_type_check
@intrinsic
def parallel_for(typing_context, kernel, entry, threads, count, block, arguments):  # noqa: ARG001
    """Call ``kernel(*arguments, start, stop)`` for consecutive blocks of ``range(count)``, on so many threads.

    ``entry`` is the address of OpenMP, which `threads.run_kernel` passes; one thread does without it. A thread that is
    done with a block takes the next one. An error in one is raised when all are done.
    """
    kinds = tuple(types.unliteral(kind) for kind in arguments.types)

    def generate(context, builder, signature, values):
        compiled = compile_into(context, kernel.dispatcher.py_func, (*kinds, types.intp, types.intp))
        operands = context.cast(builder, values[5], signature.args[5], types.Tuple(kinds))
        shared = _shared(builder, operands, values[3], values[4])
        work = _worker(context, builder.module, compiled, shared.type)
        form = ir.FunctionType(ir.VoidType(), [work.type, _PLACE, ir.IntType(32), ir.IntType(32)])
        several = builder.icmp_signed(">", values[2], ir.Constant(_WORD, 1))
        with builder.if_else(several) as (parallel, serial):
            with parallel:
                start = builder.inttoptr(values[1], form.as_pointer())
                many = builder.trunc(values[2], ir.IntType(32))
                builder.call(start, [work, builder.bitcast(shared, _PLACE), many, ir.Constant(ir.IntType(32), 0)])
            with serial:
                builder.call(work, [builder.bitcast(shared, _PLACE)])
        failed = builder.load(_field(builder, shared, 4))
        with cgutils.if_unlikely(builder, builder.icmp_unsigned("!=", failed, ir.Constant(_WORD, 0))):
            context.call_conv.return_user_exc(
                builder, RuntimeError, ("a kernel failed, most likely for lack of memory",)
            )
        return context.get_dummy_value()

    words = (types.intp,) * 4
    return types.void(kernel, *words, types.Tuple(kinds)), generate


@no_type_check
def _shared(builder, operands, count, block):
    """Lay out what threads share: the arguments, count, block, where the next block begins, and whether one failed."""
    kind = ir.LiteralStructType([operands.type, *(_WORD,) * 4])
    shared = cgutils.alloca_once(builder, kind)
    none = ir.Constant(_WORD, 0)
    for index, value in enumerate((operands, count, block, none, none)):
        builder.store(value, _field(builder, shared, index))
    return shared


@no_type_check
def _worker(context, module, compiled, kind):
    """Write what each thread runs: take a block, until none is left."""
    name = module.get_unique_name("parallel_for_worker")
    work = ir.Function(module, ir.FunctionType(ir.VoidType(), [_PLACE]), name)
    work.linkage = "internal"
    builder = ir.IRBuilder(work.append_basic_block("entry"))
    shared = builder.bitcast(work.args[0], kind)
    operands = cgutils.unpack_tuple(builder, builder.load(_field(builder, shared, 0)))
    count, block = (builder.load(_field(builder, shared, index)) for index in (1, 2))
    head, body, done = (work.append_basic_block(name) for name in ("head", "body", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    start = builder.atomic_rmw("add", _field(builder, shared, 3), block, "monotonic")
    builder.cbranch(builder.icmp_signed("<", start, count), body, done)
    builder.position_at_end(body)
    after = builder.add(start, block)
    stop = builder.select(builder.icmp_signed("<", after, count), after, count)
    status, _ = context.call_internal_no_propagate(
        builder, compiled.fndesc, compiled.signature, [*operands, start, stop]
    )
    with cgutils.if_unlikely(builder, status.is_error):
        builder.store(ir.Constant(_WORD, 1), _field(builder, shared, 4))
    builder.branch(head)
    builder.position_at_end(done)
    builder.ret_void()
    return work


@no_type_check
def _field(builder, shared, index):
    return builder.gep(shared, [ir.Constant(ir.IntType(32), place) for place in (0, index)])

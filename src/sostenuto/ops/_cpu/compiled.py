"""How CPU kernels are compiled: a kernel and the procedures it calls are one unit, optimized and translated once.

A function under ``numba.njit`` is a library of its own: it is optimized, translated and stored, and then optimized and
translated again within every function that calls it. A `procedure` is compiled into the library of its caller instead,
as a static function of C is: a first call of a layer takes half the time.
"""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, no_type_check
from weakref import WeakKeyDictionary

from numba import types
from numba.core import compiler, targetconfig
from numba.extending import intrinsic

from sostenuto.ops._cpu.cache import CACHE

OPTIONS: Any = {"nogil": True, "cache": CACHE, "error_model": "numpy", "fastmath": {"contract"}}
"""How kernels are compiled: no interpreter, no checks, products and sums fused, kept on disk."""

_compiled: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


@no_type_check
def compile_into(context, function, kinds):
    """Compile a function that returns nothing into the library that is being built, once for each kind of arguments."""
    library = context.active_code_library
    done = _compiled.setdefault(library, {})
    if (function, kinds) not in done:
        flags = targetconfig.ConfigStack.top_or_none().copy()
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        done[function, kinds] = compiler.compile_internal(
            context.typing_context, context, library, function, kinds, types.none, flags, {}
        )
    return done[function, kinds]


@no_type_check
def procedure(function: Callable[..., None]) -> Any:
    """Make a function that returns nothing a part of the compiled functions that call it; Python cannot call it."""

    def call(typing_context, *arguments):  # noqa: ARG001
        kinds = tuple(types.unliteral(kind) for kind in arguments)

        def generate(context, builder, _, values):
            part = compile_into(context, function, kinds)
            context.call_internal(builder, part.fndesc, part.signature, values)
            return context.get_dummy_value()

        return types.none(*kinds), generate

    context = Parameter("typing_context", Parameter.POSITIONAL_OR_KEYWORD)
    call.__signature__ = Signature(
        [context, *signature(function).parameters.values()]
    )  # by which numba binds arguments
    return intrinsic(call)

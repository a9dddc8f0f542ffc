"""How CPU kernels are compiled: a kernel and the procedures it calls are one unit, optimized and translated once.

A function under ``numba.njit`` is a library of its own: it is optimized, translated and stored, and then optimized and
translated again within every function that calls it. A `procedure` is compiled into the library of its caller instead,
as a static function of C is: a first call of a layer takes half the time. A short function that returns something is
inlined (``inline="always"``), or an intrinsic.

Compiled code is kept on disk, also without a home and with packages that cannot be written to: see `find_cache`.
"""

import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, no_type_check
from weakref import WeakKeyDictionary

from numba import config, njit, types
from numba.core import compiler, targetconfig
from numba.extending import intrinsic


def find_cache() -> bool:
    """Find a place for compiled code; without one, code is compiled at every start. Either is said in a warning.

    Numba looks beside the source and in the user's own cache, and fails where it can write to neither. A folder for
    this user among the temporary files serves then: what is in it is executed, so no other user may write there.
    """
    if _finds_place():
        return True
    own: Any = config
    own.CACHE_DIR = _own_folder()
    kept = bool(own.CACHE_DIR) and _finds_place()
    if not kept:
        own.CACHE_DIR = ""
    where = f"it is kept in {own.CACHE_DIR}" if kept else "everything is compiled at every start"
    warnings.warn(
        f"expected a place that can be written to for compiled code, got none; {where}. NUMBA_CACHE_DIR names another.",
        RuntimeWarning,
        stacklevel=2,
    )
    return kept


def _finds_place() -> bool:
    try:
        njit(cache=True)(_probe)
    except RuntimeError:
        return False
    return True


def _probe() -> int:
    return 0


def _own_folder() -> str:
    """Make or find a folder that this user alone can enter; empty where it cannot be."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"sostenuto-compiled-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
    except OSError:
        return ""
    is_own = stat.S_ISDIR(state.st_mode) and state.st_uid == user and not stat.S_IMODE(state.st_mode) & 0o077
    return str(folder) if is_own or not hasattr(os, "getuid") else ""


CACHE = find_cache()
"""Whether functions are compiled with a cache."""
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

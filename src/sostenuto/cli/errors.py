"""From exceptions to one sentence and an exit code.

2 is for what the caller can mend, 4 for divergence, 128 + n for the signal n, 1 for all else.
"""

import errno
import functools
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import typer

from sostenuto.checks import InputError, SostenutoError, Stopped

_COLUMNS = ("target", "series", "time", "group", "ignore", "categorical")
_OPTIONS = {
    name: name for name in (*_COLUMNS, "separator", "decimal", "task", "layout", "timespans", "missing", "split")
} | {"method": "split"}
_ARGUMENT = re.compile(rf"\b({'|'.join(_OPTIONS)})=('[^']*'|\"[^\"]*\"|NAME\b)")
_QUOTES = "'\""
OUT_OF_MEMORY = "out of memory; bring less data, shorter sequences or a smaller model or batch, or more memory."
_MEMORY = re.compile(
    "can't allocate memory|cannot allocate memory|out of memory|unable to allocate|failed to map segment|bad_alloc"
    "|can't start new thread",
    re.IGNORECASE,
)
USAGE, FAILURE, DIVERGED, INTERRUPTED, SIGNALED = 2, 1, 4, 130, 128


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Run a command so that anything the library refuses ends in one sentence on standard error."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _say_each_once()
                with _ended_by_signals():
                    command(*arguments, **options)
        except InputError as error:
            raise ended(str(error), USAGE) from error
        except SostenutoError as error:
            raise ended(str(error), FAILURE) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise ended(OUT_OF_MEMORY, FAILURE) from error
            raise ended(f"{error.filename or 'file'}: the system says {error.strerror or error}.", FAILURE) from error
        except (MemoryError, RuntimeError, ImportError) as error:
            if not is_out_of_memory(error):
                raise
            raise ended(OUT_OF_MEMORY, FAILURE) from error
        except Stopped as error:
            raise ended(str(error), SIGNALED + error.number) from None
        except KeyboardInterrupt:
            raise ended(
                "interrupted; sostenuto fit --resume RUN continues from the last checkpoint", INTERRUPTED
            ) from None

    return run


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one behind it, says that memory ran out: torch and the loader of libraries do so in words.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"))
    True
    """
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, MemoryError) or _MEMORY.search(str(behind)):
            return True
        behind = behind.__cause__ or behind.__context__
    return False


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command in a sentence; what works on a checkpoint notes them itself."""

    def end(number: int, _: Any) -> None:
        raise Stopped(f"stopped by {signal.Signals(number).name} with the work unfinished.", number)

    with ExitStack() as stack:
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            main = threading.current_thread() is threading.main_thread()
            if main and number is not None and signal.getsignal(number) is signal.SIG_DFL:
                stack.callback(signal.signal, number, signal.signal(number, end))
        yield


def ended(message: str, code: int) -> typer.Exit:
    """Say one sentence on standard error and give the exit to raise."""
    print(f"sostenuto: {in_options(' '.join(message.split()))}", file=sys.stderr)
    return typer.Exit(code)


def _say_each_once() -> Callable[..., None]:
    """Show a warning that several parts of a file or stages of a command repeat one time."""
    said: set[str] = set()

    def say(message: Any, *_: Any, **__: Any) -> None:
        text = in_options(" ".join(str(message).split()))
        if text not in said:
            said.add(text)
            print(f"sostenuto: warning: {text}", file=sys.stderr)

    return say


def in_options(message: str) -> str:
    """Write the arguments that a message of the library names as options of the command line.

    >>> in_options("pass missing='mask', or say which one with target=NAME")
    'pass --missing mask, or say which one with --target NAME'
    """

    def option(match: re.Match[str]) -> str:
        name, value = match.groups()
        return f"--{_OPTIONS[name]} {shlex.quote(value.strip(_QUOTES))}"

    return _ARGUMENT.sub(option, message)

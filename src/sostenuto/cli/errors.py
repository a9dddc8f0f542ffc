"""From exceptions to one sentence and an exit code: 2 for what the caller can mend, 4 for divergence, else 1."""

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer

from sostenuto.checks import InputError, SostenutoError

USAGE, FAILURE, DIVERGED, INTERRUPTED = 2, 1, 4, 130


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Run a command so that anything the library refuses ends in one sentence on standard error."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _say_warning
                command(*arguments, **options)
        except InputError as error:
            raise ended(str(error), USAGE) from error
        except SostenutoError as error:
            raise ended(str(error), FAILURE) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise ended(f"{error.filename or 'file'}: the system says {error.strerror or error}.", FAILURE) from error
        except KeyboardInterrupt:
            raise ended(
                "interrupted; sostenuto fit --resume RUN goes on where the last checkpoint is", INTERRUPTED
            ) from None

    return run


def ended(message: str, code: int) -> typer.Exit:
    """Say one sentence on standard error and give the exit to raise."""
    print(f"sostenuto: {' '.join(message.split())}", file=sys.stderr)
    return typer.Exit(code)


def _say_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"sostenuto: warning: {message}", file=sys.stderr)

"""Hold a file or a folder, so that no other process works on it at the same time."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sostenuto.checks import InputError
from sostenuto.types import PathLike


@contextmanager
def locked(path: PathLike, refusal: str) -> Iterator[None]:
    """Hold ``path`` inside the block, or raise ``refusal`` where another process does; a file that is absent is made.

    A folder is held itself, so that no lock file stays behind. Systems without `fcntl` lock nothing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(folder, "taken"):
    ...     with locked(folder, "taken"):
    ...         pass
    Traceback (most recent call last):
    ...
    sostenuto.checks.InputError: taken.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ModuleNotFoundError):
            import fcntl

            handle = -1
            # A file removed between opening and locking protects nothing: another file has its name.
            while handle < 0 or not _is_still(Path(path), handle):
                handle = os.open(path, os.O_RDONLY if Path(path).is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
                stack.callback(os.close, handle)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise InputError(f"{refusal}.") from error
        yield


def _is_still(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False

"""Write a file so that a reader sees the old one or the new one, never half of either; hold one against others."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sostenuto.checks import InputError
from sostenuto.types import PathLike


@contextmanager
def atomic(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; flushed to disk, it takes its place when the block ends well."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
        _flush(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: PathLike, content: bytes | str) -> Path:
    """Write ``content`` whole or not at all; text is UTF-8 with plain line ends.

    >>> folder = tempfile.TemporaryDirectory()
    >>> write_atomically(Path(folder.name) / "a.txt", "all or nothing").read_text()
    'all or nothing'
    >>> folder.cleanup()
    """
    with atomic(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def _flush(folder: Path) -> None:
    """Bring the new name to disk, where the system lets a folder be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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

"""Open a file: exists, is a file, stays as it is, is not empty, unpacks to a bearable size, is UTF-8."""

import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from gzip import GzipFile
from pathlib import Path
from typing import Any

from sostenuto.checks import FileFormatError, require
from sostenuto.types import PathLike

MOST_UNPACKED = 8 << 30
"""Bytes that a packed file may hold; the environment variable ``SOSTENUTO_MOST_UNPACKED`` names another limit."""
_LIMIT: ContextVar[int] = ContextVar("most_unpacked", default=0)
_GZIP_MAGIC = b"\x1f\x8b"
_AGAIN = "copy or download it again"


def check_file(path: PathLike) -> Path:
    """Return ``path`` where it names a file that is there."""
    file = Path(path)
    if file.is_dir():
        raise FileFormatError(file, "expected a file", "got a folder", "name one file in it")
    if not file.exists():
        raise FileFormatError(file, "expected a file", "found nothing there", "check the path")
    if not file.is_file():
        raise FileFormatError(file, "expected a file", "got a pipe or a device", "write it to a file first")
    return file


@contextmanager
def unpacking_at_most(limit: int) -> Iterator[None]:
    """Let packed files hold ``limit`` bytes inside the block; 0 leaves the limit as it is.

    >>> with unpacking_at_most(1000):
    ...     most_unpacked()
    1000
    """
    token = _LIMIT.set(limit or _LIMIT.get())
    try:
        yield
    finally:
        _LIMIT.reset(token)


def most_unpacked() -> int:
    """Return the limit on the bytes of a packed file."""
    written = os.environ.get("SOSTENUTO_MOST_UNPACKED", str(MOST_UNPACKED))
    require(written.isdecimal(), "expected SOSTENUTO_MOST_UNPACKED to be a whole number of bytes", f"got {written!r}")
    return _LIMIT.get() or int(written)


def too_large(path: Path) -> FileFormatError:
    """Say that a packed file holds too much."""
    return FileFormatError(
        path,
        f"expected at most {most_unpacked():,} bytes in a packed file",
        "got more",
        "pass a larger --most-unpacked, or set SOSTENUTO_MOST_UNPACKED, if you trust it",
    )


@contextmanager
def opened(path: PathLike) -> Iterator[io.BufferedReader]:
    """Open a file to read its content in pieces, unpacked where its name ends in ``.gz``; an empty one is refused.

    At the end of the block a file that grew meanwhile or is damaged is refused.
    """
    file = check_file(path)
    packed = file.name.lower().endswith(".gz")
    try:
        with file.open("rb") as plain:
            size = os.fstat(plain.fileno()).st_size
            start = plain.read(len(_GZIP_MAGIC))
            plain.seek(0)
            if not start:
                raise FileFormatError(file, "expected data", "got an empty file")
            if start == _GZIP_MAGIC and not packed:
                raise FileFormatError(file, "expected plain content", "got gzip data", "let the name end in .gz")
            yield io.BufferedReader(_Unpacked(file, plain)) if packed else plain
            grown = os.fstat(plain.fileno()).st_size != size
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FileFormatError(file, "expected a file that can be read", f"the system says {reason!r}") from error
    if grown:
        raise FileFormatError(file, "expected a file that is whole", "got one that is being written", "wait for it")


def read_bytes(path: PathLike) -> bytes:
    """Return the content of a file, unpacked where its name ends in ``.gz``; an empty file is refused."""
    with opened(path) as file:
        content = file.read()
    if not content:
        raise FileFormatError(path, "expected data", "got an empty file")
    return content


@contextmanager
def opened_text(path: PathLike) -> Iterator[io.TextIOWrapper]:
    """Open a UTF-8 file to read its text in pieces, line ends as they are (a byte order mark is dropped)."""
    with opened(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            yield text
        except UnicodeDecodeError:
            read_text(path)  # says in which line
            raise
        finally:
            text.detach()


def read_text(path: PathLike) -> str:
    """Return the text of a UTF-8 file (a byte order mark is dropped)."""
    content = read_bytes(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise FileFormatError(
            path, "expected UTF-8 text", f"got the byte 0x{byte:02x}", "save the file as UTF-8", line=line
        ) from error
    if not text.strip():
        raise FileFormatError(path, "expected data", "got an empty file")
    return text


def read_lines(path: PathLike) -> list[str]:
    """Return the lines of a UTF-8 file without their ends, whichever system wrote them."""
    return read_text(path).replace("\r\n", "\n").replace("\r", "\n").split("\n")


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, up to the limit; damage raises `FileFormatError`."""

    def __init__(self, path: Path, packed: io.BufferedReader) -> None:
        self._path, self._file, self._read = path, GzipFile(fileobj=packed), 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Unpack as much as fits into ``buffer``."""
        try:
            content = self._file.read(len(buffer))
        except EOFError as error:
            raise FileFormatError(
                self._path, "expected a complete gzip file", "got one that is cut short", _AGAIN
            ) from error
        except (OSError, zlib.error) as error:
            raise FileFormatError(
                self._path, "expected gzip data as the name says", f"could not unpack it ({error})", _AGAIN
            ) from error
        self._read += len(content)
        if self._read > most_unpacked():
            raise too_large(self._path)
        buffer[: len(content)] = content
        return len(content)

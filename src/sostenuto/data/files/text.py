"""Open a file: exists, is a file, stays as it is, is not empty, unpacks to a bearable size, is UTF-8."""

import io
import os
import zlib
from gzip import GzipFile
from pathlib import Path

from sostenuto.checks import FileFormatError
from sostenuto.types import PathLike

MOST_UNPACKED = 8 << 30
"""Bytes that a packed file may hold; the environment variable ``SOSTENUTO_MOST_UNPACKED`` names another limit."""
_GZIP_MAGIC = b"\x1f\x8b"


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


def most_unpacked() -> int:
    """Give the limit on the bytes of a packed file."""
    return int(os.environ.get("SOSTENUTO_MOST_UNPACKED", MOST_UNPACKED))


def too_large(path: Path) -> FileFormatError:
    """Say that a packed file holds too much."""
    return FileFormatError(
        path,
        f"expected at most {most_unpacked():,} bytes in a packed file",
        "got more",
        "set SOSTENUTO_MOST_UNPACKED higher if you trust it",
    )


def read_bytes(path: PathLike) -> bytes:
    """Return the content of a file, unpacked where its name ends in ``.gz``; an empty file is refused."""
    file = check_file(path)
    try:
        with file.open("rb") as opened:
            content = opened.read()
            grown = os.fstat(opened.fileno()).st_size != len(content)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FileFormatError(file, "expected a file that can be read", f"the system says {reason!r}") from error
    if grown:
        raise FileFormatError(file, "expected a file that is whole", "got one that is being written", "wait for it")
    packed = file.name.lower().endswith(".gz")
    if packed and content:
        content = _unpacked(file, content)
    elif content.startswith(_GZIP_MAGIC):
        raise FileFormatError(file, "expected plain content", "got gzip data", "let the name end in .gz")
    if not content:
        raise FileFormatError(file, "expected data", "got an empty file")
    return content


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


def _unpacked(path: Path, content: bytes) -> bytes:
    try:
        with GzipFile(fileobj=io.BytesIO(content)) as opened:
            unpacked = opened.read(most_unpacked() + 1)
        if len(unpacked) > most_unpacked():
            raise too_large(path)
        return unpacked
    except EOFError as error:
        raise FileFormatError(
            path, "expected a complete gzip file", "got one that is cut short", "copy or download it again"
        ) from error
    except (OSError, zlib.error) as error:
        raise FileFormatError(
            path, "expected gzip data as the name says", f"could not unpack it ({error})", "copy or download it again"
        ) from error

"""Open a file: exists, is no folder, is not empty, unpacks, is UTF-8."""

import gzip
import zlib
from pathlib import Path

from sostenuto.checks import FileFormatError
from sostenuto.types import PathLike

_GZIP_MAGIC = b"\x1f\x8b"


def check_file(path: PathLike) -> Path:
    """Return ``path`` where it names a file that is there."""
    file = Path(path)
    if file.is_dir():
        raise FileFormatError(file, "expected a file", "got a folder", "name one file in it")
    if not file.exists():
        raise FileFormatError(file, "expected a file", "found nothing there", "check the path")
    return file


def read_bytes(path: PathLike) -> bytes:
    """Return the content of a file, unpacked where its name ends in ``.gz``; an empty file is refused."""
    file = check_file(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FileFormatError(file, "expected a file that can be read", f"the system says {reason!r}") from error
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
        return gzip.decompress(content)
    except EOFError as error:
        raise FileFormatError(
            path, "expected a complete gzip file", "got one that is cut short", "copy or download it again"
        ) from error
    except (OSError, zlib.error) as error:
        raise FileFormatError(
            path, "expected gzip data as the name says", f"could not unpack it ({error})", "copy or download it again"
        ) from error

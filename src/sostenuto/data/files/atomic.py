"""Write a file so that a reader sees the old one or the new one, never half of either."""

import os
import tempfile
from pathlib import Path

from sostenuto.types import PathLike


def write_atomically(path: PathLike, content: bytes | str) -> Path:
    """Write to a temporary file in the same folder, flush it to disk, and rename it into place.

    >>> folder = tempfile.TemporaryDirectory()
    >>> write_atomically(Path(folder.name) / "a.txt", "all or nothing").read_text()
    'all or nothing'
    >>> folder.cleanup()
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

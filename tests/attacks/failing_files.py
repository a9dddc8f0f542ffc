"""A failing file layer: from the n-th write below a folder on, the disk is full; or the n-th write alone fails.

What counts as a write is everything that takes room: to create a file or a folder, to write bytes, to reserve room, to
bring to the disk, and to rename. Half of the bytes of the write that fails are on the disk, as a real one leaves them.
The layer stands between Python and the system in this process, and is never taken away: use it in a forked one.
"""

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

FULL, BROKEN = errno.ENOSPC, errno.EIO


class FailingFiles:
    """Counts writes below ``folder`` and lets those from number ``fails`` on fail, or it alone unless it ``stays``."""

    def __init__(self, folder: Path, fails: int, error: int = FULL, *, stays: bool = True) -> None:
        self.folder, self.fails, self.error, self.stays = str(folder.resolve()), fails, error, stays
        self.count = 0
        self._handles: set[int] = set()

    def install(self) -> None:
        """Put the layer under the functions that write."""
        io.open = builtins.open = self._opener(io.open)  # pyright: ignore[reportAttributeAccessIssue]
        os.open = self._system_opener(os.open)  # pyright: ignore[reportAttributeAccessIssue]
        for name in ("mkdir", "rename", "replace"):
            setattr(os, name, self._checked(getattr(os, name)))
        for name in ("fsync", "posix_fallocate", "write"):
            if hasattr(os, name):
                setattr(os, name, self._checked_handle(getattr(os, name)))

    def _opener(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        layer = self

        class File(io.FileIO):
            def write(self, content: Any, /) -> int:
                if layer.strikes():
                    half = bytes(content)[: len(content) // 2]
                    if half and layer.error == FULL and layer.count == layer.fails + 1:
                        return super().write(half) or 0  # the next write, of the rest, fails
                    raise layer.raised(str(self.name))
                return super().write(content) or 0

        def opened(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **named: Any) -> Any:
            if not set(mode) & set("wax+") or not self.is_below(file) or named.get("opener"):
                return plain(file, mode, buffering, *more, **named)
            if not isinstance(file, int):
                self.strike(file)
            raw = File(file, mode.replace("b", "").replace("t", ""), closefd=named.get("closefd", True))
            if buffering == 0:
                return raw
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            names = ("encoding", "errors", "newline")
            text = dict(zip(names, more, strict=False)) | {name: named[name] for name in names if name in named}
            return buffered if "b" in mode else io.TextIOWrapper(buffered, **text)

        return opened

    def _system_opener(self, plain: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR)) and self.is_below(path)
            if writes:
                self.strike(path)
            handle = plain(path, flags, *more, **named)
            if writes:
                self._handles.add(handle)
            return handle

        return opened

    def is_below(self, file: Any) -> bool:
        """Whether a path, or the file behind a number, lies below the folder."""
        if isinstance(file, int):
            try:
                file = str(Path(f"/proc/self/fd/{file}").readlink())
            except OSError:
                return file in self._handles
        path = os.path.abspath(os.fsdecode(file))  # noqa: PTH100
        return path == self.folder or path.startswith(self.folder + os.sep)

    def strikes(self) -> bool:
        """Count one more write; whether it fails."""
        self.count += 1
        return self.count > self.fails if self.stays else self.count == self.fails + 1

    def strike(self, file: Any) -> None:
        """Count one more write, and fail where it does."""
        if self.strikes():
            raise self.raised(file)

    def raised(self, file: Any) -> OSError:
        """Make the error that the system would give."""
        return OSError(self.error, os.strerror(self.error), os.fsdecode(file) if not isinstance(file, int) else None)

    def _checked(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        # To take a name that is there needs no room, and to bring one back has to work on a full disk.
        needs_room = plain.__name__ == "mkdir"

        def checked(path: Any, *more: Any, **named: Any) -> Any:
            if self.is_below(path) and (needs_room or self.error != FULL):
                self.strike(path)
            return plain(path, *more, **named)

        return checked

    def _checked_handle(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def checked(handle: int, *more: Any) -> Any:
            if self.is_below(handle):
                self.strike(handle)
            return plain(handle, *more)

        return checked

"""A Gram matrix on disk, written tile by tile: zarr or .npy, with a journal of what is finished.

The journal has a checksum of every tile. Tiles are read back when a computation resumes and when the matrix is whole,
so that a disk that loses or changes numbers is noticed.
"""

import json
import os
import shutil
import time
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sostenuto.checks import FileFormatError, InputError, MissingExtraError, require
from sostenuto.data.files.atomic import locked
from sostenuto.kernels.gram.tiles import Tile, TileGrid
from sostenuto.types import PathLike

_FORMAT = "sostenuto-gram-2"
_COMPLETE = "complete"
_COMMIT_SECONDS = 2.0
"""Tiles are brought to the disk and entered in the journal in groups, at least this often."""


class Store(ABC):
    """Where tiles go. ``finished`` holds the tiles that are on the disk and their checksums; `complete` gives all."""

    def __init__(self, path: Path, grid: TileGrid, fingerprint: str) -> None:
        self.path, self.grid, self.fingerprint = path, grid, fingerprint
        self.journal = path.with_name(f"{path.name}.journal")
        self.finished: dict[Tile, int] = {}
        self.is_complete = False
        self._pending: dict[Tile, int] = {}
        self._committed = time.monotonic()

    @abstractmethod
    def create(self) -> None:
        """Make an empty matrix."""

    @abstractmethod
    def place(self, where: tuple[slice, slice], values: np.ndarray) -> None:
        """Write the numbers of one tile."""

    @abstractmethod
    def read(self, where: tuple[slice, slice]) -> np.ndarray:
        """Read the numbers of one tile back."""

    @abstractmethod
    def reopen(self) -> None:
        """Take back that the matrix is whole."""

    @abstractmethod
    def sync(self, tiles: list[Tile]) -> None:
        """Bring what was placed for ``tiles`` to the disk."""

    @abstractmethod
    def finish(self) -> None:
        """Mark the matrix as whole."""

    @abstractmethod
    def open(self) -> Any:
        """Open the whole matrix for reading."""

    @property
    @abstractmethod
    def working_path(self) -> Path:
        """Where the matrix is while it is not whole."""

    def begin(self) -> None:
        """Go on where the journal ends, or start anew; what is not this matrix is refused.

        The journal is begun before the matrix, so that a matrix of which no tile is finished can be made again.
        """
        if self.has_journal():
            self._read_journal()
            there = self.path if self.is_complete else self.working_path
            if self.finished and not there.exists():
                raise FileFormatError(
                    self.journal, f"expected the matrix {there} beside it", "got none", "delete the journal"
                )
            if not self.finished:
                self.discard()
                self.create()
            return
        for path in (self.path, self.working_path):
            require(
                not path.exists(), f"{path}: expected a new path for the matrix", "got one in use", "choose another"
            )
        rows, columns = self.grid.shape
        size, free = 8 * rows * columns, shutil.disk_usage(self.path.parent).free
        require(
            size <= free,
            f"{self.path}: expected room for {size:,} bytes",
            f"got {free:,} on this disk",
            "name a path on another one",
        )
        self._append([self._header()])
        self.create()

    def has_journal(self) -> bool:
        """Whether a journal was begun: of one that was cut short in its first line there is no matrix yet."""
        if not self.journal.exists():
            return False
        text = self.journal.read_text(encoding="utf-8", errors="replace")
        if "\n" in text or not f"{self._header()}\n".startswith(text):
            return True
        os.truncate(self.journal, 0)
        return False

    def _header(self) -> str:
        header = {"format": _FORMAT, "fingerprint": self.fingerprint, "shape": self.grid.shape, "tile": self.grid.size}
        return json.dumps(header)

    def discard(self) -> None:
        """Remove a matrix in which nothing is finished."""
        if self.working_path.is_dir():
            shutil.rmtree(self.working_path)
        else:
            self.working_path.unlink(missing_ok=True)

    def check(self) -> None:
        """Read the finished tiles back; those that are not as they were written are to be computed again."""
        damaged = [tile for tile, checksum in self.finished.items() if self._is_damaged(tile, checksum)]
        if not damaged:
            return
        warnings.warn(
            f"{self.path}: {len(damaged)} of {len(self.finished)} tiles on the disk are not what was written; "
            "they are computed again.",
            UserWarning,
            stacklevel=4,
        )
        for tile in damaged:
            del self.finished[tile]
        if self.is_complete:
            self.reopen()
            self.is_complete = False

    def write(self, tile: Tile, block: np.ndarray) -> None:
        """Write a tile and its mirror image; enter it in the journal with the next group."""
        for where, values in self.grid.placed(tile, block):
            self.place(where, values)
        self._pending[tile] = _checksum(block)
        if time.monotonic() - self._committed > _COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Bring the written tiles to the disk first, and enter them in the journal then."""
        if self._pending:
            self.sync(list(self._pending))
            self._append([f"{i} {j} {checksum:08x}" for (i, j), checksum in self._pending.items()])
            self.finished.update(self._pending)
        self._pending, self._committed = {}, time.monotonic()

    def complete(self) -> Any:
        """Close the journal and open the matrix for reading, once every tile was read back as it was written."""
        self.commit()
        if not self.is_complete:
            damaged = [tile for tile, checksum in self.finished.items() if self._is_damaged(tile, checksum)]
            if damaged:
                raise FileFormatError(
                    self.working_path,
                    "expected the numbers that were written",
                    f"got others in {len(damaged)} tiles",
                    "check the disk; the same call computes these tiles again",
                )
            self.finish()
            self._append([_COMPLETE])
        return self.open()

    def _is_damaged(self, tile: Tile, checksum: int) -> bool:
        try:
            blocks = [self.read(where) for where, _ in self.grid.placed(tile, np.empty((0, 0)))]
        except (OSError, ValueError, RuntimeError):  # a chunk that is cut short
            return True
        return any(_checksum(block.T if mirrored else block) != checksum for mirrored, block in enumerate(blocks))

    def _append(self, lines: list[str]) -> None:
        with self.journal.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())

    def _read_journal(self) -> None:
        # What comes after the last line end was being written in the crash; its tile is computed again.
        text = self.journal.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        lines = whole.splitlines()
        try:
            header = json.loads(lines[0])
            require(header["format"] == _FORMAT, f"expected {_FORMAT}", f"got {header['format']!r}")
            known, lines = header["fingerprint"], lines[1:]
            # A matrix that was whole and then found damaged is whole when the journal says so again.
            self.is_complete = bool(lines) and lines[-1] == _COMPLETE
            self.finished = dict(_tile(line) for line in lines if line != _COMPLETE)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            hint = "delete it together with the matrix and start anew"
            raise FileFormatError(self.journal, "expected a journal of tiles", f"got {error!r}", hint) from error
        if known != self.fingerprint:
            raise InputError(
                f"{self.path}: expected the matrix of this kernel, these sequences and this tile size "
                f"({self.fingerprint}), got another one ({known}); choose another out, or delete it and its journal."
            )
        if not self.is_complete and len(whole) < len(text):
            self.journal.write_text(whole, encoding="utf-8")


def _tile(line: str) -> tuple[Tile, int]:
    row, column, checksum = line.split()
    return (int(row), int(column)), int(checksum, 16)


def _checksum(block: np.ndarray) -> int:
    """Return the CRC-32 of a tile's numbers; every NaN counts the same."""
    return zlib.crc32(np.ascontiguousarray(np.where(np.isnan(block), np.nan, block)).data)


class NpyStore(Store):
    """A ``.npy`` file, mapped for one tile at a time so that memory does not fill with it."""

    @property
    def working_path(self) -> Path:
        """The name until the matrix is whole."""
        return self.path.with_name(f"{self.path.name}.part")

    def create(self) -> None:
        """Make the file at its full size, with its room on the disk: a map cannot tell when that runs out."""
        np.lib.format.open_memmap(self.working_path, mode="w+", dtype=np.float64, shape=self.grid.shape)
        if not hasattr(os, "posix_fallocate"):
            return
        try:
            with self.working_path.open("rb+") as file:
                os.posix_fallocate(file.fileno(), 0, self.working_path.stat().st_size)
        except OSError as error:
            self.discard()
            self.journal.unlink()
            raise InputError(
                f"{self.path}: expected room for the matrix, got {error.strerror}; name a path on another disk."
            ) from error

    def place(self, where: tuple[slice, slice], values: np.ndarray) -> None:
        """Map the file, write, and let go of the map."""
        mapped = np.lib.format.open_memmap(self.working_path, mode="r+")
        mapped[where] = values

    def read(self, where: tuple[slice, slice]) -> np.ndarray:
        """Map the file, and copy."""
        there = self.path if self.is_complete else self.working_path
        return np.array(np.load(there, mmap_mode="r", allow_pickle=False)[where])

    def reopen(self) -> None:
        """Take the name away."""
        self.path.replace(self.working_path)

    def sync(self, tiles: list[Tile]) -> None:  # noqa: ARG002
        """Bring the file to the disk."""
        with self.working_path.open("rb+") as file:
            os.fsync(file.fileno())

    def finish(self) -> None:
        """Give the file its name."""
        if self.working_path.exists():
            self.working_path.replace(self.path)

    def begin(self) -> None:
        """As the base class; a crash between renaming and the last line of the journal left a whole matrix."""
        if self.has_journal() and self.path.exists() != self.working_path.exists():
            self._read_journal()
            if self.path.exists() and not self.is_complete:
                self.path.replace(self.working_path)
            elif self.working_path.exists() and self.is_complete:
                self.working_path.replace(self.path)
        super().begin()
        there = self.path if self.is_complete else self.working_path
        expected, got = 8 * self.grid.shape[0] * self.grid.shape[1], there.stat().st_size
        if got < expected:
            hint = "delete it and its journal, and start anew"
            raise FileFormatError(there, f"expected at least {expected:,} bytes", f"got {got:,}", hint)

    def open(self) -> Any:
        """Map the file for reading."""
        return np.load(self.path, mmap_mode="r", allow_pickle=False)


class ZarrStore(Store):
    """A zarr array in a folder, one chunk per tile, without compression: such numbers hardly shrink."""

    @property
    def working_path(self) -> Path:
        """The folder itself: its attributes say whether it is whole."""
        return self.path

    def create(self) -> None:
        """Make the folder with an array of no chunks yet."""
        rows, columns = self.grid.shape
        size = self.grid.size
        _zarr().create_array(
            store=str(self.path),
            shape=(rows, columns),
            chunks=(min(size, rows), min(size, columns)),
            dtype="float64",
            compressors=None,
            fill_value=float("nan"),
            attributes={"format": _FORMAT, "fingerprint": self.fingerprint, "complete": False},
        )

    def begin(self) -> None:
        """As the base class, with the array kept open."""
        _zarr()
        super().begin()
        self._array = _zarr().open_array(str(self.path), mode="r+")

    def place(self, where: tuple[slice, slice], values: np.ndarray) -> None:
        """Write one chunk."""
        self._array[where] = np.ascontiguousarray(values)

    def read(self, where: tuple[slice, slice]) -> np.ndarray:
        """Read one chunk."""
        return np.asarray(self._array[where])

    def reopen(self) -> None:
        """Take back what the attributes say."""
        self._array.attrs["complete"] = False

    def sync(self, tiles: list[Tile]) -> None:
        """Bring the tiles' chunk files to the disk."""
        for i, j in tiles:
            for name in {f"{i}/{j}", f"{j}/{i}"} if self.grid.columns is None else {f"{i}/{j}"}:
                chunk = self.path / "c" / name
                # A chunk of nothing but the fill value has no file.
                if chunk.exists():
                    with chunk.open("rb") as file:
                        os.fsync(file.fileno())

    def finish(self) -> None:
        """Say in the attributes that every chunk is there."""
        self._array.attrs["complete"] = True

    def open(self) -> Any:
        """Open the array for reading."""
        return _zarr().open_array(str(self.path), mode="r")


@contextmanager
def open_store(out: PathLike, grid: TileGrid, fingerprint: str) -> Iterator[Store]:
    """Open the store that the suffix of ``out`` asks for; what was computed is entered in the journal at any end."""
    path = Path(out)
    kinds = {".zarr": ZarrStore, ".npy": NpyStore}
    require(path.suffix in kinds, "expected out to end in .zarr or .npy", f"got {str(out)!r}")
    store = kinds[path.suffix](path, grid, fingerprint)
    path.parent.mkdir(parents=True, exist_ok=True)
    refusal = f"{path}: expected a matrix that no other process writes, got one being computed; wait for it"
    with _begun(store, refusal):
        store.check()
        try:
            yield store
        finally:
            store.commit()


@contextmanager
def _begun(store: Store, refusal: str) -> Iterator[None]:
    """Hold the journal for this process, and begin; a journal that stayed empty goes away again."""
    with locked(store.journal, refusal):
        try:
            store.begin()
            yield
        finally:
            if store.journal.exists() and store.journal.stat().st_size == 0:
                store.journal.unlink()


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise MissingExtraError("zarr", "cluster", "a Gram matrix in zarr") from error
    return zarr

"""The ``.npz`` format: named numpy arrays, never pickled objects."""

import io
import lzma
import struct
import tokenize
import warnings
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sostenuto.checks import FileFormatError, shown
from sostenuto.choices import Task
from sostenuto.data.batch import warn_of_exchanged_axes
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files.options import Options
from sostenuto.data.files.place import Place
from sostenuto.data.files.targets import read_targets, whole_or_real
from sostenuto.data.files.text import most_unpacked, opened, read_bytes, too_large

_NPY = b"\x93NUMPY"
_NAMES = ("X", "y", "lengths", "timespans", "groups")
_BROKEN = (
    ValueError,
    KeyError,
    EOFError,
    OSError,
    SyntaxError,
    RuntimeError,
    MemoryError,
    OverflowError,
    TypeError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""What zip archives and array headers raise when they are damaged."""


def read(path: Path, options: Options) -> SequenceSet:
    """Read ``X`` and what belongs to it from an ``.npz`` file."""
    options.refuse_columns(path)
    arrays = load_arrays(path)
    if "X" not in arrays and "X_train" in arrays:
        raise FileFormatError(
            path, "expected one set of sequences in an array X", "got X_train", "read it with read_parts"
        )
    return _read_part(path, arrays, "", options)


def read_parts(path: Path, options: Options) -> dict[str, SequenceSet]:
    """Read ``X_train`` and ``X_test``, with what belongs to them; a file with ``X`` alone is a training part."""
    options.refuse_columns(path)
    arrays = load_arrays(path)
    if "X_train" not in arrays:
        return {"train": _read_part(path, arrays, "", options)}
    parts = {"train": _read_part(path, arrays, "_train", options)}
    if "X_test" in arrays:
        parts["test"] = _read_part(path, arrays, "_test", replace(options, task=parts["train"].task))
        counts = {name: part.num_channels for name, part in parts.items()}
        if len(set(counts.values())) > 1:
            raise FileFormatError(path, "expected as many channels in X_test as in X_train", f"got {counts}")
    return parts


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Load the arrays of the format, whole or in parts; others are left alone."""
    # An archive is read from its end on, which a packed file cannot be.
    if path.name.lower().endswith(".gz"):
        return _load_arrays(path, io.BytesIO(read_bytes(path)))
    with opened(path) as file:
        return _load_arrays(path, file)


def _load_arrays(path: Path, file: io.BufferedIOBase) -> dict[str, np.ndarray]:
    start = file.read(len(_NPY))
    file.seek(0)
    if not start.startswith(b"PK"):
        got = "got a single .npy array" if start == _NPY else "got other data"
        raise FileFormatError(path, "expected an .npz archive", got, "write it with numpy.savez")
    wanted = {name + part for name in _NAMES for part in ("", "_train", "_test")}
    try:
        # numpy warns of headers written by Python 2, which are no fault of the file.
        with warnings.catch_warnings(), np.load(file, allow_pickle=False) as archive:
            warnings.simplefilter("ignore")
            if sum(info.file_size for info in archive.zip.infolist()) > most_unpacked():
                raise too_large(path)
            present = archive.files
            arrays = {name: _load(path, archive, name) for name in present if name in wanted}
    except FileFormatError:
        raise
    except _BROKEN as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise FileFormatError(
            path, "expected an .npz archive", f"could not unpack it ({reason})", "copy or write it again"
        ) from error
    if "X" not in arrays and "X_train" not in arrays:
        raise FileFormatError(path, "expected an array named X", f"got {shown(present) or 'no array'}")
    return arrays


def _load(path: Path, archive: Any, name: str) -> np.ndarray:
    try:
        array = archive[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise FileFormatError(
            path,
            f"expected {name} to hold numbers or text",
            "got Python objects, which are never unpickled",
            "pad ragged sequences and add an array lengths",
        ) from error
    if not isinstance(array, np.ndarray):
        raise FileFormatError(path, f"expected {name} to be an array", f"got {type(array).__name__}")
    return array


def _read_part(path: Path, arrays: dict[str, np.ndarray], part: str, options: Options) -> SequenceSet:
    values = _values(path, arrays.pop("X" + part), "X" + part, options)
    count, steps = values.shape[:2]
    place = Place(path, unit=f"X{part} row")
    for name in _NAMES[1:]:
        rows = arrays.get(name + part)
        if rows is not None and (rows.ndim == 0 or len(rows) != count):
            raise FileFormatError(
                path, f"expected {name + part} to have {count} rows as X{part}", f"got the shape {rows.shape}"
            )
    lengths = _lengths(place, arrays.get("lengths" + part), count, steps)
    sequences = [row[:length] for row, length in zip(values, lengths, strict=True)]
    for index, sequence in enumerate(sequences):
        if np.isinf(sequence).any():
            raise place.error(index, "expected finite values", "got infinity", "clip or drop it")
    targets, task = _targets(place, arrays.get("y" + part), "y" + part, lengths, steps, options)
    groups = arrays.get("groups" + part)
    return SequenceSet(
        sequences,
        targets,
        task,
        timespans=_timespans(place, arrays.get("timespans" + part), lengths, steps),
        groups=None if groups is None else np.array(_cells(path, groups, "groups" + part), dtype=str),
    )


def _values(path: Path, array: np.ndarray, name: str, options: Options) -> np.ndarray:
    """Bring X to (n, time, channel) float."""
    if array.ndim not in (2, 3):
        raise FileFormatError(
            path, f"expected {name} of shape (n, time) or (n, time, channel)", f"got the shape {array.shape}"
        )
    if array.dtype.kind not in "fiub":
        raise FileFormatError(path, f"expected {name} to hold real numbers", f"got {array.dtype} data")
    if array.ndim == 2:
        array = array[:, :, None]
    elif options.layout == "bct":
        array = array.transpose(0, 2, 1)
    for size, what in zip(array.shape, ("sequence", "step", "channel"), strict=True):
        if size == 0:
            raise FileFormatError(
                path, f"expected at least one {what} in {name}", f"got none with layout {options.layout!r}"
            )
    warn_of_exchanged_axes(array.shape[1], array.shape[2], options.layout)
    return array if array.dtype == np.float32 and array.dtype.isnative else array.astype(np.float64, copy=False)


def _lengths(place: Place, lengths: np.ndarray | None, count: int, steps: int) -> list[int]:
    if lengths is None:
        return [steps] * count
    if lengths.dtype.kind not in "iu" or lengths.ndim != 1:
        raise FileFormatError(
            place.path, "expected lengths to be one whole number per sequence", f"got {lengths.dtype} {lengths.shape}"
        )
    for index, length in enumerate(lengths.tolist()):
        if not 1 <= length <= steps:
            raise place.error(index, f"expected a length from 1 to {steps}", f"got {length}")
    return lengths.tolist()


def _timespans(place: Place, spans: np.ndarray | None, lengths: list[int], steps: int) -> list[np.ndarray] | None:
    if spans is None:
        return None
    if spans.shape != (len(lengths), steps) or spans.dtype.kind not in "fiu":
        raise FileFormatError(
            place.path,
            f"expected timespans to hold numbers of shape {(len(lengths), steps)}",
            f"got {spans.dtype} {spans.shape}",
        )
    checked = [row[:length].astype(float) for row, length in zip(spans, lengths, strict=True)]
    for index, row in enumerate(checked):
        if not (np.isfinite(row) & (row > 0)).all():
            raise place.error(index, "expected finite timespans above 0", f"got {float(row.min())}")
    return checked


def _targets(
    place: Place, array: np.ndarray | None, name: str, lengths: list[int], steps: int, options: Options
) -> tuple[np.ndarray | list[np.ndarray] | None, Task | None]:
    if array is None and options.labeled and options.task != "forecast":
        raise FileFormatError(place.path, f"expected an array {name} of targets", "got none", "add it")
    if array is None or options.task == "forecast":
        return None, options.task
    if array.ndim == 2 and array.shape[1] == 1 and (options.task != "sequence" or steps > 1):
        array = array[:, 0]
    if array.ndim == 1:
        cells = _cells(place.path, array, name)
        return read_targets(cells, options.task, labeled=options.labeled, place=place)
    if options.task == "sequence":
        return _step_targets(place, array, name, lengths, steps), "sequence"
    if options.task != "regression" or array.ndim != 2:
        raise FileFormatError(
            place.path,
            f"expected one target per sequence in {name}",
            f"got the shape {array.shape}",
            "say task='sequence' for a target at every step, task='regression' for several numbers per sequence",
        )
    return _finite(place, array, name), "regression"


def _step_targets(place: Place, array: np.ndarray, name: str, lengths: list[int], steps: int) -> list[np.ndarray]:
    if array.shape[1] != steps:
        raise FileFormatError(
            place.path, f"expected {name} of shape (n, {steps}, …) for task='sequence'", f"got the shape {array.shape}"
        )
    if array.dtype.kind in "US":
        rows = array.reshape(len(array), -1)
        array = np.array([_cells(place.path, row, name) for row in rows], dtype=str).reshape(array.shape)
        return [row[:length] for row, length in zip(array, lengths, strict=True)]
    rows = [
        _finite(place, row[:length], name, index)
        for index, (row, length) in enumerate(zip(array, lengths, strict=True))
    ]
    whole = [whole_or_real(row) for row in rows]
    return whole if all(row.dtype == np.int64 for row in whole) else rows


def _finite(place: Place, array: np.ndarray, name: str, index: int | None = None) -> np.ndarray:
    if array.dtype.kind not in "fiub":
        raise FileFormatError(place.path, f"expected {name} to hold numbers", f"got {array.dtype} data")
    numbers = array.astype(float)
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(np.argwhere(bad)[0][0]) if index is None else index
        raise place.error(row, "expected finite targets", f"got {float(numbers[bad][0])}")
    return numbers


def _cells(path: Path, array: np.ndarray, name: str) -> list[str]:
    """Write one-axis numbers, text or UTF-8 bytes as text, numbers without loss."""
    if array.ndim != 1 or array.dtype.kind not in "fiubUS":
        raise FileFormatError(
            path, f"expected {name} to hold one number or name a sequence", f"got {array.dtype} {array.shape}"
        )
    if array.dtype.kind == "U" and array.dtype.itemsize:
        codes = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).view(np.uint32)
        bad = (codes > 0x10FFFF) | ((codes >= 0xD800) & (codes <= 0xDFFF))
        if bad.any():
            raise FileFormatError(path, f"expected Unicode text in {name}", f"got the code {int(codes[bad][0]):#x}")
    if array.dtype.kind == "S":
        try:
            return np.char.decode(array, "utf-8").tolist()
        except UnicodeDecodeError as error:
            raise FileFormatError(path, f"expected UTF-8 text in {name}", f"got {error.object!r}") from error
    return [str(value) for value in array.tolist()]

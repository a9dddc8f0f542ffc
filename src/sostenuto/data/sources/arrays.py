"""Named arrays in an ``.npz`` file, checked before use and written whole."""

import struct
from pathlib import Path

import numpy as np

from sostenuto.checks import FileFormatError
from sostenuto.data.download import DAMAGED
from sostenuto.data.files.atomic import atomic

_BROKEN = (*DAMAGED, ValueError, SyntaxError, TypeError, MemoryError, OverflowError, struct.error)
"""What damaged zip archives and array headers raise."""


def load_arrays(path: Path, axes: dict[str, int]) -> dict[str, np.ndarray]:
    """Read the arrays named in ``axes`` from ``path``, each with that many axes; never unpickles."""
    wanted = ", ".join(axes)
    try:
        # numpy leaves a file open that it fails to read; one that is handed to it is closed here.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise FileFormatError(path, f"expected an .npz file with the arrays {wanted}", "got a single array")
            absent = [name for name in axes if name not in archive.files]
            if absent:
                raise FileFormatError(path, f"expected the arrays {wanted}", f"missed {', '.join(absent)}")
            arrays = {name: archive[name] for name in axes}
    except FileFormatError:
        raise
    except _BROKEN as error:
        raise FileFormatError(
            path, f"expected an .npz file with the arrays {wanted}", f"could not read it ({error})", "replace the file"
        ) from error
    for name, count in axes.items():
        if arrays[name].ndim != count:
            raise FileFormatError(path, f"expected {name} to have {count} axes", f"got shape {arrays[name].shape}")
    return arrays


def check_same_length(path: Path, arrays: dict[str, np.ndarray], *names: str) -> None:
    """Refuse a file whose arrays ``names`` do not have one row per example."""
    lengths = [len(arrays[name]) for name in names]
    if len(set(lengths)) != 1 or lengths[0] == 0:
        got = ", ".join(f"{name} with {length}" for name, length in zip(names, lengths, strict=True))
        raise FileFormatError(path, "expected as many rows in each array, and at least one", f"got {got}")


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write ``arrays`` to ``path`` as a compressed ``.npz``, whole or not at all."""
    with atomic(path) as temporary:
        np.savez_compressed(temporary, **arrays)  # pyright: ignore[reportArgumentType]

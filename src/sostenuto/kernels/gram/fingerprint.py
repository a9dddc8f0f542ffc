"""What a stored matrix is a matrix of: one hash of kernel, sequences and tile size."""

import hashlib
from typing import Any

import numpy as np

from sostenuto.checks import InputError
from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.version import __version__


def fingerprint(kernel: Any, left: PackedSequences, right: PackedSequences | None, tile_size: int) -> str:
    """Return 32 hexadecimal digits that change with any parameter, value, length, the tile size or the version."""
    digest = hashlib.sha256(f"gram-1 {__version__} {tile_size}\0".encode())
    for part in _described(kernel, "kernel"):
        digest.update(part + b"\0")
    for side in (left, right):
        digest.update(b"none\0" if side is None else b"sequences\0")
        if side is not None:
            digest.update(f"{side.values.shape} {len(side)}\0".encode())
            digest.update(side.borders.tobytes())
            digest.update(np.ascontiguousarray(side.values).data)
    return digest.hexdigest()[:32]


def _described(value: Any, name: str) -> list[bytes]:
    """Write a parameter out so that two are equal where their kernels are; bounds of a search are left out."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return [f"{type(value).__name__} {value!r}".encode()]
    if isinstance(value, (list, tuple)):
        return [b"list", *(part for item in value for part in _described(item, name)), b"end"]
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(value)
        return [f"{array.dtype.str} {array.shape}".encode(), array.tobytes()]
    if hasattr(value, "get_params"):
        kept = {key: item for key, item in value.get_params(deep=False).items() if not key.endswith("_bounds")}
        parts = [part for key in sorted(kept) for part in (key.encode(), *_described(kept[key], key))]
        return [f"{type(value).__module__}.{type(value).__qualname__}".encode(), *parts, b"end"]
    if hasattr(value, "state_dict"):
        items = value.state_dict().items()
        arrays = [part for key, item in items for part in (key.encode(), *_described(item.cpu().numpy(), name))]
        return [str(value).encode(), *arrays]
    if hasattr(value, "__code__"):
        code = value.__code__
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        constants = [part for item in (*code.co_consts, *cells) for part in _code_part(item)]
        return [f"{value.__module__}.{value.__qualname__}".encode(), code.co_code, *constants]
    if callable(value) and hasattr(value, "__qualname__"):
        return [f"{value.__module__}.{value.__qualname__}".encode()]
    raise InputError(
        f"expected {name} to be made of numbers, text, arrays, functions or modules where out= is given, "
        f"got {type(value).__name__}; compute without out=."
    )


def _code_part(item: Any) -> list[bytes]:
    return [item.co_code] if hasattr(item, "co_code") else _described(item, "a constant of the function")

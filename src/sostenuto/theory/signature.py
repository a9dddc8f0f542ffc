"""The signature of a piecewise linear path, in the normalization of fermanian2021 or the usual one."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError, check_choice, check_count, check_fraction, require
from sostenuto.data.batch import SequenceBatch
from sostenuto.ops.signature import levels_backend, path_increments, signature_levels
from sostenuto.types import Lengths, Sequences

NORMALIZATIONS = ("factorial", "none")

Paths = Any
"""One ``(time, channel)`` path, a ``(batch, time, channel)`` array or tensor of them, a list of ``(time, channel)``
paths of any lengths, or a `SequenceBatch`."""


@dataclass(frozen=True, eq=False)
class PathSignature:
    """The levels of one signature or of a batch of them, level 0 first.

    ``signature[k]`` is X^k, of shape ``(…, d, …, d)`` with k axes of size d; the leading axes are those of the paths
    (none, or batch), then ``time`` when every prefix was asked for. ``signature[0]`` is 1.
    """

    levels: tuple[Float[Tensor, "..."], ...]
    normalization: str
    prefixes: bool
    backend: str

    def __getitem__(self, k: int) -> Tensor:
        return self.levels[k]

    def __len__(self) -> int:
        """Count the levels, level 0 included."""
        return len(self.levels)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.levels)

    @property
    def leading(self) -> torch.Size:
        """The axes before those of the tensors: batch and time, as far as there are any."""
        return self.levels[0].shape

    def flat(self) -> Float[Tensor, "... size"]:
        """Lay all levels out in one axis, 1 + d + … + d^N long."""
        return torch.cat([level.reshape(*self.leading, -1) for level in self.levels], dim=-1)

    def inner(self, other: "PathSignature") -> Float[Tensor, "..."]:
        """Return ⟨S(X), S(Y)⟩ = Σ_k ⟨X^k, Y^k⟩, the signature kernel truncated at N (fermanian2021, section 2.2)."""
        same = self.normalization == other.normalization and len(self) == len(other)
        require(same, "expected two signatures of one normalization and level", "got different ones")
        return (self.flat() * other.flat()).sum(-1)

    def norm(self) -> Float[Tensor, "..."]:
        """Return ‖S(X)‖ in the tensor space of fermanian2021, eq. (6)."""
        return torch.linalg.vector_norm(self.flat(), dim=-1)


def signature(
    path: Paths,
    level: int,
    *,
    normalization: str = "factorial",
    prefixes: bool = False,
    basepoint: bool = False,
    total_variation: float | None = None,
    backend: str = "auto",
) -> PathSignature:
    """Return the signature of the piecewise linear path through the points of ``path``, to ``level`` N.

    X^k = k! ∫…∫_{0≤u_1<…<u_k≤1} dX_{u_1} ⊗ … ⊗ dX_{u_k}, exactly, by Chen's identity; ``normalization="none"`` is the
    usual signature, without k!. Reference: fermanian2021, definition 1.

    Args:
        path: one path ``(time, channel)``, a batch ``(batch, time, channel)``, a list of paths of any lengths, or a
            `SequenceBatch`. Tensors keep their dtype and their graph; other numbers become float64.
        level: N ≥ 1.
        normalization: ``"factorial"`` (the paper's) or ``"none"``.
        prefixes: give the signature of the path up to every point, ``(…, time, d, …)``; past the end of a shorter path
            it stays what it is at the end, which is the signature of the path stopped there.
        basepoint: let the path begin at the origin and go to its first point; else it begins at its first point.
        total_variation: L in [0, 1); append the time channel (1 − L)/2 · t of fermanian2021, proposition 2, last. None:
            no time. `scale_paths` brings data to a total variation of at most L.
        backend: ``"reference"``, ``"cpu"`` (compiled), ``"pysiglib"``, or ``"auto"``: see
            `sostenuto.ops.signature.levels_backend`. The answer records what was used.

    >>> line = torch.tensor([[5.0, 5.0], [6.0, 7.0]], dtype=torch.float64)
    >>> found = signature(line, 3)
    >>> found[1].tolist(), found[2].tolist()  # a straight line: b and b ⊗ b, example 2 of the paper
    ([1.0, 2.0], [[1.0, 2.0], [2.0, 4.0]])
    >>> signature(line, 3, normalization="none")[2].tolist()
    [[0.5, 1.0], [1.0, 2.0]]
    """
    check_count("level", level)
    check_choice("normalization", normalization, NORMALIZATIONS)
    points, lengths, single = as_points(path)
    time_scale = 0.0 if total_variation is None else time_weight(total_variation)
    increments = path_increments(points, lengths, basepoint=basepoint, time_scale=time_scale)
    chosen = levels_backend(backend, increments, prefixes=prefixes)
    flat = signature_levels(increments, level, prefixes=prefixes, backend=chosen)
    flat = flat[0] if single else flat
    channels = increments.shape[-1]
    parts = flat.split([channels**k for k in range(1, level + 1)], dim=-1)
    scales = [float(math.factorial(k)) if normalization == "factorial" else 1.0 for k in range(1, level + 1)]
    levels = [
        (part * scale).unflatten(-1, (channels,) * k)
        for k, (part, scale) in enumerate(zip(parts, scales, strict=True), start=1)
    ]
    for k, values in enumerate(levels, start=1):
        require(
            bool(torch.isfinite(values).all()),
            f"expected a signature that {values.dtype} can hold",
            f"got an overflow in level {k} of {level}",
            "bring the paths to a total variation below 1 by scale_paths, or lower level",
        )
    return PathSignature((torch.ones_like(flat[..., 0]), *levels), normalization, prefixes, chosen)


def time_weight(total_variation: float) -> float:
    """Return (1 − L)/2, the speed of the time channel in fermanian2021, proposition 2.

    >>> time_weight(0.5)
    0.25
    """
    check_fraction("total_variation", total_variation)
    return (1 - total_variation) / 2


def as_points(path: Paths) -> tuple[Sequences, Lengths, bool]:
    """Bring paths to one padded batch, their lengths, and whether it was a single path."""
    if isinstance(path, SequenceBatch):
        require(path.values.is_floating_point(), "expected real sequences", "got token ids", "embed them first")
        return path.values, path.lengths, False
    if isinstance(path, (list, tuple)) and not _is_one_path(path):
        return *_padded([_points(item, index) for index, item in enumerate(path)]), False
    points = _points(path, None)
    require(points.ndim in (2, 3), "expected a path of 2 axes or a batch of 3", f"got {points.ndim} axes")
    single = points.ndim == 2
    points = points[None] if single else points
    require(min(points.shape) > 0, "expected paths, points and channels", f"got the shape {tuple(points.shape)}")
    return points, torch.full((len(points),), points.shape[1]), single


def _is_one_path(path: Sequence[Any]) -> bool:
    """Whether a list is the points of one path written out, not a list of paths."""
    return (
        len(path) > 0
        and all(np.ndim(item) == 1 for item in path if not isinstance(item, Tensor))
        and not any(isinstance(item, Tensor) for item in path)
    )


def _points(item: Any, index: int | None) -> Tensor:
    where = "" if index is None else f"path {index}: "
    if not isinstance(item, Tensor):
        try:
            item = torch.from_numpy(np.array(item, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}expected numbers, got {type(item).__name__} ({error}).") from error
    if not item.is_floating_point():
        item = item.to(torch.float64)
    if index is not None and (item.ndim != 2 or min(item.shape) == 0):
        raise InputError(f"{where}expected (time, channel), got the shape {tuple(item.shape)}.")
    if not bool(torch.isfinite(item).all()):
        raise InputError(f"{where}expected finite values, got NaN or infinity; fill them in or drop the path.")
    return item


def _padded(paths: list[Tensor]) -> tuple[Sequences, Lengths]:
    require(len(paths) > 0, "expected at least one path", "got none")
    channels = paths[0].shape[1]
    for index, each in enumerate(paths):
        if each.shape[1] != channels:
            raise InputError(f"path {index}: expected {channels} channels as in path 0, got {each.shape[1]}.")
    return torch.nn.utils.rnn.pad_sequence(paths, batch_first=True), torch.tensor([len(each) for each in paths])

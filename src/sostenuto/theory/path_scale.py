"""How long paths are, and the one factor that brings a data set's paths to a total variation below 1."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sostenuto.checks import InputError, check_fraction
from sostenuto.data.batch import SequenceBatch
from sostenuto.ops.signature import path_increments
from sostenuto.results import Record
from sostenuto.theory.signature import Paths, as_points


def path_lengths(paths: Paths, *, basepoint: bool = False) -> Float[Tensor, " batch"]:
    """Return ‖X‖_TV = Σ_j ‖x_j − x_{j−1}‖ of each path; with ``basepoint`` ‖x_1‖ besides.

    Reference: fermanian2021, section 1.

    >>> path_lengths([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]).tolist()
    [9.0]
    """
    points, lengths, _ = as_points(paths)
    return torch.linalg.vector_norm(path_increments(points, lengths, basepoint=basepoint), dim=-1).sum(-1)


@dataclass(frozen=True)
class PathScale(Record):
    """The factor found on some paths, to be used on others too.

    ``longest`` is the largest total variation that was found, ``total_variation`` the L that it was brought to.
    """

    scale: float
    total_variation: float
    longest: float
    count: int
    basepoint: bool

    def apply(self, paths: Paths) -> Paths:
        """Multiply paths, the same or new ones, by the scale; they come back in the form in which they came."""
        if isinstance(paths, SequenceBatch):
            return replace(paths, values=paths.values * self.scale)
        if isinstance(paths, (list, tuple)):
            return [self.apply(path) for path in paths]
        scaled: Any = paths * self.scale
        return scaled

    def within(self, paths: Paths) -> Bool[Tensor, " batch"]:
        """Say which paths, once scaled, vary by at most L in all: where the theorems of fermanian2021 apply."""
        return path_lengths(self.apply(paths), basepoint=self.basepoint) <= self.total_variation


def scale_paths(paths: Paths, total_variation: float = 0.5, *, basepoint: bool = False) -> PathScale:
    """Find the factor that brings the longest of ``paths`` to the total variation L < 1.

    fermanian2021 assumes that all paths begin at 0 and that ‖X‖_TV ≤ L. Signatures do not see where a path begins; with
    ``basepoint`` the way from the origin to the first point counts.

    >>> found = scale_paths([[[0.0], [3.0]], [[0.0], [2.0], [0.0]]], total_variation=0.5)
    >>> round(found.scale, 6), found.longest, found.within([[[0.0], [5.0]]]).tolist()
    (0.125, 4.0, [False])
    """
    check_fraction("total_variation", total_variation)
    lengths = path_lengths(paths, basepoint=basepoint)
    longest = float(lengths.max())
    if total_variation == 0 or longest == 0:
        raise InputError(
            f"expected total_variation above 0 and a path that moves, got {total_variation} and paths of length "
            f"{longest}; there is nothing to scale."
        )
    # A hair below, so that rounding does not bring the longest path above L.
    return PathScale(total_variation / longest * (1 - 1e-12), total_variation, longest, len(lengths), basepoint)

"""The level-wise kernel on the CPU: Numba, one path against up to 64 at a time, so that every operation is a vector's.

No contraction or reordering is allowed to the compiler here: an entry is then the same number, bit for bit, whichever
path comes first and whatever else is in the batch.
"""

from typing import no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops._cpu.threads import run_blocks

LANES = 64
"""Paths on the right that are worked on together, at most; measured best between 8 and 128."""

_OPTIONS = OPTIONS | {"fastmath": False}


def forward(
    left: Float[Tensor, "n S d"], right: Float[Tensor, "m R d"], level: int, scaled: int
) -> tuple[Float[Tensor, "n m levels"], Float[Tensor, "n m _"]]:
    """Give ⟨X^k, Y^k⟩ and its derivative by the logarithm of a scale on the first ``scaled`` channels.

    The derivative is computed where ``scaled`` is above 0 and else left empty, ``(n, m, 0)``.
    """
    rows, counts = _compressed(left)
    lanes, members, ends = _lanes(right)
    shape = (len(left), len(right), level + 1)
    values, slopes = np.ones(shape), np.zeros(shape if scaled else (*shape[:2], 0))
    symmetric = left is right

    def kernel(start: int, stop: int) -> None:
        for index in range(start, stop):
            row, block = divmod(index, len(lanes))
            if symmetric and members[block].max() < row:
                continue
            corner = _program(rows[row, : counts[row]], lanes[block], level, scaled)
            # Each path is read at its own end: what pads it would change the last bits.
            corners = corner[ends[block], :, :, np.arange(len(ends[block]))]
            values[row, members[block]] = corners[:, 0]
            if scaled:
                slopes[row, members[block]] = corners[:, 1]

    pairs = len(left) * len(lanes)
    run_blocks(kernel, pairs, max(1, min(8, pairs // (4 * torch.get_num_threads()))))
    if symmetric:
        _mirror(values)
        _mirror(slopes)
    return torch.from_numpy(values), torch.from_numpy(slopes)


def diagonal(increments: Float[Tensor, "n S d"], level: int) -> Float[Tensor, "n levels"]:
    """Give ⟨X^k, X^k⟩ of every path."""
    rows, counts = _compressed(increments)
    values = np.ones((len(rows), level + 1))

    def kernel(start: int, stop: int) -> None:
        for index in range(start, stop):
            path = rows[index, : counts[index]]
            values[index] = _program(path, path[:, :, None], level, 0)[-1, 0, :, 0]

    run_blocks(kernel, len(rows), 1)
    return torch.from_numpy(values)


def _compressed(increments: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Move the increments that are not zero to the front: the others change nothing. Also count them."""
    array = increments.detach().numpy().astype(np.float64, copy=False)
    moving = array.any(axis=2)
    order = np.argsort(~moving, axis=1, kind="stable")
    return np.ascontiguousarray(np.take_along_axis(array, order[:, :, None], axis=1)), moving.sum(axis=1)


def _lanes(right: Tensor) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Lay paths of like length side by side, (segment, channel, lane); also say which they are and where they end."""
    rows, counts = _compressed(right)
    order = np.argsort(counts, kind="stable")
    members = [order[start : start + LANES] for start in range(0, len(order), LANES)]
    lanes = [np.ascontiguousarray(rows[each, : counts[each[-1]]].transpose(1, 2, 0)) for each in members]
    return lanes, members, [counts[each] for each in members]


def _mirror(values: np.ndarray) -> None:
    row, column = np.tril_indices(values.shape[0], -1)
    values[row, column] = values[column, row]


@no_type_check
@njit(**_OPTIONS)
def _program(x, y, level, scaled):
    """Run over all cells; return the levels after x and each segment of y, (R + 1, parts, level + 1, lanes).

    Part 0 of every array holds values, part 1, where asked for, derivatives. ``across`` sums what ends in the present
    segment of x and an earlier one of y, by level k and run p of that segment: place k(k−1)/2 + p − 1. ``down`` is the
    same with the paths exchanged, ``corner`` the kernel of the parts of both paths before a corner of the grid.
    """
    R, L = y.shape[0], y.shape[2]
    width = level * (level + 1) // 2
    parts = 2 if scaled else 1
    across, down = np.zeros((parts, width, L)), np.zeros((R, parts, width, L))
    corner, before = np.zeros((R + 1, parts, level + 1, L)), np.zeros((parts, level + 1, L))
    corner[:, 0, 0, :] = 1.0
    g, t = np.empty((2, L)), np.empty((parts, L))
    for i in range(x.shape[0]):
        across[:] = 0.0
        before[:] = 0.0
        before[0, 0, :] = 1.0
        for j in range(R):
            _products(x[i], y[j], scaled, g)
            _cell(across, down[j], before, g, t, level)
            _advance(corner, j, before, across, down[j], t, level)
    return corner


@no_type_check
@njit(**_OPTIONS)
def _products(a, b, scaled, g):
    """Give ⟨a, b⟩ for every lane, and its derivative by the logarithm of the scale of the first channels."""
    g[:] = 0.0
    for c in range(a.shape[0]):
        if c < scaled:
            for e in range(g.shape[1]):
                g[1, e] += 2.0 * (a[c] * b[c, e])
        for e in range(g.shape[1]):
            g[0, e] += a[c] * b[c, e]


@no_type_check
@njit(**_OPTIONS)
def _cell(across, down, before, g, t, level):
    """Add to the rows and columns what ends in this cell. From the highest level down, every start is still old."""
    for m in range(level - 1, -1, -1):
        place = m * (m - 1) // 2 - 1
        _chain(before, m, across, down, m, 0, g, t, level)
        for d in range(1, m + 1):
            _chain(across, place + d, across, down, m, d, g, t, level)
            _chain(down, place + d, down, across, m, d, g, t, level)


@no_type_check
@njit(**_OPTIONS)
def _chain(source, row, longer, fresh, m, d, g, t, level):
    """Repeat both segments r times after words of level m that end with d repeats on one side; add each to its sums."""
    for part in range(t.shape[0]):
        for e in range(t.shape[1]):
            t[part, e] = source[part, row, e]
    for r in range(1, level - m + 1):
        weight = 1.0 / (r * (r + d))
        place = (m + r) * (m + r - 1) // 2 - 1 + r
        if t.shape[0] == 2:
            for e in range(t.shape[1]):
                slope = (t[1, e] * g[0, e] + t[0, e] * g[1, e]) * weight
                t[1, e] = slope
                longer[1, place + d, e] += slope
                fresh[1, place, e] += slope
        for e in range(t.shape[1]):
            value = t[0, e] * g[0, e] * weight
            t[0, e] = value
            longer[0, place + d, e] += value
            fresh[0, place, e] += value


@no_type_check
@njit(**_OPTIONS)
def _advance(corner, j, before, across, down, t, level):
    """Give the kernel up to this cell's far corner: the mean of the way along the row and of the way down the column.

    The two ways are equal but for rounding; their mean does not change when the paths change places.
    """
    for part in range(t.shape[0]):
        for k in range(1, level + 1):
            place = k * (k - 1) // 2 - 1
            for e in range(t.shape[1]):
                before[part, k, e] = corner[j + 1, part, k, e]
                t[part, e] = 0.0
            for p in range(1, k + 1):
                for e in range(t.shape[1]):
                    t[part, e] += down[part, place + p, e]
            for e in range(t.shape[1]):
                corner[j + 1, part, k, e] = corner[j, part, k, e] + t[part, e]
                t[part, e] = 0.0
            for p in range(1, k + 1):
                for e in range(t.shape[1]):
                    t[part, e] += across[part, place + p, e]
            for e in range(t.shape[1]):
                along = before[part, k, e] + t[part, e]
                corner[j + 1, part, k, e] = 0.5 * (corner[j + 1, part, k, e] + along)


def feature_products(left: Float[Tensor, "n F"], right: Float[Tensor, "m F"]) -> Float[Tensor, "n m"]:
    """Give every inner product, each summed in the order of the features: the same bits whatever the batch."""
    rows = left.detach().contiguous().numpy()
    columns = np.ascontiguousarray(right.detach().numpy().T)
    products = np.zeros((len(left), len(right)))
    run_blocks(lambda start, stop: _feature_products(rows, columns, products, start, stop), len(left), 8)
    return torch.from_numpy(products)


@no_type_check
@njit(**_OPTIONS)
def _feature_products(rows, columns, products, start, stop):
    for first in range(0, columns.shape[1], LANES):
        last = min(first + LANES, columns.shape[1])
        for i in range(start, stop):
            for f in range(rows.shape[1]):
                value = rows[i, f]
                for e in range(first, last):
                    products[i, e] += value * columns[f, e]

"""Sums of tiles added up on the CPU: Numba, one pass over all of them."""

from typing import no_type_check

import numpy as np

from sostenuto.ops._cpu.columns import copy_row
from sostenuto.ops._cpu.compiled import procedure

TURNED = 16
"""Rows of a matrix that are turned into columns at once."""


@no_type_check
@procedure
def add_tiles(d_matrices, d_vectors, H, matrices, vectors):
    """Add up the sums of all tiles: each layer's matrix as V lies, one after the other, and its vectors."""
    tiles, L = d_vectors.shape[:2]
    low, at, rows = 0, 0, np.empty((TURNED, H))
    for layer in range(L):
        depth = H if layer > 0 else d_matrices.shape[1] - (L - 1) * H
        part = matrices[at : at + depth * H].reshape(H, depth)
        for first in range(0, depth, TURNED):
            count = min(TURNED, depth - first)
            rows[:] = 0
            for tile in range(tiles):
                for row in range(count):
                    _add(d_matrices[tile, low + first + row], rows[row])
            for c in range(H):
                target = part[c, first : first + count]
                for row in range(count):
                    target[row] = rows[row, c]
        rows[:] = 0
        for kind in range(3):
            for tile in range(tiles):
                _add(d_vectors[tile, layer, kind], rows[kind])
            copy_row(vectors[layer, kind], rows[kind])
        at += depth * H
        low += depth


@no_type_check
@procedure
def _add(row, total):
    for c in range(len(total)):
        total[c] += row[c]

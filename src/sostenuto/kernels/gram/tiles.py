"""The tiles of a Gram matrix: which there are, what one is made of, and many of them on threads."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sostenuto.kernels.gram.packed import PackedSequences

Tile = tuple[int, int]
"""Row and column of a tile in the grid."""


@dataclass(frozen=True)
class TileGrid:
    """A matrix of ``rows`` by ``columns`` cut into tiles of ``size``; without ``columns`` it is square and symmetric.

    >>> grid = TileGrid(5, None, 2)
    >>> list(grid.tiles()), grid.span(2, 5)
    ([(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)], slice(4, 5, None))
    """

    rows: int
    columns: int | None
    size: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.rows, self.rows if self.columns is None else self.columns

    def tiles(self) -> Iterator[Tile]:
        """Yield the tiles that have to be computed, row by row."""
        across = [-(-extent // self.size) for extent in self.shape]
        for i in range(across[0]):
            for j in range(i if self.columns is None else 0, across[1]):
                yield i, j

    def span(self, index: int, extent: int) -> slice:
        """Return the rows (or columns) of the tiles at ``index``."""
        return slice(index * self.size, min((index + 1) * self.size, extent))

    def placed(self, tile: Tile, block: np.ndarray) -> Iterator[tuple[tuple[slice, slice], np.ndarray]]:
        """Say where a tile's numbers belong: once, and mirrored where the matrix is symmetric."""
        rows, columns = self.span(tile[0], self.shape[0]), self.span(tile[1], self.shape[1])
        yield (rows, columns), block
        if self.columns is None and tile[0] != tile[1]:
            yield (columns, rows), block.T


@dataclass(frozen=True, eq=False)
class Work:
    """A kernel, its two arguments and the grid; ``right`` is None for K(X)."""

    kernel: Any
    left: PackedSequences
    right: PackedSequences | None
    grid: TileGrid


def compute_tile(
    kernel: Any, left: PackedSequences, right: PackedSequences | None, grid: TileGrid, tile: Tile
) -> np.ndarray:
    """Compute one tile; a diagonal one of a symmetric matrix is made exactly symmetric from its upper half."""
    rows = grid.span(tile[0], grid.shape[0])
    columns = grid.span(tile[1], grid.shape[1])
    above = left.cut(rows.start, rows.stop)
    if right is None and tile[0] == tile[1]:
        block = _values(kernel, above, None)
        return np.triu(block) + np.triu(block, 1).T
    beside = (left if right is None else right).cut(columns.start, columns.stop)
    return np.ascontiguousarray(_values(kernel, above, beside))


def _values(kernel: Any, above: list[np.ndarray], beside: list[np.ndarray] | None) -> np.ndarray:
    """Call the kernel; one of our own is spared a second look at sequences that were checked as a whole."""
    from sostenuto.kernels.base import SequenceKernel

    if isinstance(kernel, SequenceKernel):
        return kernel.gram(above, above if beside is None else beside)
    return kernel(above) if beside is None else kernel(above, beside)


def computed_on_threads(work: Work, todo: list[Tile]) -> Generator[tuple[Tile, np.ndarray], None, None]:
    """Compute tiles on as many threads as torch uses; few of them wait to be taken at any time."""
    threads = torch.get_num_threads()

    def compute(tile: Tile) -> np.ndarray:
        return compute_tile(work.kernel, work.left, work.right, work.grid, tile)

    if threads == 1 or len(todo) < 2:
        for tile in todo:
            yield tile, compute(tile)
        return
    waiting: deque[tuple[Tile, Future[np.ndarray]]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="gram")
    try:
        for tile in todo:
            waiting.append((tile, pool.submit(compute, tile)))
            if len(waiting) > threads:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        pool.shutdown(cancel_futures=True)

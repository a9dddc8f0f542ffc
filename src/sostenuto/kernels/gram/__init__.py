"""Gram matrices of any size: symmetric tiles, on threads or on a cluster, in memory or on disk.

Only this folder knows dask and zarr. scikit-learn is loaded with the first kernel, not with this module.
"""

from collections.abc import Generator
from contextlib import closing
from typing import Any

import numpy as np
from tqdm import tqdm

from sostenuto.checks import check_count, require
from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.kernels.gram.tiles import Tile, TileGrid, Work, computed_on_threads
from sostenuto.types import PathLike

__all__ = ["gram"]


def gram(
    kernel: Any,
    X: Any,  # noqa: N803
    Y: Any = None,  # noqa: N803
    *,
    client: Any = None,
    out: PathLike | None = None,
    progress: bool = True,
    tile_size: int = 512,
) -> Any:
    """Compute K(X, Y), or the symmetric K(X), by tiles: K_ij = k(x_i, y_j) (alemohammad2021, eq. (11), for the RNTK).

    Of a symmetric matrix only the tiles on and above the diagonal are computed; the others are their mirror images. A
    tile depends on its own sequences alone, so it has the same bits wherever it is computed.

    Args:
        kernel: any kernel of `sostenuto.kernels`, also inside sums and products, on sequences.
        X: an array ``(n, time)`` or ``(n, time, channel)``, or a list of ``(time, channel)`` arrays of any lengths.
        Y: the same, of m sequences; None for K(X).
        client: a `distributed.Client`. The sequences are sent to every worker once, the tiles come back as they are
            ready. A lost worker costs time only: its tiles are computed by the others, and sequences that were lost
            with it are sent again. Needs ``pip install 'sostenuto[cluster]'``.
        out: where to write the matrix: a path that ends in ``.zarr`` (chunks of one tile) or ``.npy`` (memory-mapped).
            Memory then holds a few tiles and the sequences, never the matrix. Finished tiles are recorded in
            ``<out>.journal``: the same call after a crash resumes; another kernel, other sequences or
            another tile size are refused. A ``.npy`` gets its name when it is whole, a zarr array then says
            ``complete`` in its attributes.
        progress: show a progress bar on standard error.
        tile_size: sequences on a side of a tile.

    Returns:
        a float64 array ``(n, n)`` or ``(n, m)``: a numpy array; with ``out`` a read-only `zarr.Array` or `np.memmap`.

    >>> from sostenuto.kernels import RBF
    >>> gram(RBF(), [[0.0], [1.0], [1.0, 0.5]], progress=False, tile_size=2).round(3)
    array([[1.   , 0.607, 0.535],
           [0.607, 1.   , 0.882],
           [0.535, 0.882, 1.   ]])
    """
    from sostenuto.kernels.base import checked_sequences

    check_count("tile_size", tile_size)
    vector = getattr(kernel, "requires_vector_input", None)
    require(vector is not None, "expected a kernel of sostenuto.kernels", f"got {type(kernel).__name__}")
    require(not vector, "expected a kernel on sequences", f"got {kernel!r}, which takes vectors of one length")
    left = PackedSequences.pack(checked_sequences(X, "X"))
    right = None if Y is None else PackedSequences.pack(checked_sequences(Y, "Y"))
    if right is not None:
        ours, theirs = left.num_channels, right.num_channels
        require(ours == theirs, f"Y: expected {ours} channels as in X", f"got {theirs}")
    if hasattr(kernel, "check_parameters"):
        kernel.check_parameters()
    work = Work(kernel, left, right, TileGrid(len(left), None if right is None else len(right), tile_size))
    if out is None:
        return _in_memory(work, client, progress)
    from sostenuto.kernels.gram.fingerprint import fingerprint
    from sostenuto.kernels.gram.storage import open_store

    with open_store(out, work.grid, fingerprint(kernel, left, right, tile_size)) as store:
        todo = [tile for tile in work.grid.tiles() if tile not in store.finished]
        for tile, block in _computed(work, todo, client, progress):
            store.write(tile, block)
        return store.complete()


def _in_memory(work: Work, client: Any, progress: bool) -> np.ndarray:
    grid = work.grid
    matrix = np.empty(grid.shape)
    for tile, block in _computed(work, list(grid.tiles()), client, progress):
        for where, values in grid.placed(tile, block):
            matrix[where] = values
    return matrix


def _computed(
    work: Work, todo: list[Tile], client: Any, progress: bool
) -> Generator[tuple[Tile, np.ndarray], None, None]:
    if client is None:
        source = computed_on_threads(work, todo)
    else:
        from sostenuto.kernels.gram.cluster import computed_on_cluster

        source = computed_on_cluster(work, todo, client)
    total = sum(1 for _ in work.grid.tiles())
    with (
        closing(source),
        tqdm(total=total, initial=total - len(todo), desc="gram", unit="tile", disable=not progress) as bar,
    ):
        for tile, block in source:
            yield tile, block
            bar.update()

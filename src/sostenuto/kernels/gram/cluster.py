"""Tiles on a cluster: dask.distributed moves the sequences out once and the tiles back."""

import time
from collections.abc import Generator
from typing import Any

import numpy as np

from sostenuto.checks import InputError, MissingExtraError, SostenutoError, require
from sostenuto.kernels.gram.tiles import Tile, Work, compute_tile

_ROUNDS = 4
"""How often in a row everything may be lost, without one tile gained, before the cluster is called broken."""


class _LostError(Exception):
    """A worker was lost while the sequences were sent."""


def connect(address: str) -> Any:
    """Return a `distributed.Client` of the scheduler at ``address``, such as ``tls://10.0.0.1:8786``.

    Certificates are those of dask's own settings (``distributed.comm.tls``).
    """
    distributed = _distributed()
    try:
        return distributed.Client(address, timeout="20s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"expected a scheduler at {address!r}, got {error}; start one for this machine with "
            "dask scheduler --host 127.0.0.1 --no-dashboard, and one for a network with certificates: docs/kernels.md."
        ) from error


def computed_on_cluster(work: Work, todo: list[Tile], client: Any) -> Generator[tuple[Tile, np.ndarray], None, None]:
    """Compute tiles on the workers of ``client``; two a thread are under way at any time.

    A tile is a pure function of the scattered sequences, so one that is lost with its worker is computed again. Where
    the sequences themselves are lost (every worker that held them is gone), they are sent again.
    """
    distributed = _distributed()
    require(
        isinstance(client, distributed.Client),
        "expected a distributed.Client as client",
        f"got {type(client).__name__}",
    )
    require(not client.asynchronous, "expected a client that blocks", "got an asynchronous one", "leave it out")
    left, lost = list(todo), 0
    while left:
        before = len(left)
        try:
            for tile, block in _round(work, left, client, distributed):
                yield tile, block
                left.remove(tile)
        except distributed.KilledWorker as error:
            raise SostenutoError(
                f"a tile ended {error.last_worker} and others before it, most likely for want of memory; "
                "pass a smaller tile_size or give the workers more."
            ) from error
        except (
            _LostError,
            distributed.comm.CommClosedError,
            distributed.client.FutureCancelledError,
            distributed.scheduler.NoValidWorkerError,
        ) as error:
            lost = 0 if len(left) < before else lost + 1
            if lost >= _ROUNDS:
                raise SostenutoError(
                    f"the cluster lost the sequences {lost} times in a row; look at its workers."
                ) from error
            time.sleep(lost)


def _round(
    work: Work, todo: list[Tile], client: Any, distributed: Any
) -> Generator[tuple[Tile, np.ndarray], None, None]:
    """Send the sequences, then keep a window of tiles under way until all are back."""
    try:
        client.wait_for_workers(1, timeout="60s")
    except TimeoutError as error:
        raise SostenutoError("expected a worker of the cluster, got none for a minute; start one.") from error
    sides = [work.left] if work.right is None else [work.left, work.right]
    try:
        sent = client.scatter(sides, broadcast=True, hash=False)
    except (OSError, KeyError) as error:  # so dask says that a worker went away while it was sent to
        raise _LostError from error
    left, right = sent[0], (sent[1] if len(sent) > 1 else None)
    window = 2 * max(1, sum(client.nthreads().values()))
    names = {}
    waiting = iter(todo)
    ready = distributed.as_completed(loop=client.loop)

    def submit() -> None:
        tile = next(waiting, None)
        if tile is not None:
            future = client.submit(compute_tile, work.kernel, left, right, work.grid, tile, pure=False)
            names[future.key] = tile
            ready.add(future)

    try:
        for _ in range(window):
            submit()
        for future in ready:
            block = future.result()
            tile = names.pop(future.key)
            future.release()
            submit()
            yield tile, block
    finally:
        client.cancel(list(ready.futures), force=True)
        ready.clear()


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("distributed", "cluster", "a Gram matrix on a cluster") from error
    return distributed

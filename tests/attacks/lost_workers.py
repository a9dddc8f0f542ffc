"""Workers of a dask cluster that are killed while a Gram matrix is computed: it has the same numbers in the end."""

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from sostenuto.checks import SostenutoError
from sostenuto.kernels import RBF, gram
from tests.attacks.outcome import Bound, Outcome

PROMISE = "the same matrix, to the bit, or one sentence that the cluster is broken"
WORKERS = 3


class Slow(RBF):
    """A kernel whose tiles take long enough to be struck."""

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:  # noqa: N803
        time.sleep(0.02)
        return super().__call__(X, Y, eval_gradient)


def attack(bound: Bound, folder: Path) -> Outcome:
    """Kill one to three of three workers at random moments; their nannies start them again."""
    import distributed

    outcome = Outcome("lost dask workers", PROMISE)
    rng = random.Random(bound.seed)
    sequences = np.random.default_rng(0).normal(size=(40, 6))
    expected = gram(RBF(), sequences, progress=False, tile_size=4)
    with (
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=60
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        for number in bound.numbers():
            client.wait_for_workers(WORKERS, timeout="120s")
            victims = rng.randint(1, WORKERS)
            moments = sorted(rng.uniform(0.0, 0.8) for _ in range(victims))
            killer = threading.Thread(target=_kill, args=(client, moments, rng.randrange(1 << 30)))
            killer.start()
            out = folder / f"gram{number}.npy" if number % 2 else None
            try:
                found = gram(Slow(), sequences, client=client, out=out, progress=False, tile_size=4)
                same = np.array_equal(np.asarray(found), expected)
                if same:
                    outcome.add(f"{victims} of {WORKERS} workers killed, equal")
                else:
                    outcome.fail("broken promise", f"{victims} victims: another matrix")
            except SostenutoError as error:
                outcome.add(f"one sentence: {type(error).__name__}")
            except Exception as error:
                outcome.fail("broken promise", f"{victims} victims: {error!r}")
            killer.join()
    return outcome


def _kill(client: Any, moments: list[float], seed: int) -> None:
    rng, begun = random.Random(seed), time.monotonic()
    for moment in moments:
        time.sleep(max(0.0, begun + moment - time.monotonic()))
        # Asked of the cluster's own nannies: a worker that has just died cannot be asked.
        alive = [worker.pid for worker in client.cluster.workers.values() if worker.pid]
        if alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(alive), signal.SIGKILL)

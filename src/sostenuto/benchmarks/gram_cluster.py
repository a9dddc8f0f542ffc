"""A Gram matrix beyond memory on two workers: time, peak memory of every process, the same bits, a worker killed.

A dask scheduler and two workers of one thread run as processes of their own. The matrix of ``count`` sequences goes
into zarr, with the process that writes it apart as well, so that its peak memory is its own. Beside it a smaller matrix
is computed here and there, and once more with one worker killed after the first tiles.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sostenuto.checks import require
from sostenuto.kernels import RecurrentNTK
from sostenuto.kernels.gram import gram
from sostenuto.kernels.gram.cluster import connect

TITLE = "a Gram matrix of the recurrent NTK on two dask workers into zarr: time, peak memory, lost workers"

SHAPE = {"count": 20_000, "steps": 100, "small": 1500, "tile_size": 512}


def run(progress: bool = True, shape: dict[str, int] | None = None) -> dict[str, Any]:
    """Return seconds, peak bytes of each process, and whether all matrices agree bit by bit."""
    shape = SHAPE if shape is None else shape
    with tempfile.TemporaryDirectory() as folder, _cluster() as (address, processes):
        program = f"from {__name__} import measure_here as m; m({address!r}, {folder!r}, {shape!r}, {progress!r})"
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
        large = json.loads(done.stdout.splitlines()[-1])
        peaks = {name: _peak(process.pid) for name, process in processes.items()}
        same, killed = _small(address, processes, shape)
    pairs = shape["count"] * (shape["count"] + 1) // 2
    rate = pairs * shape["steps"] / large["seconds"]
    peaks = {"writer": large["peak_bytes"], **peaks}
    return {
        "shape": shape,
        "seconds": large["seconds"],
        "pair_steps_per_second": rate,
        "matrix_bytes": 8 * shape["count"] ** 2,
        "peak_bytes": peaks,
        "largest_peak_gib": max(peaks.values()) / 2**30,
        "two_workers_bit_identical": same,
        "killed_worker_bit_identical": killed,
    }


def measure_here(address: str, folder: str, shape: dict[str, int], progress: bool) -> None:
    """Compute the large matrix into zarr from this process; print seconds and its peak memory."""
    client = connect(address)
    begun = time.perf_counter()
    matrix = gram(
        _kernel(),
        _sequences(shape["count"], shape["steps"]),
        client=client,
        out=Path(folder) / "gram.zarr",
        progress=progress,
        tile_size=shape["tile_size"],
    )
    seconds = time.perf_counter() - begun
    require(bool(matrix.attrs["complete"]), "expected a whole matrix", "got part of one")
    client.close()
    print(json.dumps({"seconds": seconds, "peak_bytes": _peak(os.getpid())}))


def _small(address: str, processes: dict[str, Any], shape: dict[str, int]) -> tuple[bool, bool]:
    """Compare a matrix computed here with one of both workers, and with one that lost a worker on the way."""
    sequences, size = _sequences(shape["small"], shape["steps"]), max(shape["small"] // 12, 1)
    expected = gram(_kernel(), sequences, progress=False, tile_size=size)
    client = connect(address)
    try:
        both = gram(_kernel(), sequences, client=client, progress=False, tile_size=size)
        victim, wait = processes["worker 2"], 0.5
        killer = subprocess.Popen(["/bin/sh", "-c", f"sleep {wait}; kill -9 {victim.pid}"])
        lost = gram(_kernel(), sequences, client=client, progress=False, tile_size=max(size // 4, 1))
        killer.wait()
        finer = gram(_kernel(), sequences, progress=False, tile_size=max(size // 4, 1))
        # It was killed, not merely asked to: the signal is its exit code.
        killed = victim.wait(timeout=30) == -signal.SIGKILL
    finally:
        client.close()
    return bool((both == expected).all()), bool((lost == finer).all()) and killed


@contextlib.contextmanager
def _cluster() -> Iterator[tuple[str, dict[str, Any]]]:
    """Start a scheduler and two workers; end them by their own process ids."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        book = Path(folder) / "scheduler.json"

        def start(name: str, *words: str) -> None:
            # Whoever reaches a scheduler or a worker can run code in it: this machine alone.
            own = ("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
            command = [sys.executable, "-m", "dask", *words, *own, "--scheduler-file", str(book)]
            started[name] = subprocess.Popen(
                command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

        try:
            start("scheduler", "scheduler", "--port", "0")
            for number in (1, 2):
                start(f"worker {number}", "worker", "--nthreads", "1", "--no-nanny")
            for _ in range(600):
                if book.exists() and book.stat().st_size:
                    break
                time.sleep(0.1)
            address = json.loads(book.read_text())["address"]
            client = connect(address)
            client.wait_for_workers(2, timeout="60s")
            client.close()
            yield address, started
        finally:
            for process in started.values():
                process.kill()
                process.wait()


def _kernel() -> RecurrentNTK:
    return RecurrentNTK(sigma_w=1.4, sigma_b=0.1)


def _sequences(count: int, steps: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, steps)) / np.sqrt(steps)


def _peak(process: int) -> int:
    """Return the most memory a process has held, in bytes, as Linux keeps it."""
    status = Path(f"/proc/{process}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

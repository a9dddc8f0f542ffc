"""Programs in a process of their own, without the type checks of these tests.

They are forked from one process that has imported what the library stands on, and nothing of the library itself: torch,
its compiler and the others take some five seconds to import, more than most of these programs run.
"""

import multiprocessing
import os
import tempfile
from pathlib import Path

BASE = (
    "accelerate",
    "jaxtyping",
    "jinja2",
    "matplotlib.figure",
    "numba",
    "safetensors.torch",
    "scipy.optimize",
    "sklearn.gaussian_process",
    "torch._dynamo",
    "torch.export",
    "typer",
)
"""None of them brings an extra: `tests/test_package.py` looks."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(list(BASE))


def run_apart(program: str, seconds: float = 300) -> str:
    """Run a program and give back what it printed; fail with what it complained of."""
    with tempfile.TemporaryDirectory() as folder:
        process = _FORKS.Process(target=_run, args=(program, folder))
        process.start()
        process.join(seconds)
        ended = process.exitcode
        process.kill()
        process.join()
        printed, complained = (Path(folder, name).read_text() for name in ("stdout", "stderr"))
    assert ended == 0, f"exit code {ended}\n{complained[-3000:]}"
    return printed.strip()


def _run(program: str, folder: str) -> None:
    for place, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT), place)
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})

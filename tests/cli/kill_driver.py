"""Kill a training again and again: imports once, then forks a process for each run of the command line.

``python tests/cli/kill_driver.py JOBS`` reads a JSON list of jobs, each a run folder, the arguments of the command, and
when to kill it: so many epochs after its folder is there (2.3: when two epochs are logged, and then three tenths of the
mean time of an epoch), so that the kills are spread over a run whatever else the machine does. It prints one JSON line
per job. Nothing is computed before a fork, so no thread is lost in one.
"""

import importlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIMIT = 120.0
NEEDED = (
    "torch._dynamo",
    "sklearn.datasets",
    "sostenuto.cli.fit",
    "sostenuto.data.sources.digits",
    "sostenuto.ops.oscillator.tiles_sweep",
    "sostenuto.ops.oscillator.cpu.maximum",
    "sostenuto.report.page",
    "sostenuto.training.probes",
    "sostenuto.training.run",
)
"""What a run imports, and when: before the first fork, so that kills strike the run and not its imports."""


def main() -> None:
    for name in NEEDED:
        importlib.import_module(name)

    jobs = json.loads(Path(sys.argv[1]).read_text())
    epoch = timed(jobs["arguments"], Path(jobs["whole"])) / jobs["epochs"]
    for job in jobs["kills"]:
        print(json.dumps(killed(job, epoch)), flush=True)


def fork(arguments: list[str], run: Path, *, resume: bool = False) -> int:
    """Start the command line in a child, its output in files beside the run."""
    child = os.fork()
    if child:
        return child
    from sostenuto.cli import main as sostenuto

    log = os.open(run.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    place = ["--resume", str(run)] if resume else [*arguments, "--out", str(run)]
    sys.argv = ["sostenuto", "fit", "--quiet", "--device", "cpu", *place]
    try:
        sostenuto()
    except SystemExit as ended:
        os._exit(int(ended.code or 0))
    os._exit(0)


def timed(arguments: list[str], run: Path) -> float:
    """Measure a whole run, from when its folder is there to its end."""
    child = fork(arguments, run)
    wait_for(run.exists, run)
    start = time.perf_counter()
    assert wait(child) == 0
    return time.perf_counter() - start


def killed(job: dict, epoch: float) -> dict:
    """Kill a run at its moment, look at what is there, and go on with it to the end."""
    run = Path(job["run"])
    child = fork(job["arguments"], run)
    rest, epochs = math.modf(job["epochs"])
    wait_for(lambda: run.exists() and logged(run) >= epochs, run)
    time.sleep(rest * epoch)
    os.kill(child, signal.SIGKILL)
    ended = wait(child)
    found = {
        "epochs": job["epochs"],
        "killed": ended == -signal.SIGKILL,
        "config": (run / "config.toml").exists(),
        "model": (run / "model.safetensors").exists(),
        "checkpoints": sorted(path.stem for path in run.glob("checkpoints/*.json")),
    }
    # Before its config is written a run has not begun, and is begun again.
    found["code"] = wait(fork(job["arguments"], run, resume=found["config"]))
    return found


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def logged(run: Path) -> int:
    """Count the epochs that a run has written down."""
    metrics = run / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.exists() else 0


def wait_for(there: Callable[[], bool], run: Path) -> None:
    limit = time.perf_counter() + LIMIT
    while not there():
        assert time.perf_counter() < limit, f"{run} did not get so far"
        time.sleep(0.002)


if __name__ == "__main__":
    main()

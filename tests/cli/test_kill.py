"""A run killed at any moment and resumed ends with the same file, byte for byte, as one that was left alone."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EPOCHS = 6
ARGUMENTS = ["-o", "hidden_size=8", "-o", "num_layers=1", "--epochs", str(EPOCHS)]
# Half of the runs write a checkpoint after every step, so that many kills strike while one is being written.
OFTEN = ["--set", "training.checkpoint_seconds=0"]
KILLS = 10
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
MODEL = "model.safetensors"


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sostenuto.cli", "fit", "--quiet", "--device", "cpu", *arguments]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Leave one run alone."""
    run = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run(program(*ARGUMENTS, "--out", str(run)), check=True, capture_output=True, env=ONE_THREAD)
    return run


@pytest.mark.slow
def test_killed_at_ten_random_moments(whole, tmp_path):
    rng = random.Random(20)
    jobs = []
    for index in range(KILLS):
        often = OFTEN if index % 2 else []
        epochs = EPOCHS * (index + rng.random()) / KILLS
        jobs.append({"run": str(tmp_path / f"run{index}"), "epochs": epochs, "arguments": [*ARGUMENTS, *often]})
    (tmp_path / "jobs.json").write_text(
        json.dumps({"whole": str(tmp_path / "whole"), "arguments": ARGUMENTS, "epochs": EPOCHS, "kills": jobs})
    )
    driver = [sys.executable, str(Path(__file__).with_name("kill_driver.py")), str(tmp_path / "jobs.json")]
    done = subprocess.run(driver, capture_output=True, text=True, check=False, env=ONE_THREAD, timeout=300)
    logs = "\n".join(path.read_text() for path in sorted(tmp_path.glob("*.log")))
    assert done.returncode == 0, done.stderr + logs
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["code"] for row in found] == [0] * KILLS, logs
    expected = (whole / MODEL).read_bytes()
    for job in jobs:
        run = Path(job["run"])
        assert (run / MODEL).read_bytes() == expected, job
        assert (run / "predictions.csv").read_bytes() == (whole / "predictions.csv").read_bytes()
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert [row["epoch"] for row in rows] == list(range(1, EPOCHS + 1))
        assert not list(run.rglob("*.tmp"))
    struck = [row for row in found if row["killed"] and row["config"] and not row["model"]]
    assert len(struck) >= 4, found
    assert len({tuple(row["checkpoints"]) for row in struck}) >= 3, found


@pytest.mark.slow
def test_a_real_process_killed_twice(whole, tmp_path):
    run = tmp_path / "run"
    for begin in (ARGUMENTS + OFTEN + ["--out", str(run)], ["--resume", str(run)]):
        before = newest(run)
        process = subprocess.Popen(program(*begin), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ONE_THREAD)
        limit = time.perf_counter() + 120
        while newest(run) in ("", before) and process.poll() is None and time.perf_counter() < limit:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors.decode()
    assert not (run / MODEL).exists()
    subprocess.run(program("--resume", str(run)), check=True, capture_output=True, env=ONE_THREAD)
    assert (run / MODEL).read_bytes() == (whole / MODEL).read_bytes()


def newest(run: Path) -> str:
    return max((path.stem for path in run.glob("checkpoints/*.json")), default="")

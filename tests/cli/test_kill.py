"""A run that was killed and resumed ends with the same file as one that was left alone; attacks kill many more."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ARGUMENTS = ["-o", "hidden_size=8", "-o", "num_layers=1", "--epochs", "6"]
OFTEN = ["--set", "training.checkpoint_seconds=0"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
MODEL = "model.safetensors"


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sostenuto.cli", "fit", "--quiet", "--device", "cpu", *arguments]


@pytest.mark.slow
def test_a_real_process_killed_twice(tmp_path):
    run, whole = tmp_path / "run", tmp_path / "whole"
    subprocess.run(program(*ARGUMENTS, "--out", str(whole)), check=True, capture_output=True, env=ONE_THREAD)
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

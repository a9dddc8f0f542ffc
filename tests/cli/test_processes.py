"""Two processes train as one does, on the same global batch.

`accelerate launch --cpu` starts a single process where there is no mpirun, so two are started as its ``--multi_gpu``
form does, which is torchrun, with ``--device cpu``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sostenuto.training.checkpoint import newest_checkpoint

# 1222 training sequences in batches of 37: odd shares, and one sequence left over, which leaves a process without any.
OPTIONS = (
    *("-o", "hidden_size=8", "-o", "num_layers=1", "--epochs", "3", "--batch-size", "37", "--device", "cpu"),
    # A smooth read-out: the largest of nearly equal states changes hands with the last bit, and the curve with it.
    *("--readout", "last", "--set", "training.input_noise=0", "--set", "training.checkpoint_seconds=0", "--json"),
)
LAUNCH = (sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--num_machines", "1")
PLAIN = ("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0", "-m", "sostenuto.cli")
TORCHRUN = (
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc_per_node",
    "2",
    "-m",
    "sostenuto.cli",
)


def start(folder: Path, *command: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=folder, timeout=240
    )


def curve(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_curve(one: Path, other: Path) -> None:
    for row, expected in zip(curve(other), curve(one), strict=True):
        for name in ("epoch", "train_loss", "validation_loss", "learning_rate"):
            assert row[name] == pytest.approx(expected[name], rel=1e-5), name
        assert row["validation_accuracy"] == pytest.approx(expected["validation_accuracy"], abs=0.01)


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Path:
    """Train with one process."""
    folder = tmp_path_factory.mktemp("processes")
    done = start(folder, sys.executable, "-m", "sostenuto.cli", "fit", *OPTIONS, "--out", "one")
    assert done.returncode == 0, done.stderr
    return folder / "one"


def count_processes(run: Path) -> int:
    """Count whose random numbers the checkpoint holds."""
    checkpoint = newest_checkpoint(run / "checkpoints")
    assert checkpoint is not None
    return len({name.split("/")[1] for name in checkpoint.tensors if name.startswith("random/")})


@pytest.mark.slow
def test_accelerate_launch(one, tmp_path):
    done = start(tmp_path, *LAUNCH, "--multi_gpu", "--num_processes", "2", *PLAIN, "fit", *OPTIONS, "--out", "two")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert json.loads(done.stdout)["run"] == "two"
    assert count_processes(tmp_path / "two") == 2
    assert_same_curve(one, tmp_path / "two")


@pytest.mark.slow
def test_torchrun_finds_the_cpu_by_itself_makes_one_folder_and_resumes(one, tmp_path, monkeypatch):
    """Without ``--device`` and ``--out``: each process alone would make a folder of its own."""
    automatic = [option for option in OPTIONS if option not in ("--device", "cpu")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = start(tmp_path, *TORCHRUN, "fit", *automatic)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "digits-stack"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [run.name]
    assert len(done.stdout.splitlines()) == 1
    assert count_processes(run) == 2
    assert_same_curve(one, run)
    weights = (run / "model.safetensors").read_bytes()
    for name in ("000003-000000.json", "000003-000000.safetensors", "../model.safetensors"):
        (run / "checkpoints" / name).unlink()
    again = start(tmp_path, *TORCHRUN, "fit", "--resume", str(run), "--json")
    assert again.returncode == 0, again.stderr
    assert (run / "model.safetensors").read_bytes() == weights


@pytest.mark.slow
def test_a_refusal_ends_all_processes(one):
    before = {path: path.stat().st_mtime_ns for path in one.rglob("*")}
    done = start(one.parent, *TORCHRUN, "fit", *OPTIONS, "--out", "one")
    assert done.returncode == 1
    assert done.stdout == ""
    # The launcher ends the second process when the first has ended, so that it may or may not speak.
    assert "sostenuto: one: expected a new or empty folder, got one with an earlier run" in done.stderr
    assert "exitcode  : 2" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in one.rglob("*")} == before


@pytest.mark.slow
def test_a_launch_that_starts_one_process_only_says_so(one, tmp_path):
    done = start(tmp_path, *LAUNCH, "--cpu", "--num_processes", "2", *PLAIN, "fit", *OPTIONS, "--out", "alone")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("sostenuto: warning: accelerate launch --cpu starts a single process") == 1
    assert_same_curve(one, tmp_path / "alone")

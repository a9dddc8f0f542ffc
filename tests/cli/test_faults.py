"""What befalls a run: signals, other data, foreign or damaged files, outputs that are no numbers."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sostenuto.checks import FileFormatError
from sostenuto.training.run_folder import MODEL, load_model, pack_model, save_model, unpack_model
from tests.cli.small import TINY, call, said, write_waves

QUIET = ("--quiet", "--device", "cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    write_waves(folder / "waves.npz")
    assert call("fit", folder / "waves.npz", *TINY, "--out", folder / "run").exit_code == 0
    return folder


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made / "run", tmp_path / "run")
    return tmp_path / "run"


def spoiled(path, value=float("nan")):
    """Put a number that is none among the weights, as `save_model` itself would write it."""
    stored = load_model(path)
    with torch.no_grad():
        for weight in stored.model.head.parameters():
            weight.fill_(value)
    save_model(path, stored)


def test_weights_that_are_no_numbers_are_refused(made, run):
    spoiled(run / MODEL)
    refused = call("predict", run, made / "waves.npz", *QUIET)
    assert refused.exit_code == 2
    assert "expected finite weights, got NaN or infinity in head.weight" in said(refused)


@pytest.mark.filterwarnings("default")
def test_outputs_that_are_no_numbers_name_no_class(made, run):
    spoiled(run / MODEL, 3e38)
    result = call("predict", run, made / "waves.npz", "--json", *QUIET)
    assert result.exit_code == 0
    found = json.loads(result.stdout, parse_constant=lambda word: pytest.fail(word))
    assert found["predictions"].count(None) > 0
    assert "expected finite outputs, got NaN or infinity for" in result.stderr
    assert found["score"]["value"] < 1


def test_a_model_of_another_run_is_refused(made, run, tmp_path):
    assert call("fit", made / "waves.npz", *TINY, "--seed", "3", "--out", tmp_path / "other").exit_code == 0
    shutil.copy(tmp_path / "other" / MODEL, run / MODEL)
    for command in (("predict", run, made / "waves.npz"), ("audit", run)):
        refused = call(*command, "--quiet")
        assert refused.exit_code == 2
        assert "expected the model of this run's config.toml, got that of another run" in said(refused)


def rewritten(path, change):
    """Change the header of a stored model as a stranger would who knows the format."""
    import sostenuto.data.files.sealed as home

    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    texts = json.loads(json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["sostenuto"])["header"])
    change(texts)
    header, tensors = json.dumps(texts), load_file(path)
    seal = json.dumps({"header": header, "sha256": home._digest(header, tensors)})
    return home.save(tensors, metadata={"sostenuto": seal})


@pytest.mark.parametrize("options", [{"hidden_size": 10**7}, {"hidden_size": 10**30}, {"num_layers": 10**9}])
def test_a_declared_architecture_takes_no_memory_before_it_is_compared(made, options):
    content = rewritten(made / "run" / MODEL, lambda texts: texts["model"]["options"].update(options))
    began = time.process_time()
    with pytest.raises(FileFormatError, match="got a damaged file"):
        unpack_model(content, "here")
    assert time.process_time() - began < 5


def test_what_a_newer_version_wrote_is_refused(made):
    content = rewritten(made / "run" / MODEL, lambda texts: texts.update(version="99.1"))
    with pytest.raises(FileFormatError, match=r"got one of 99\.1; install a newer sostenuto"):
        unpack_model(content, "here")
    assert unpack_model(pack_model(load_model(made / "run" / MODEL)), "here")


@pytest.mark.filterwarnings("default")
def test_other_data_are_noticed_by_every_command(tmp_path):
    waves = write_waves(tmp_path / "waves.npz")
    assert call("fit", waves, *TINY, "--out", tmp_path / "run").exit_code == 0
    assert call("tune", waves, "--epochs", 1, "--trials", 1, *QUIET, "--out", tmp_path / "t").exit_code == 0
    write_waves(waves, seed=5)
    refused = call("audit", tmp_path / "run", "--quiet")
    assert refused.exit_code == 2
    assert "expected the data the run was started with" in said(refused)
    warned = call("predict", tmp_path / "run", waves, *QUIET)
    assert warned.exit_code == 0
    assert "is no longer what the run was trained on" in warned.stderr
    refused = call("tune", waves, "--epochs", 1, "--trials", 1, *QUIET, "--out", tmp_path / "t")
    assert "expected trials of the same settings, got others" in said(refused)


def test_the_parts_of_a_run_are_kept(made, run):
    stored = json.loads((run / "split.json").read_text())
    assert sorted(row for rows in stored["rows"].values() for row in rows) == list(range(24))
    moved = stored["rows"]
    moved["train"][0], moved["test"][0] = moved["test"][0], moved["train"][0]
    (run / "split.json").write_text(json.dumps(stored))
    result = call("fit", "--resume", run, *QUIET)
    assert "expected the settings and data the run was started with" in said(result)
    (run / "split.json").write_text('{"rows": {"train": [0, 99]}}')
    assert "expected parts of 24 sequences, got others" in said(call("fit", "--resume", run, *QUIET))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_a_checkpoint_and_a_sentence(tmp_path, name):
    if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
        pytest.skip(f"{name} is ignored here, as under nohup, and stays ignored in a run")
    write_waves(tmp_path / "waves.npz", 200)
    command = [sys.executable, "-m", "sostenuto.cli", "fit", "waves.npz", *TINY[1:], "--epochs", "100000"]
    with subprocess.Popen(
        [*command, "--model", "gru", "--quiet", "--out", "run"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        log = tmp_path / "run" / "metrics.jsonl"
        limit = time.monotonic() + 120
        while not (log.exists() and log.stat().st_size) and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(getattr(signal, name))
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + getattr(signal, name)
    assert f"stopped by {name} in epoch" in told
    assert "a checkpoint was written, and sostenuto fit --resume run continues from there." in told
    stopped = max((tmp_path / "run" / "checkpoints").glob("*.json")).stem
    ended = call("fit", "--resume", tmp_path / "run", "--epochs", str(int(stopped[:6]) + 1), *QUIET)
    assert ended.exit_code == 0, ended.output
    assert np.isfinite(json.loads((tmp_path / "run" / "result.json").read_text())["score"])


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        ImportError("pydantic_core.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_want_of_memory_is_a_sentence(made, run, monkeypatch, error):
    def out_of_memory(*_, **__):
        raise error

    monkeypatch.setattr("sostenuto.training.run_folder.unpack_model", out_of_memory)
    ended = call("predict", run, made / "waves.npz", *QUIET)
    assert ended.exit_code == 1
    assert said(ended).startswith("out of memory; bring less data")


def test_other_errors_come_through(made, run, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a defect")

    monkeypatch.setattr("sostenuto.training.run_folder.unpack_model", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        call("predict", run, made / "waves.npz", *QUIET)


@pytest.mark.parametrize("name", ["run/model.safetensors", "run/result.html", "run"])
def test_an_audit_writes_over_nothing_of_the_run(made, run, name):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    refused = call("audit", run, "--quiet", "--out", run.parent / name)
    assert refused.exit_code == 2
    assert said(refused).startswith(str(run))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_warning_is_one_line_and_said_once(capsys):
    from sostenuto.cli.errors import _say_each_once

    say = _say_each_once()
    for _ in range(2):
        say("can't start\nnew thread")
    assert capsys.readouterr().err == "sostenuto: warning: can't start new thread\n"

"""Damaged files of a run: they are refused, or the answers are those of the run."""

import contextlib
import io
import random
import shutil
import warnings
from pathlib import Path

import click
from typer.main import get_command

from sostenuto.cli import app
from tests.attacks.outcome import Bound, Outcome
from tests.attacks.readers import mutate
from tests.cli.small import TINY, write_waves

PROMISE = "exit code 1 or 2 and one sentence, or the run's own answers"


def attack(bound: Bound, folder: Path) -> Outcome:
    """Damage the model, the config, a checkpoint or the parts of a run, then predict or go on."""
    outcome = Outcome("damaged runs", PROMISE)
    rng = random.Random(bound.seed)
    data, run = write_waves(folder / "waves.npz"), folder / "run"
    code, said = called("fit", data, *TINY, "--model", "gru", "--out", run)
    assert code == 0, said
    expected = called("predict", run, data, "--quiet", "--device", "cpu")
    assert expected[0] == 0
    model = (run / "model.safetensors").read_bytes()
    names = ["model.safetensors", "config.toml", "split.json", "checkpoint.json", "checkpoint.safetensors"]
    for number in bound.numbers():
        name = names[0] if number % 8 else names[1 + number // 8 % (len(names) - 1)]
        broken = folder / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(run, broken)
        file = max(broken.glob(f"checkpoints/*{Path(name).suffix}")) if name.startswith("check") else broken / name
        file.write_bytes(mutate(file.read_bytes(), rng, model))
        goes_on = name.startswith(("check", "split"))
        if goes_on:
            (broken / "model.safetensors").unlink()
            command = ("fit", "--resume", broken, "--quiet", "--device", "cpu")
        else:
            command = ("predict", broken, data, "--quiet", "--device", "cpu")
        try:
            code, said = called(*command)
        except Exception as error:
            outcome.fail("traceback", f"{name}: {error!r}")
            continue
        lines = [line for line in said.splitlines() if not line.startswith("sostenuto: warning: ")]
        same = (broken / "model.safetensors").exists() and (broken / "model.safetensors").read_bytes() == model
        if code in (1, 2) and len(lines) == 1 and lines[0].startswith("sostenuto: "):
            outcome.add("refused")
        elif code == 0 and (same if goes_on else (code, said) == expected):
            outcome.add("read, equal")
        else:
            outcome.fail("broken promise", f"{name}, {command[0]}: exit code {code}, said {said[-600:]!r}")
    return outcome


def called(*arguments: object) -> tuple[int, str]:
    """Run the command line in this process; give its exit code and what it said."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings():
        try:
            code = get_command(app).main([str(one) for one in arguments], standalone_mode=False)
            return code or 0, out.getvalue()
        except click.exceptions.Exit as ended:
            return ended.exit_code, out.getvalue()
        except click.ClickException as error:
            return error.exit_code, error.format_message()

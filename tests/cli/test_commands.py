"""The smaller commands, help, and exit codes of the program as a whole."""

import json
import os
import re
import signal
import subprocess
import sys

import click
import pytest
import typer
from typer.testing import CliRunner

from sostenuto.cli import app
from sostenuto.cli.errors import guarded
from sostenuto.version import __version__
from tests.cli.small import TINY, call, said, write_waves

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def program(*arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "sostenuto.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=ONE_THREAD, **options)


@pytest.mark.parametrize("arguments", [[], ["fit"], ["predict"], ["tune"], ["bench"], ["data"], ["data", "show"]])
def test_help_needs_no_torch(arguments):
    source = (
        "import sys\nfrom sostenuto.cli import app\n"
        f"try:\n    app({[*arguments, '--help']})\nexcept SystemExit as ended:\n    code = ended.code\n"
        "print(code, [name for name in ('torch', 'numpy', 'accelerate', 'sklearn') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    assert "Usage" in done.stdout


def test_help_shows_every_word_of_its_texts():
    """What stands in brackets is markup to the library that prints help."""

    def look(command: click.Command, path: list[str]) -> None:
        page = CliRunner().invoke(app, [*path, "--help"], env={"TERMINAL_WIDTH": "500", "COLUMNS": "500"}).output
        shown = re.sub(r"[\s│]+", " ", page)
        for text in [command.help, *(getattr(each, "help", None) for each in command.params)]:
            lines = [" ".join(line.split()) for line in (text or "").splitlines()]
            assert [line for line in lines if line not in shown] == [], path
        for name, each in getattr(command, "commands", {}).items():
            look(each, [*path, name])

    look(typer.main.get_command(app), [])


def test_version():
    assert call("--version").stdout == f"{__version__}\n"


def test_usage_mistakes_are_exit_code_2(tmp_path):
    assert program("fit", "--colour", "red").returncode == 2
    assert program("paint").returncode == 2
    wrong = program("fit", str(tmp_path / "absent.csv"))
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert wrong.stderr.startswith("sostenuto: ")
    assert len(wrong.stderr.splitlines()) == 1


def test_a_real_process_from_fit_to_predict(tmp_path):
    train, test = write_waves(tmp_path / "train.npz"), write_waves(tmp_path / "test.npz", 9, seed=1)
    done = program("fit", str(train), "--test", str(test), *TINY, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    answer = program("predict", found["run"], str(test), "--quiet", "--device", "cpu", cwd=tmp_path)
    assert answer.returncode == 0
    assert answer.stdout == (tmp_path / found["run"] / "predictions.csv").read_text()


def test_an_interruption_says_how_to_go_on(capsys):
    @guarded
    def command() -> None:
        raise KeyboardInterrupt

    with pytest.raises(Exception, match="130"):
        command()
    assert "--resume RUN continues from the last checkpoint" in capsys.readouterr().err


def test_what_the_system_refuses_is_a_sentence(capsys, tmp_path):
    @guarded
    def command() -> None:
        (tmp_path / "absent" / "file").read_text()

    with pytest.raises(Exception, match="1"):
        command()
    assert capsys.readouterr().err.endswith("file: the system says No such file or directory.\n")


def test_a_reader_that_stops_listening_is_no_mistake():
    command = f"{sys.executable} -m sostenuto.cli data list | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=ONE_THREAD)
    assert done.stdout.startswith("name")
    assert "Traceback" not in done.stderr
    assert signal.SIGPIPE


class TestData:
    def test_list(self):
        result = call("data", "list")
        assert result.exit_code == 0
        names = [line.split()[0] for line in result.stdout.splitlines()[2:]]
        assert {"digits", "digits/permuted", "ucr/NAME"} <= set(names)
        found = json.loads(call("data", "list", "--json").stdout)
        assert [entry["name"] for entry in found] == names
        assert next(entry for entry in found if entry["name"] == "digits")["available"] is True

    def test_show(self):
        found = json.loads(call("data", "show", "digits", "--json").stdout)
        assert (found["train"], found["test"], found["channels"], found["steps"]) == (1438, 359, 1, [64, 64.0, 64])
        assert found["classes"] == [str(digit) for digit in range(10)]
        result = call("data", "show", "digits")
        assert result.exit_code == 0
        assert found["checksum"] in result.stdout
        assert re.search(r"^steps +64$", result.stdout, re.MULTILINE)

    def test_show_a_file(self, tmp_path):
        found = json.loads(call("data", "show", write_waves(tmp_path / "waves.npz"), "--json").stdout)
        assert (found["name"], found["train"], found["classes"]) == ("waves.npz", 24, ["fast", "slow"])

    def test_fetch(self):
        found = json.loads(call("data", "fetch", "digits", "--json").stdout)
        assert found["train"] == 1438

    def test_unknown(self):
        result = call("data", "show", "digts")
        assert result.exit_code == 2
        assert "did you mean 'digits'" in said(result)


class TestTune:
    def test_best_settings_are_for_fit(self, tmp_path):
        path = write_waves(tmp_path / "waves.npz")
        options = (
            "tune",
            path,
            "--epochs",
            "1",
            "--trials",
            "2",
            "--quiet",
            "--device",
            "cpu",
            "--out",
            tmp_path / "t",
        )
        result = call(*options, "--json")
        assert result.exit_code == 0
        found = json.loads(result.stdout)
        assert found["trials"] == 2
        again = call(*options)
        assert again.exit_code == 0
        assert "best settings in" in again.stdout
        fitted = call("fit", "--config", found["config"], "--quiet", "--device", "cpu", "--out", tmp_path / "run")
        assert fitted.exit_code == 0

    def test_mistakes(self, tmp_path):
        path = write_waves(tmp_path / "waves.npz")
        for options, fragment in (
            (("--model", "tree"), "expected model to be one of"),
            (("--trials", "0"), "trials"),
            (("--sampler", "grid"), "sampler"),
        ):
            result = call("tune", path, "--quiet", *options, "--out", tmp_path / "t")
            assert result.exit_code == 2
            assert fragment in said(result)


def test_help_where_the_terminal_knows_ascii_alone():
    plain = {**ONE_THREAD, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    command = [sys.executable, "-m", "sostenuto.cli", "fit", "--help"]
    done = subprocess.run(command, capture_output=True, check=False, env=plain)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert done.stderr == b""

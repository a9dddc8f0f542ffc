"""``sostenuto reproduce``: the list, a run, exit codes."""

import json

import pytest

from tests.cli.small import call, said

NAME = "wang2024/figure-1"


def test_list(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shown = call("reproduce", "--list")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[0].split()[:3] == ["name", "title", "data"]
    found = json.loads(call("reproduce", "--list", "--json").stdout)
    assert [line.split()[0] for line in shown.stdout.splitlines()[2:]] == [line["name"] for line in found]
    one = next(line for line in found if line["name"] == NAME)
    assert (one["device"], one["data"], one["missing"]) == ("cpu", [], [])


def test_run_resume_and_json(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    options = (NAME, "--quick", "--quiet", "--device", "cpu", "--set", "widths=[1, 2]", "--set", "draws=1")
    stopped = call("reproduce", *options, "--time-limit", "0")
    assert stopped.exit_code == 3
    assert "run the same command again to go on" in said(stopped)
    done = call("reproduce", *options)
    assert done.exit_code == 0
    assert "exponential memory: slowest rate" in done.stdout
    folder = tmp_path / "runs" / "reproduce" / NAME / "quick"
    assert {path.name for path in folder.iterdir()} == {"cells", "claims", "report.html", "result.json"}
    found = json.loads(call("reproduce", *options, "--json", "--out", folder).stdout)
    assert (found["name"], found["protocol"], found["settings"]["widths"]) == (NAME, "quick", [1, 2])
    listed = json.loads(call("reproduce", "--list", "--json").stdout)
    assert next(line for line in listed if line["name"] == NAME)["results"]


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("wang2024/figur-1",), "did you mean 'wang2024/figure-1'"),
        (("nonsense",), "sostenuto reproduce --list shows what there is"),
        ((), "expected the name of an experiment"),
        ((NAME, "--quick", "--protocol", "paper"), "expected one of --quick and --protocol"),
        ((NAME, "--quick", "--set", "width=3"), "did you mean 'widths'"),
        ((NAME, "--protocol", "reduced"), "the protocol of wang2024/figure-1"),
    ],
)
def test_mistakes_are_exit_code_2(arguments, fragment, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = call("reproduce", *arguments)
    assert result.exit_code == 2
    assert fragment in said(result)

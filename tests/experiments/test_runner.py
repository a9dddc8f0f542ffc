"""Running an experiment: cells, resumption, kills, limits, missing data, verdicts, what is written."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from sostenuto.checks import FileFormatError, InputError
from sostenuto.experiments.runner import reproduce
from sostenuto.experiments.stored import read_result
from sostenuto.experiments.workbench import StoppedError
from tests.experiments.conftest import CONFIG, EXPECTED, RUN


def toy(root, out, **options):
    return reproduce("toy2009/figure-1", out=out, root=root, device="cpu", progress=False, **options)


def calls(out) -> list[int]:
    return [int(line) for line in (out / "calls.txt").read_text().split()]


def test_numbers_stand_beside_the_papers(write_toy, tmp_path):
    result = toy(write_toy(), tmp_path / "out", seed=3)
    total, law = result.numbers
    assert (total.name, total.value, total.expected, total.verdict) == ("sum", 3.0, 3.0, "reproduced")
    assert (law.verdict, law.evidence) == ("law holds", "3.0")
    assert (result.verdict, result.protocol, result.seed) == ("reproduced", "paper", 3)
    assert result.settings == {"cells": 3, "scale": 1.0}
    assert {"sostenuto", "torch", "device", "python"} <= result.environment.keys()
    assert read_result(tmp_path / "out" / "result.json") == result
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What was added." in page
    assert page.count("<svg") == 1


@pytest.mark.parametrize(
    ("scale", "verdict"),
    [(1.0, "reproduced"), (0.9, "reproduced"), (2.0, "undecided"), (0.5, "worse"), (-1.0, "law fails")],
)
def test_verdicts(write_toy, tmp_path, scale, verdict):
    assert toy(write_toy(), tmp_path / "out", changes={"scale": scale}).verdict == verdict


def test_a_quick_run_is_not_judged(write_toy, tmp_path):
    result = toy(write_toy(), tmp_path / "out", protocol="quick")
    assert [one.verdict for one in result.numbers] == ["not compared", "not compared"]
    assert result.verdict == "not compared"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "no law is judged" in page
    assert "Quick run, not the experiment itself. What was added." in page
    config = CONFIG.replace("[paper]", 'comparable = ["quick"]\n[paper]')
    assert toy(write_toy(config=config), tmp_path / "out", protocol="quick").verdict == "worse"


def test_better_needs_seeds_that_agree(write_toy, tmp_path):
    def numbers(values):
        run = RUN.replace('bench.number("sum", sum(values))', f'bench.number("sum", {values})')
        return toy(write_toy(run), tmp_path / "out").numbers[0]

    assert numbers([4.0, 4.1, 4.2]).verdict == "better"
    assert numbers([2.5, 4.0, 6.5]).verdict == "reproduced"
    one = numbers([4.1])
    assert (one.verdict, one.why, one.seeds) == ("undecided", "one seed", (0,))


@pytest.mark.parametrize(
    ("reason", "verdict", "why"),
    [
        ("seeds=1", "undecided", "one seed"),
        ("seeds=2", "law holds", ""),
        ("undecided='within two standard errors'", "undecided", "within two standard errors"),
        ("not_judged='LSTM had 15 epochs, ours 560'", "not judged", "LSTM had 15 epochs, ours 560"),
    ],
)
def test_a_law_that_cannot_be_judged_says_why(write_toy, tmp_path, reason, verdict, why):
    run = RUN.replace("str(sum(values)))", f"str(sum(values)), {reason})")
    law = toy(write_toy(run), tmp_path / "out").numbers[1]
    assert (law.verdict, law.why) == (verdict, why)


def test_a_number_says_where_it_comes_from(write_toy, tmp_path):
    result = toy(write_toy(), tmp_path / "out", seed=3, changes={"scale": 2.0})
    assert result.command == "sostenuto reproduce toy2009/figure-1 --protocol paper --seed 3 --set scale=2.0"
    assert result.recipe == "paper protocol: scale 2.0 instead of 1.0"
    assert len(result.code) == 12
    assert result.commit != ""
    page = (tmp_path / "out" / "report.html").read_text()
    assert '<a href="#how-1">6</a>' in page
    assert 'id="how-1"' in page
    for text in (result.command, result.commit, result.code, result.recipe):
        assert text in page


def test_an_edited_experiment_does_not_reuse_its_cells(write_toy, tmp_path):
    out = tmp_path / "out"
    toy(write_toy(), out)
    edited = toy(write_toy(RUN.replace("scale * index", "scale * index * 1.5")), out)
    assert calls(out) == [0, 1, 2] * 2
    assert edited.numbers[0].value == 4.5


def test_scores_on_the_test_part_are_counted(write_toy, tmp_path):
    run = RUN.replace("lambda i=i: add(i))", "lambda i=i: add(i), tests=True)")
    root, out = write_toy(run), tmp_path / "out"
    assert toy(root, out).test_evaluations == {"made": 3, "shown": 3}
    again = toy(root, out, changes={"scale": 2.0})
    assert again.test_evaluations == {"made": 6, "shown": 3}
    assert "6, 3 of them behind the numbers here" in (out / "report.html").read_text()


def test_a_second_run_computes_nothing(write_toy, tmp_path):
    root, out = write_toy(), tmp_path / "out"
    first = toy(root, out)
    second = toy(root, out)
    assert calls(out) == [0, 1, 2]
    assert [one.value for one in second.numbers] == [one.value for one in first.numbers]


def test_other_settings_or_seeds_are_other_cells_and_both_are_kept(write_toy, tmp_path):
    root, out = write_toy(), tmp_path / "out"
    toy(root, out)
    assert toy(root, out, changes={"scale": 2.0}).numbers[0].value == 6.0
    toy(root, out, seed=1)
    assert calls(out) == [0, 1, 2] * 3
    assert toy(root, out).numbers[0].value == 3.0
    assert len(calls(out)) == 9


SLOW = RUN.replace("    def add(index):\n", "    def add(index):\n        import time; time.sleep(0.2)\n")


def test_the_time_limit_stops_between_cells_and_the_next_run_goes_on(write_toy, tmp_path):
    root, out = write_toy(SLOW), tmp_path / "out"
    for done in ([0], [0, 1]):
        with pytest.raises(StoppedError, match="run the same command again to go on"):
            toy(root, out, time_limit=0.05)
        assert calls(out) == done
        assert not (out / "result.json").exists()
    result = toy(root, out, time_limit=0.05)
    assert calls(out) == [0, 1, 2]
    assert result.verdict == "reproduced"
    assert result.seconds > 0.6


KILLED = RUN.replace("    def add(index):\n", "    def add(index):\n        import time; time.sleep(0.5 * index)\n")


def test_killed_and_run_again(write_toy, tmp_path):
    root, out = write_toy(KILLED), tmp_path / "out"
    source = (
        "from pathlib import Path\nfrom sostenuto.experiments.runner import reproduce\n"
        f"reproduce('toy2009/figure-1', out={str(out)!r}, root=Path({str(root)!r}), device='cpu', progress=False)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", source], env={**os.environ, "OMP_NUM_THREADS": "1"})
    limit = time.perf_counter() + 60
    while not list(out.glob("cells/part/1.*.json")):
        assert time.perf_counter() < limit
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "result.json").exists()
    assert toy(root, out).numbers[0].value == 3.0
    assert calls(out).count(0) == calls(out).count(1) == 1
    assert not [path for path in out.rglob(".*") if path.is_file()]


@pytest.mark.parametrize("damage", ["", "{", '{"key": "part/1"}', "[1]", '{"key": "part/2", "value": 1}'])
def test_a_damaged_cell_is_told_of_and_computed_again(write_toy, tmp_path, damage):
    root, out = write_toy(), tmp_path / "out"
    toy(root, out)
    (cell,) = out.glob("cells/part/1.*.json")
    whole = cell.read_text()
    cell.write_text(damage)
    with pytest.warns(UserWarning, match="damaged .* the cell part/1 is computed again"):
        result = toy(root, out)
    assert result.numbers[0].value == 3.0
    assert calls(out) == [0, 1, 2, 1]
    assert json.loads(cell.read_text())["value"] == json.loads(whole)["value"]


NEEDY = CONFIG.replace("needs_data = []", 'needs_data = ["ucr/GunPoint"]')
READS = RUN.replace("def run(settings, bench):\n", "def run(settings, bench):\n    bench.data('ucr/GunPoint')\n")


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    def refuse(*arguments, **options):
        raise OSError("no connection")

    monkeypatch.setenv("SOSTENUTO_DATA", "")
    monkeypatch.setenv("SOSTENUTO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sostenuto.data.download.urlopen", refuse)


@pytest.mark.usefixtures("no_data")
def test_missing_data_is_a_verdict_with_a_cure(write_toy, tmp_path):
    result = toy(write_toy(READS, NEEDY), tmp_path / "out")
    assert result.verdict == "data missing"
    assert [(one.value, one.verdict) for one in result.numbers] == [(None, "data missing")] * 2
    assert "SOSTENUTO_DATA" in result.notes[0]
    assert "ucr/GunPoint" in result.notes[0]
    assert read_result(tmp_path / "out" / "result.json") == result


@pytest.mark.usefixtures("no_data")
def test_a_stand_in_is_marked_and_nothing_is_judged_on_it(write_toy, tmp_path):
    result = toy(write_toy(RUN, NEEDY), tmp_path / "out", protocol="quick")
    assert result.verdict == "stand-in data"
    assert [one.verdict for one in result.numbers] == ["stand-in data"] * 2
    assert result.numbers[0].value == 1.0
    assert "stand-in data: ucr/GunPoint was not read" in result.notes[0]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "speaks neither for nor against the paper" in page
    assert "was seen" not in page


def test_data_on_the_machine_that_were_not_read_prove_nothing(write_toy, tmp_path):
    config = CONFIG.replace("needs_data = []", 'needs_data = ["digits"]')
    assert toy(write_toy(RUN, config), tmp_path / "out").verdict == "stand-in data"


def test_a_data_set_leaves_its_checksum(write_toy, tmp_path):
    run = RUN.replace("def run(settings, bench):\n", "def run(settings, bench):\n    bench.data('digits')\n")
    config = CONFIG.replace("needs_data = []", 'needs_data = ["digits"]')
    result = toy(write_toy(run, config), tmp_path / "out")
    assert result.verdict == "reproduced"
    assert len(result.data["digits"].split()) == 2


def test_a_diverged_number_is_worse_and_its_json_is_strict(write_toy, tmp_path):
    run = RUN.replace('bench.number("sum", sum(values))', 'bench.number("sum", float("nan"))')
    result = toy(write_toy(run), tmp_path / "out")
    assert result.numbers[0].verdict == "worse"
    assert "NaN" not in (tmp_path / "out" / "result.json").read_text()
    assert read_result(tmp_path / "out" / "result.json").numbers[0].value is None


def test_repetitions_give_mean_and_spread(write_toy, tmp_path):
    run = RUN.replace('bench.number("sum", sum(values))', 'bench.number("sum", [2.0, 4.0, 6.0])')
    number = toy(write_toy(run), tmp_path / "out").numbers[0]
    assert (number.value, number.spread, number.count, number.verdict) == (4.0, 2.0, 3, "reproduced")


def test_a_cells_draws_do_not_depend_on_what_ran_before(write_toy, tmp_path):
    run = RUN.replace(
        'return {"value": settings.scale * index}', "import torch; return {'value': torch.rand(1).item()}"
    )
    root = write_toy(run)
    whole = toy(root, tmp_path / "a").numbers[0].value
    toy(root, tmp_path / "b")
    next((tmp_path / "b").glob("cells/part/0.*.json")).unlink()
    assert toy(root, tmp_path / "b").numbers[0].value == whole
    assert toy(root, tmp_path / "c", seed=1).numbers[0].value != whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"run": RUN.replace('"sum", sum', '"total", sum')},
            "expected an entry of toy2009/figure-1's [expected], got 'total'",
        ),
        ({"run": RUN.replace('    bench.number("sum", sum(values))\n', "")}, "to measure every entry, missed sum"),
        ({"run": RUN.replace('bench.law("is positive"', 'bench.law("sum"')}, "expected a law under 'sum'"),
        ({"run": RUN.replace("part/{i}", "../{i}")}, "expected a cell's key"),
        ({"run": RUN.replace('{"value": settings.scale * index}', "open")}, "to return plain numbers"),
        ({"expected": EXPECTED.replace(', better = "higher", tolerance = 0.5', "")}, "better or tolerance"),
        ({"expected": EXPECTED.replace("tolerance", "tolerances")}, "got tolerances"),
        ({"expected": EXPECTED.replace('"higher"', '"up"')}, "better of 'sum'"),
    ],
)
def test_mistakes_of_an_experiment_are_told(write_toy, tmp_path, change, message):
    with pytest.raises(InputError, match=re.escape(message)):
        toy(write_toy(**change), tmp_path / "out")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CONFIG.replace('title = "A toy"\n', ""), "missed title"),
        (CONFIG + "seeds = 3\n", r"expected \[quick\] to change settings of \[paper\], got seeds"),
        (CONFIG.replace("time =", "times ="), "missed time and got times"),
        ("title = ", "expected TOML"),
    ],
)
def test_mistakes_of_a_config_are_told(write_toy, tmp_path, config, message):
    with pytest.raises(FileFormatError, match=message):
        toy(write_toy(config=config), tmp_path / "out")


def test_unknown_settings_and_protocols_are_refused(write_toy, tmp_path):
    with pytest.raises(InputError, match=r"got 'scales'; did you mean 'scale' or 'cells'\? there are cells, scale"):
        toy(write_toy(), tmp_path / "out", changes={"scales": 2.0})
    with pytest.raises(
        InputError, match="the protocol of toy2009/figure-1 to be one of 'paper', 'quick', got 'reduced'"
    ):
        toy(write_toy(), tmp_path / "out", protocol="reduced")

"""Several processes on one experiment share its cells, compute none twice, and stop together."""

import os
import subprocess
import sys
import time

import pytest

from sostenuto.checks import InputError
from sostenuto.experiments.catalog import Experiment
from sostenuto.experiments.jobs import alongside
from sostenuto.experiments.runner import reproduce
from sostenuto.experiments.workbench import Workbench

SHARED = """
import os, time
from functools import partial
from pathlib import Path

def run(settings, bench):
    def add(index):
        (Path(bench.folder) / f"by-{index}-{os.getpid()}").touch()
        # The first two wait for one another: only two processes at once get past them.
        while index < 2 and len({path.name.split("-")[2] for path in Path(bench.folder).glob("by-*")}) < 2:
            time.sleep(0.01)
        return {"value": settings.scale * index}

    bench.ahead(partial(bench.cell, f"part/{i}", partial(add, i)) for i in range(settings.cells))
    values = [bench.cell(f"part/{i}", partial(add, i))["value"] for i in range(settings.cells)]
    bench.number("sum", sum(values))
    bench.law("is positive", sum(values) > 0, str(sum(values)))
"""


def test_two_processes_share_the_cells(write_toy, tmp_path):
    root, out = write_toy(SHARED), tmp_path / "out"
    source = (
        "from pathlib import Path\nfrom sostenuto.experiments.runner import reproduce\n"
        "if __name__ == '__main__':\n"
        f"    root, out = Path({str(root)!r}), {str(out)!r}\n"
        "    reproduce('toy2009/figure-1', out=out, root=root, device='cpu', progress=False, jobs=2)\n"
    )
    script = tmp_path / "main.py"
    script.write_text(source)
    subprocess.run([sys.executable, str(script)], check=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    taken = [path.name.split("-") for path in out.glob("by-*")]
    assert sorted(index for _, index, _ in taken) == ["0", "1", "2"]
    assert len({process for *_, process in taken}) == 2
    assert reproduce("toy2009/figure-1", out=out, root=root, device="cpu", progress=False).numbers[0].value == 3.0


def test_a_held_cell_is_left_for_later_and_then_waited_for(write_toy, tmp_path):
    experiment = Experiment.read(write_toy() / "toy2009" / "figure_1")
    settings = experiment.settings("quick")
    bench, other = (
        Workbench(experiment, settings, protocol="quick", folder=tmp_path / "out", progress=False, device="cpu")
        for _ in range(2)
    )
    seen = []

    def outer():
        # While this process computes "a", another bench on the folder passes over it and takes "b".
        with pytest.raises(RuntimeError, match="after b"):
            other.ahead([lambda: other.cell("a", fail), lambda: other.cell("b", take)])
        return 1

    def take():
        seen.append("b")
        raise RuntimeError("after b")

    def fail():
        pytest.fail("a cell that another holds was computed")

    assert bench.ahead([lambda: bench.cell("a", outer), lambda: bench.cell("c", lambda: 3)]) == [1, 3]
    assert seen == ["b"]
    assert other.cell("a", fail) == 1


def test_a_cell_asked_for_twice_counts_its_seconds_once(write_toy, tmp_path):
    experiment = Experiment.read(write_toy() / "toy2009" / "figure_1")
    options = {"protocol": "quick", "folder": tmp_path / "out", "progress": False, "device": "cpu"}
    settings = experiment.settings("quick")
    Workbench(experiment, settings, **options).cell("a", lambda: time.sleep(0.3))
    bench = Workbench(experiment, settings, **options)
    for _ in range(9):
        bench.cell("a", lambda: None)
    assert 0.3 <= bench.seconds < 0.9


def test_processes_end_with_the_block():
    began = time.perf_counter()
    with alongside(2, time.sleep, (60.0,)):
        pass
    assert time.perf_counter() - began < 30


def test_jobs_are_counted_from_one():
    with pytest.raises(InputError, match="jobs"), alongside(0, time.sleep, (0.0,)):
        pass

"""Small experiments, written by the test that needs them."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sostenuto.experiments

CONFIG = """
title = "A toy"
what = "Adds numbers."
needs_data = []
needs_device = "cpu"
time = "1 s"
about = "Shows a sum."
[paper]
cells = 3
scale = 1.0
[quick]
cells = 2
"""
EXPECTED = """
"sum" = { value = 3.0, better = "higher", tolerance = 0.5 }
"is positive" = "The sum is above zero."
"""
RUN = """
from pathlib import Path

def run(settings, bench):
    def add(index):
        with (Path(bench.folder) / "calls.txt").open("a") as file:
            file.write(f"{index}\\n")
        return {"value": settings.scale * index}

    values = [bench.cell(f"part/{i}", lambda i=i: add(i))["value"] for i in range(settings.cells)]
    bench.number("sum", sum(values))
    bench.law("is positive", sum(values) > 0, str(sum(values)))
    bench.figure("values", lambda axes: axes.plot(values), caption="What was added.")
"""

Write = Callable[..., Path]


@pytest.fixture
def write_toy(tmp_path, monkeypatch) -> Iterator[Write]:
    """Return a function that writes the toy experiment, or a variant, and returns its root."""

    def write(run: str = RUN, config: str = CONFIG, expected: str = EXPECTED) -> Path:
        folder = tmp_path / "root" / "toy2009" / "figure_1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.py").write_text(run)
        (folder / "item.toml").write_text(f"{config}\n[expected]\n{expected}")
        forget()
        return tmp_path / "root"

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sostenuto.experiments, "__path__", list(sostenuto.experiments.__path__))
    yield write
    forget()


def forget() -> None:
    """Let the next import of the toy read its file again."""
    importlib.invalidate_caches()
    for module in [name for name in sys.modules if name.startswith("sostenuto.experiments.toy2009")]:
        del sys.modules[module]

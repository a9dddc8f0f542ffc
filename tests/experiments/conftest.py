"""Small experiments, written by the test that needs them."""

from collections.abc import Callable
from pathlib import Path

import pytest

CONFIG = """
title = "A toy"
paper = "009"
what = "Adds numbers."
needs_data = []
needs_device = "cpu"
time = "1 s"
[full]
cells = 3
scale = 1.0
[quick]
cells = 2
"""
EXPECTED = """
["sum"]
value = 3.0
better = "higher"
tolerance = 0.5
["is positive"]
law = "The sum is above zero."
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
def write_toy(tmp_path) -> Write:
    """Return a function that writes the experiment 009/toy, or a variant of it, and returns the root it lies under."""

    def write(run: str = RUN, config: str = CONFIG, expected: str = EXPECTED, readme: str = "# Toy") -> Path:
        folder = tmp_path / "root" / "009" / "toy"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {
            "run.py": run,
            "config.toml": config,
            "expected.toml": expected,
            "README.md": readme,
        }.items():
            (folder / name).write_text(text)
        return tmp_path / "root"

    return write

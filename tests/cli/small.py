"""Calling the command line in this process, and small files to call it with."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import Result
from typer.testing import CliRunner

from sostenuto.cli import app

TINY = ("--quiet", "--device", "cpu", "--epochs", "2", "-o", "hidden_size=4", "-o", "num_layers=1")


def call(*arguments: Any) -> Result:
    """Run ``sostenuto`` and let anything that is not an exit code come through."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def said(result: Result) -> str:
    """Give the one sentence that a refusal says, and nothing besides."""
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("sostenuto: ")
    assert lines[0].endswith(".")
    assert "Traceback" not in result.stderr
    return lines[0].removeprefix("sostenuto: ")


def same_answers(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether two rows of predictions agree, numbers to float32: a product rounds by the size of its batch."""
    return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())


def _same(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-5, abs_tol=1e-6)
    except ValueError:
        return one == other


def write_waves(path: Path, count: int = 24, *, channels: int = 2, seed: int = 0, targets: Any = "classes") -> Path:
    """Write slow and fast waves of ten steps."""
    rng = np.random.default_rng(seed)
    kinds = np.arange(count) % 2
    steps = np.arange(10)[None, :, None] * (0.3 + 0.6 * kinds)[:, None, None]
    values = np.sin(steps + rng.uniform(0, 6, (count, 1, channels)))
    rows: dict[str, Any] = {"X": values}
    if targets == "classes":
        rows["y"] = np.array(["slow", "fast"])[kinds]
    elif targets == "numbers":
        rows["y"] = kinds + rng.uniform(size=count)
    elif targets == "steps":
        rows["y"] = values.cumsum(1)[:, :, :1]
    np.savez(path, **rows)
    return path

"""The README's Python runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_there_is_an_example_of_about_ten_lines() -> None:
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert 5 <= len(lines) <= 12


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_example_runs(block: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(README), "exec"), {"__name__": "__main__"})

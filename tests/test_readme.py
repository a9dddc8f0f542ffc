"""The Python on the README and on the pages of the documentation runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    pytest.param("README.md", marks=pytest.mark.slow),
    "docs/quickstart.md",
    "docs/data.md",
    "docs/layers.md",
    "docs/forecasting.md",
)


def python_blocks(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_readme_has_an_example_of_about_ten_lines() -> None:
    lines = [line for line in python_blocks("README.md")[0].splitlines() if line.strip()]
    assert 5 <= len(lines) <= 12


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_run_in_order(page: str, tmp_path, monkeypatch) -> None:
    blocks = python_blocks(page)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)

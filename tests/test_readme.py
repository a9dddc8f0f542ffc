"""The Python on the README and on every page of the documentation runs as it stands.

A page's blocks run in order and share their names. A comment before a block may say ``<!-- needs PACKAGE -->``, or
``<!-- not run: REASON -->`` where running it is no matter of a test.
"""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^(?:<!-- (?:needs (\w+)|not run: ([^>]+)) -->\n)?```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if BLOCK.search(path.read_text(encoding="utf-8"))
]


def python_blocks(page: str) -> list[tuple[str, str, str]]:
    """Give what a block needs, why it is not run, and its text."""
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def test_the_readme_has_an_example_of_about_ten_lines() -> None:
    lines = [line for line in python_blocks("README.md")[0][2].splitlines() if line.strip()]
    assert 5 <= len(lines) <= 12


def test_no_block_hides_in_another_form() -> None:
    assert len(PAGES) > 10
    for page in PAGES:
        assert len(python_blocks(page)) == (ROOT / page).read_text(encoding="utf-8").count("```python"), page


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_run_in_order(page: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = python_blocks(page)
    missing = {package for package, *_ in blocks if package and importlib.util.find_spec(package) is None}
    for package, reason, block in blocks:
        if not reason and package not in missing:
            exec(compile(block, page, "exec"), names)
    if missing:
        pytest.skip(f"all ran but what needs {', '.join(sorted(missing))}")


@pytest.mark.parametrize("page", [page for page in PAGES if any(reason for _, reason, _ in python_blocks(page))])
def test_what_is_not_run_is_python_at_least(page: str) -> None:
    for _, reason, block in python_blocks(page):
        if reason:
            compile(block, page, "exec")


def test_the_table_of_the_readme_says_what_results_say() -> None:
    """Where this fails, ``python docs/evidence.py`` writes the table again."""
    path = ROOT / "docs" / "evidence.py"
    spec = importlib.util.spec_from_file_location("evidence", path)
    assert spec is not None
    assert spec.loader is not None
    evidence = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(evidence)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert evidence.replaced(readme) == readme
    assert evidence.replaced(readme.replace(evidence.table(), "| outdated |")) == readme

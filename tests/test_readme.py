"""The README's Python runs as it stands, and its table says what results say; `test_docs.py` is about the pages."""

import re
from pathlib import Path

from tests.docs_code import ROOT, docs_module

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_has_an_example_of_about_ten_lines() -> None:
    lines = [line for line in BLOCK.findall(README)[0].splitlines() if line.strip()]
    assert 5 <= len(lines) <= 12
    assert len(BLOCK.findall(README)) == README.count("```python")


def test_the_examples_run_in_order(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in BLOCK.findall(README):
        exec(compile(block, "README.md", "exec"), names)


def test_the_table_of_the_readme_says_what_results_say() -> None:
    """Where this fails, ``python docs/evidence.py`` writes the table again."""
    evidence = docs_module("evidence")
    assert evidence.replaced(README) == README
    assert evidence.replaced(README.replace(evidence.table(), "| outdated |")) == README


def test_the_pages_say_what_results_say() -> None:
    claims = list(docs_module("evidence").claims())
    pages = {page: (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page, _ in claims}
    assert len(claims) > 10
    assert [(page, text) for page, text in claims if text not in pages[page]] == []


def test_the_pictures_of_the_readme_are_there() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert "docs/images/at_a_glance.png" in pictures
    assert [picture for picture in pictures if not Path(ROOT, picture).exists()] == []

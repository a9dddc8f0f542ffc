"""The numbers that docs/experiments.md tells are the stored ones."""

from pathlib import Path

import pytest

from sostenuto.experiments.stored import read_result

ROOT = Path(__file__).parents[2]
SECTION = (
    (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8").split("## What has been found")[1].split("\n## ")[0]
)
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in SECTION.splitlines()
    if "/t" in line and line.startswith("|")
]


@pytest.mark.parametrize(("item", "name", "paper", "here", "verdict"), ROWS)
def test_a_documented_number_is_the_stored_one(item, name, paper, here, verdict):
    result = read_result(ROOT / "results" / "experiments" / f"{item.replace('/', '_')}.json")
    number = next(one for one in result.numbers if one.name == name)
    assert f"{number.value:.2f}" == here
    assert number.verdict == verdict
    assert paper == "–" if number.expected is None else float(paper) == number.expected


def test_the_table_has_rows_and_counts_the_results():
    assert len(ROWS) >= 10
    stored = len(list((ROOT / "results" / "experiments").glob("*.json")))
    items = len(list((ROOT / "src" / "sostenuto" / "experiments").glob("*/*/config.toml")))
    assert f"Of the {items} items {stored} have a stored result" in SECTION

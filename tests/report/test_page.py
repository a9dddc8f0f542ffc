import importlib.resources
import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from markupsafe import Markup

from sostenuto.checks import InputError
from sostenuto.report.contents.comparison import Contender, comparison
from sostenuto.report.numbers import metric
from sostenuto.report.page import render, save
from sostenuto.report.section import Cards, Cell, Column, Figures, Html, Picture, Prose, Section, Table, Verdict
from sostenuto.results import ClassificationScores, FitResult, LearningCurve, RegressionScores
from tests.report import samples
from tests.report.html_check import Page


@cache
def rendered(name: str) -> str:
    """Give a page that several tests read."""
    return render(samples.EVERY[name]())


def audit_section(anchor: str = "memory") -> Section:
    figure = comparison((Contender("model", 1.0, is_model=True),), metric("loss"), higher_is_better=True)
    assert figure is not None
    return Section(
        "How long it <remembers>",
        anchor,
        (
            Verdict("good", "Sustained", "Half of a pulse is left after 900 steps & more."),
            Figures((Picture(figure, "A curve"),), "Memory by lag"),
            Html(Markup("<p><strong>vouched for</strong></p>")),
        ),
        short_title="Memory",
    )


@pytest.mark.parametrize("name", samples.EVERY)
def test_every_page_is_well_formed_closed_and_small(name: str) -> None:
    html = rendered(name)
    page = Page(html)
    assert page.faults == []
    assert page.headings[0] == "h1"
    assert set(page.headings[1:]) == {"h2"}
    assert html.startswith('<!doctype html>\n<html lang="en">')
    assert html.endswith("</html>\n")
    assert len(html.encode()) < 500_000


@pytest.mark.parametrize("name", ["digits", "regression", "hostile"])
def test_two_renders_are_equal(name: str) -> None:
    assert render(samples.EVERY[name]()) == rendered(name)


def test_nothing_is_loaded_and_no_script_may_run() -> None:
    html = rendered("regression")
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in html
    assert '<link rel="icon" href="data:,">' in html
    addresses = re.findall(r"\w+://[^\s\"'<]+", html)
    assert set(addresses) == {"http://www.w3.org/2000/svg", samples.regression().data.origin}
    assert re.findall(r'(\w+)="http', html) == ["xmlns"] * html.count("<svg ")


def test_no_text_of_the_user_becomes_markup() -> None:
    html = rendered("hostile")
    assert "<script" not in html.lower()
    page = Page(html)
    assert page.faults == []
    assert page.text.count(samples.ATTACK) > 8
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\u202a-\u202e\ud800-\udfff]", html)
    html.encode("utf-8")


def test_formulas_in_names_are_not_typeset() -> None:
    page = Page(rendered("hostile"))
    assert "$x_1$" in page.svg_texts


def test_templates_are_part_of_the_package() -> None:
    folder = importlib.resources.files("sostenuto.report") / "templates"
    assert {entry.name for entry in folder.iterdir()} >= {"page.html", "page.css"}


def test_the_page_says_what_matters() -> None:
    text = Page(rendered("digits")).text.replace("\u202f", " ").replace("\u00a0", " ")
    for words in (
        "digits-unicornn",
        "97.5 % of 360 test sequences are classified correctly; the best cheap baseline reaches 94.2 %.",
        "Ahead of the baselines",
        "34,698",
        "1 min 24 s",
        "best: epoch 30",
        "optimizer.learning_rate",
        "5a1c0f9e77b34d21",
        "torch",
        "Most frequent mistakes",
    ):
        assert words in text, words


def test_targets_at_every_step_are_counted_in_steps() -> None:
    result = samples.digits()
    data = replace(result.data, task="sequence", examples=tuple(replace(one, label="") for one in result.data.examples))
    text = Page(render(replace(result, data=data))).text.replace("\u202f", " ").replace("\u00a0", " ")
    assert "97.5 % of 360 test steps are classified correctly" in text
    assert "Steps per class in the training part: 117 to 125." in text
    assert "value against step." in text
    assert "label" not in text


def test_both_schemes_and_paper_are_served() -> None:
    html = rendered("digits")
    assert "@media screen and (prefers-color-scheme: dark)" in html
    assert "@media print" in html
    assert 'name="viewport"' in html


@pytest.mark.parametrize(
    "change",
    [
        {"score": math.nan},
        {"num_parameters": 0, "seconds": 0.0},
        {"evaluated_on": "validation"},
        {"curve": LearningCurve("accuracy", (), ())},
        {"curve": LearningCurve("accuracy", (1, 2), (math.nan, math.nan), (), ())},
        {"classification": ClassificationScores(math.nan, math.nan, math.nan, math.nan, (), (), (), 0)},
        {"regression": RegressionScores(math.nan, math.nan, math.nan, (), (), 0), "classification": None},
        {"run": "", "model": "", "metric": ""},
        {
            "config": {
                "deep": {"a": {"b": {"c": {"d": 1}}}},
                "list": [[1, 2], {"x": True}],
                "many": dict.fromkeys(map(str, range(900)), 1),
            }
        },
    ],
    ids=lambda change: "-".join(change),
)
def test_odd_results_still_make_a_page(change: dict) -> None:
    assert Page(render(replace(samples.digits(), **change))).faults == []


def test_a_result_read_back_from_json_gives_a_page() -> None:
    back = FitResult.from_dict(samples.digits().to_dict())
    assert isinstance(back, FitResult)
    assert render(back) == rendered("digits")


def test_sections_join_the_page_before_the_configuration() -> None:
    html = render(samples.digits(), sections=(audit_section(), audit_section("robustness")))
    page = Page(html)
    assert page.faults == []
    assert "How long it <remembers>" in page.text
    assert "<strong>vouched for</strong>" in html
    order = [html.index(f'<section id="{anchor}"') for anchor in ("classes", "memory", "robustness", "configuration")]
    assert order == sorted(order)
    assert '<a href="#memory">Memory</a>' in html


def test_cards_and_tables_can_be_part_of_a_section() -> None:
    table = Table("A <table>", (Column("name"), Column("value", numeric=True)), ((Cell("a"), Cell("1")),))
    html = render(samples.bare(), sections=(Section("More", "more", (Cards(()), table, Prose("x < y", note=True))),))
    assert Page(html).faults == []
    assert "x &lt; y" in html


@pytest.mark.parametrize("anchor", ["data", "memory"])
def test_an_anchor_used_twice_is_refused(anchor: str) -> None:
    sections = (audit_section(anchor), audit_section("memory"))
    with pytest.raises(InputError, match=f"an anchor of its own, got {anchor} more than once"):
        render(samples.bare(), sections=sections)


def test_parts_are_checked() -> None:
    with pytest.raises(InputError, match="expected an anchor of small letters"):
        Section("Memory", 'x" onload="', ())
    with pytest.raises(InputError, match="expected 1 cells in a row, got 2"):
        Table("t", (Column("a"),), ((Cell("1"), Cell("2")),))


def test_save_writes_the_page(tmp_path: Path) -> None:
    target = save(samples.bare(), tmp_path / "report.html")
    assert target.read_text(encoding="utf-8") == rendered("bare")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_save_keeps_the_old_page_when_anything_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")

    def broken(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("sostenuto.data.files.atomic.os.fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        save(samples.bare(), target)
    assert target.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_save_asks_for_a_folder_that_exists(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a folder to write the page into"):
        save(samples.bare(), tmp_path / "none" / "report.html")

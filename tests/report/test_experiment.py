"""The page of an experiment, and the marks its figures are drawn with."""

import re

import pytest

from sostenuto.report.experiment import OUTCOMES, Drawing, ours, render, theirs
from sostenuto.report.figures.plot import bars, heat, lines, plotted, points
from sostenuto.results import ExperimentNumber, ExperimentResult, ExperimentTable
from tests.report.html_check import Page


def make_result(verdict: str = "better", **options) -> ExperimentResult:
    numbers = (
        ExperimentNumber(
            "accuracy <b>", verdict, value=98.5, spread=0.1, count=3, unit="%", expected=98.4, remark="Suspect."
        ),
        ExperimentNumber("law", "law fails", law="It falls.", evidence="it rises"),
        ExperimentNumber("speed", "not measured", evidence="no GPU here"),
    )
    values = {"numbers": numbers, "tables": (ExperimentTable("More", ("a", "b"), (("1", "2"),)),), **options}
    return ExperimentResult(
        "toy2009/figure-1", "A toy", "toy2009", "What.", "paper", verdict, "2026-01-01", 0, 3.0, **values
    )


DRAWINGS = {
    "lines": lambda axes: lines(axes, [1, 2], {"a": [1.0, 2.0], "b": [2.0, 1.0]}, spreads={"a": [0.1, 0.1]}, log="xy"),
    "bars": lambda axes: bars(axes, {"a": 1.0, "b": 2.0}, expected={"b": 2.5}, spreads={"a": 0.1}),
    "points": lambda axes: points(axes, {"a": ([1, 2], [3, 4]), "b": ([1], [2])}),
    "heat": lambda axes: heat(axes, [[1.0, 2.0], [3.0, 4.0]], rows=("x", "y"), columns=(1, 2)),
}


@pytest.mark.parametrize("verdict", OUTCOMES)
def test_every_verdict_has_a_page(verdict):
    page = render(make_result(verdict))
    assert Page(page).faults == []
    assert verdict.capitalize() in page


def test_figures_tables_and_remarks_are_on_the_page():
    page = render(
        make_result(notes=("A choice.",)), [Drawing(name, plotted(draw), "Said.") for name, draw in DRAWINGS.items()]
    )
    assert Page(page).faults == []
    assert page.count("<svg") == 4
    for text in (
        "accuracy &lt;b&gt;",
        "98.5 ± 0.1 % (3 runs)",
        "Suspect.",
        "It falls.",
        "no GPU here",
        "A choice.",
        "More",
    ):
        assert text in page


def test_columns_of_numbers_are_set_as_numbers():
    rows = (("one", "98.56", "0.1 ± 0.02", "step=0.1"), ("two", "–", "1e-05", "3"))
    table = ExperimentTable("Trainings", ("model", "test", "error", "chosen"), rows)
    page = render(make_result(tables=(table,)), [])
    headings = re.findall(r'<th scope="col"( class="number")?>(model|test|error|chosen)</th>', page)
    assert [name for numeric, name in headings if numeric] == ["test", "error"]
    assert len(headings) == 4


def test_a_law_ends_with_one_full_stop():
    worse = ExperimentNumber("score", "worse", value=1.5, expected=2.5)
    law = ExperimentNumber("law", "law fails", law="It falls.", evidence="it rises")
    page = render(make_result(numbers=(law, worse)))
    assert "law: it rises; paper: It falls.<" in page
    assert "score: 1.5; paper: 2.5.<" in page
    assert ".." not in page.split("<body")[1].split("<svg")[0]


def test_numbers_as_they_are_said():
    number, law, left_out = make_result().numbers
    assert (ours(number), theirs(number)) == ("98.5 ± 0.1 % (3 runs)", "98.4 %")
    assert (ours(law), theirs(law)) == ("it rises", "It falls.")
    assert (ours(left_out), theirs(left_out)) == ("no GPU here", "–")


def test_a_logarithmic_axis_has_plain_labels():
    figure = plotted(lambda axes: lines(axes, [1, 1000], {"a": [1.0, 1e4]}, log="xy"))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "100" in labels


def test_what_a_good_verdict_leaves_out_is_told_of():
    left_out = "Of what the verdict leaves out, 1 fell short."
    assert left_out in render(make_result("better"))
    assert "fell short" not in render(make_result("law fails"))
    right = (ExperimentNumber("score", "better", value=2.5, expected=1.5),)
    assert "fell short" not in render(make_result("better", numbers=right))

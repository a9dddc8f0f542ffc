"""The model of a page beside others that were trained on the same data."""

from collections.abc import Callable, Sequence

from sostenuto.report.numbers import count, duration, number, percent
from sostenuto.report.section import Cell, Column, Prose, Section, Table
from sostenuto.results import FitResult


def comparison_section(result: FitResult, others: Sequence[FitResult]) -> Section:
    """Return the section that puts the page's model, other models and the baselines into one table, best first."""
    is_accuracy = result.classification is not None

    def write(score: float) -> str:
        return percent(score) if is_accuracy else number(score, digits=3)

    rows = [(result.score, (Cell(result.model, "the model of this page"), *_cells(result, write)))]
    rows += [(one.score, (Cell(one.model, _epochs(one)), *_cells(one, write))) for one in others]
    rows += [
        (one.score, (Cell(one.name, "baseline"), Cell(write(one.score)), Cell("–"), Cell("–")))
        for one in result.baselines
    ]
    rows.sort(key=lambda row: row[0], reverse=result.higher_is_better)
    head = (
        Column("Model"),
        Column(f"{result.evaluated_on.capitalize()} {result.metric}", numeric=True),
        Column("Parameters", numeric=True),
        Column("Time", numeric=True),
    )
    place = [row[1][0].text for row in rows].index(result.model)
    table = Table("The same sequences for all", head, tuple(row for _, row in rows), frozenset({place}))
    words = "Networks were trained by their recipes, each within the same time. Their own pages are in folders beside."
    return Section("How do others do on it?", "compare", (Prose(words), table), short_title="Others")


def _cells(result: FitResult, write: Callable[[float], str]) -> tuple[Cell, ...]:
    return Cell(write(result.score)), Cell(count(result.num_parameters)), Cell(duration(result.seconds))


def _epochs(result: FitResult) -> str:
    return f"{len(result.curve.epochs)} epochs"

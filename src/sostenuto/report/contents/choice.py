"""Which models were tried, what each cost, and why one was chosen."""

from collections.abc import Sequence

from sostenuto.report.numbers import duration, number, percent
from sostenuto.report.section import Cell, Column, Prose, Section, Table
from sostenuto.results import Candidate


def choice_section(candidates: Sequence[Candidate], chosen: str, *, is_accuracy: bool, budget: float) -> Section:
    """Return the section on the choice among models, for a page made with `sostenuto.report.page.save`."""
    measure = "accuracy" if is_accuracy else "R²"
    tried = [one for one in candidates if one.score is not None]
    winner = next(one for one in candidates if one.name == chosen)
    reason = (
        f"{chosen} was chosen: its {measure} on training sequences that it had not seen is "
        f"{_write(winner.score, is_accuracy)}."
        if len(tried) > 1
        else f"{chosen} was chosen: {_alone(winner, budget, is_accuracy)}."
    )
    rule = " A dearer model has to lead by more than one standard error. The test part was not looked at."
    head = (
        Column("Model"),
        Column(f"Unseen {measure}", numeric=True),
        Column("Standard error", numeric=True),
        Column("Time", numeric=True),
    )
    rows = tuple(
        (
            Cell(one.name, one.note),
            Cell(_write(one.score, is_accuracy)),
            Cell(_write(one.standard_error, is_accuracy) if one.score is not None else "–"),
            Cell(duration(one.seconds) if one.score is not None else "–"),
        )
        for one in candidates
    )
    marked = frozenset({[one.name for one in candidates].index(chosen)})
    table = Table(f"Models considered within a budget of {duration(budget)}", head, rows, marked)
    return Section("Why this model?", "choice", (Prose(reason + rule), table), short_title="Choice")


def _alone(winner: Candidate, budget: float, is_accuracy: bool) -> str:
    if is_accuracy and winner.score == 1:
        return "no answer on training sequences that it had not seen is wrong, so that no other can lead"
    return f"it is the only model that was tried within {duration(budget)}"


def _write(score: float | None, is_accuracy: bool) -> str:
    if score is None:
        return "not tried"
    return percent(score) if is_accuracy else number(score, digits=3)

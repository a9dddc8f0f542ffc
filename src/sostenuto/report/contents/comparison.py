"""Does the model earn its keep? Its score beside those of cheap baselines."""

from sostenuto.report.figures.comparison import Contender, comparison
from sostenuto.report.judgment import evaluated_count
from sostenuto.report.metrics import metric
from sostenuto.report.numbers import binomial_interval, duration
from sostenuto.report.section import Cell, Column, Columns, Figures, Part, Picture, Prose, Section, Table
from sostenuto.report.text import shorten
from sostenuto.results import FitResult


def comparison_section(result: FitResult) -> Section:
    """Return the section that sets the model beside the baselines."""
    return Section("Does the model earn its keep?", "baselines", _parts(result), short_title="Baselines")


def _parts(result: FitResult) -> tuple[Part, ...]:
    if not result.baselines:
        return (Prose("No baseline was measured in this run, so there is nothing to compare the score with."),)
    kind = metric(result.metric)
    rivals = [one for one in result.baselines if one.metric == result.metric]
    contenders = [
        _contender(result, result.model, result.score, is_model=True),
        *(_contender(result, one.name, one.score) for one in rivals),
    ]
    figure = comparison(contenders, kind, higher_is_better=result.higher_is_better)
    table = _table(result)
    if figure is None:
        return (Prose("None of the scores is a finite number, so there is no picture."), table)
    told = "; ".join(f"{one.name}: {kind.write(one.score)}" for one in contenders)
    caption = "Filled: the model. Open: cheap methods fitted on all that the model saw, scored on the same cases."
    if result.metric == "accuracy":
        caption += " Bars: where the score would likely lie on many more cases (95\u202f%)."
    picture = Picture(figure, f"{kind.label} of the model and the baselines. {told}.")
    return (Columns((Figures((picture,), caption),), (table,)),)


def _contender(result: FitResult, name: str, score: float, *, is_model: bool = False) -> Contender:
    low, high = binomial_interval(score, evaluated_count(result) if result.metric == "accuracy" else 0)
    return Contender(name, score, low, high, is_model)


def _table(result: FitResult) -> Table:
    columns = (Column("Method"), Column("Score", numeric=True), Column("Time", numeric=True))
    model = (Cell(shorten(result.model, 60), "this model"), _score_cell(result, result.metric, result.score))
    rows = [(*model, Cell(duration(result.seconds)))]
    rows += [
        (
            Cell(shorten(one.name, 60), shorten(one.description, 200)),
            _score_cell(result, one.metric, one.score),
            Cell(duration(one.seconds)),
        )
        for one in result.baselines
    ]
    return Table(f"Scores ({metric(result.metric).label}) and time taken", columns, tuple(rows), frozenset({0}))


def _score_cell(result: FitResult, name: str, score: float) -> Cell:
    kind = metric(name)
    return Cell(kind.write(score), "" if name == result.metric else kind.label)

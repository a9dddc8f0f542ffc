"""The model beside cheap baselines, beside networks trained on the same data, and why it was chosen."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import SMALL, canvas, label_x, limits, linear_ticks, text_width
from sostenuto.report.judgment import evaluated_count
from sostenuto.report.numbers import Metric, binomial_interval, count, duration, metric, number, percent, tick_labels
from sostenuto.report.palette import INK, LINE, MUTED, PAPER, SERIES
from sostenuto.report.section import Cell, Column, Columns, Figures, Part, Picture, Prose, Section, Table
from sostenuto.report.svg import house_style, set_tip
from sostenuto.report.text import one_line, shorten
from sostenuto.results import Candidate, FitResult

WIDTH = 410
_ROW = 36
_NAME_LETTERS = 22


@dataclass(frozen=True)
class Contender:
    """A name, its score, the score's 95 % range where it is known, and whether it is the model."""

    name: str
    score: float
    low: float = math.nan
    high: float = math.nan
    is_model: bool = False


@house_style()
def comparison(contenders: Sequence[Contender], metric: Metric, *, higher_is_better: bool) -> Figure | None:
    """Draw the contenders, best at the top; None where no score is finite."""
    finite = [contender for contender in contenders if math.isfinite(contender.score)]
    if not finite:
        return None
    ranked = sorted(finite, key=lambda contender: -contender.score if higher_is_better else contender.score)
    low, high = limits(
        np.array([value for contender in ranked for value in (contender.score, contender.low, contender.high)]), pad=0.1
    )
    if metric.is_share and ranked:
        low, high = max(low, min(0.0, ranked[-1].score)), min(high, max(1.0, ranked[0].score))
    names = [shorten(contender.name, _NAME_LETTERS) or "(no name)" for contender in ranked]
    left = 18 + max(text_width(name, 12.5) for name in names)
    figure, axes = canvas(WIDTH, _ROW * len(ranked) + 50, left=left, right=22, top=4, bottom=46)
    axes.set_xlim(low, high)
    axes.set_ylim(len(ranked) - 0.5, -0.5)
    ticks = linear_ticks(low, high, most=4)
    label_x(axes, ticks, tick_labels(ticks, as_percent=metric.is_share))
    axes.grid(axis="x", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for row, (contender, name) in enumerate(zip(ranked, names, strict=True)):
        _draw(axes, row, contender, name)
    better = f"{metric.label} →  better" if higher_is_better else f"better  ← {metric.label}"
    axes.set_xlabel(better, fontsize=SMALL, color=MUTED, labelpad=6)
    return figure


def _draw(axes: Axes, row: int, contender: Contender, name: str) -> None:
    color = SERIES[0] if contender.is_model else MUTED
    if math.isfinite(contender.low) and math.isfinite(contender.high):
        axes.plot(
            [contender.low, contender.high], [row, row], color=color, linewidth=2, alpha=0.55, solid_capstyle="round"
        )
    axes.plot(
        [contender.score],
        [row],
        marker="o",
        markersize=11,
        markerfacecolor=color if contender.is_model else PAPER,
        markeredgecolor=color,
        markeredgewidth=2,
        clip_on=False,
        zorder=4,
    )
    label = axes.annotate(
        name,
        (0, row),
        (-10, 0),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        ha="right",
        va="center",
        color=INK,
        fontsize=12.5,
        fontweight="bold" if contender.is_model else "normal",
    )
    if name != one_line(contender.name):
        set_tip(label, contender.name)


def comparison_section(result: FitResult) -> Section:
    """Return the section that sets the model beside the baselines."""
    return Section("Does the model earn its keep?", "baselines", _parts(result), short_title="Baselines")


def _parts(result: FitResult) -> tuple[Part, ...]:
    if not result.baselines:
        return (Prose("No baseline was measured in this run, so there is nothing to compare the score with."),)
    kind = metric(result.metric)
    rivals = [baseline for baseline in result.baselines if baseline.metric == result.metric]
    contenders = [
        _contender(result, result.model, result.score, is_model=True),
        *(_contender(result, rival.name, rival.score) for rival in rivals),
    ]
    figure = comparison(contenders, kind, higher_is_better=result.higher_is_better)
    table = _table(result)
    if figure is None:
        return (Prose("None of the scores is a finite number, so there is no picture."), table)
    told = "; ".join(f"{contender.name}: {kind.write(contender.score)}" for contender in contenders)
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
            Cell(shorten(baseline.name, 60), shorten(baseline.description, 200)),
            _score_cell(result, baseline.metric, baseline.score),
            Cell(duration(baseline.seconds)),
        )
        for baseline in result.baselines
    ]
    return Table(f"Scores ({metric(result.metric).label}) and time taken", columns, tuple(rows), frozenset({0}))


def _score_cell(result: FitResult, name: str, score: float) -> Cell:
    kind = metric(name)
    return Cell(kind.write(score), "" if name == result.metric else kind.label)


def others_section(result: FitResult, others: Sequence[FitResult]) -> Section:
    """Return the section that puts the page's model, other models and the baselines into one table, best first."""
    is_accuracy = result.classification is not None

    def write(score: float) -> str:
        return percent(score) if is_accuracy else number(score, digits=3)

    rows = [(result.score, (Cell(result.model, "the model of this page"), *_cells(result, write)))]
    rows += [(other.score, (Cell(other.model, _epochs(other)), *_cells(other, write))) for other in others]
    rows += [
        (baseline.score, (Cell(baseline.name, "baseline"), Cell(write(baseline.score)), Cell("–"), Cell("–")))
        for baseline in result.baselines
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


def choice_reason(candidates: Sequence[Candidate], chosen: str, *, is_accuracy: bool, budget: float) -> str:
    """Say in a sentence why the model was chosen."""
    default, winner = candidates[0], next(candidate for candidate in candidates if candidate.name == chosen)
    rivals = [candidate for candidate in candidates[1:] if candidate.score is not None]
    if winner is not default:
        return (
            f"{chosen} was chosen: on training sequences that neither had seen it leads {default.name} by "
            f"{_lead_text(winner, is_accuracy)}."
        )
    if not rivals:
        return f"{chosen} was chosen: {_alone(winner, budget, is_accuracy)}."
    leads = ", ".join(f"{candidate.name} {_lead_text(candidate, is_accuracy)}" for candidate in rivals)
    unseen = "on training sequences that they had not seen"
    return f"{chosen} was chosen: no other model is shown to be better {unseen} (leads over it: {leads})."


def choice_section(
    candidates: Sequence[Candidate], chosen: str, *, rule: str, is_accuracy: bool, budget: float
) -> Section:
    """Return the section on the choice among models, for a page made with `sostenuto.report.page.save`."""
    measure = "accuracy" if is_accuracy else "R²"
    reason = choice_reason(candidates, chosen, is_accuracy=is_accuracy, budget=budget)
    rule = f" {rule} The test part was not used."
    head = (
        Column("Model"),
        Column(f"Unseen {measure}", numeric=True),
        Column(f"Lead over {candidates[0].name}", numeric=True),
        Column("Time", numeric=True),
    )
    rows = tuple(
        (
            Cell(candidate.name, candidate.note),
            Cell(_score_text(candidate.score, is_accuracy)),
            Cell("–" if candidate.score is None or candidate is candidates[0] else _lead_text(candidate, is_accuracy)),
            Cell(duration(candidate.seconds) if candidate.score is not None else "–"),
        )
        for candidate in candidates
    )
    marked = frozenset({[candidate.name for candidate in candidates].index(chosen)})
    table = Table(f"Models considered within a budget of {duration(budget)}", head, rows, marked)
    return Section("Why this model?", "choice", (Prose(reason + rule), table), short_title="Choice")


def _alone(winner: Candidate, budget: float, is_accuracy: bool) -> str:
    if is_accuracy and winner.score == 1:
        return "no answer on training sequences that it had not seen is wrong, so that no other can lead"
    return f"it is the only model that was tried within {duration(budget)}"


def _lead_text(candidate: Candidate, is_accuracy: bool) -> str:
    lead, error = candidate.lead, candidate.standard_error
    if is_accuracy:
        return f"{100 * lead:.1f} ± {100 * error:.1f} points".replace("-", "−")
    return f"{lead:.3f} ± {error:.3f}".replace("-", "−")


def _score_text(score: float | None, is_accuracy: bool) -> str:
    if score is None:
        return "not tried"
    return percent(score) if is_accuracy else number(score, digits=3)

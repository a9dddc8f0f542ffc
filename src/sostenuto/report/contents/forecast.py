"""The page of a forecast: what comes next, how far off such forecasts were, and simple forecasts beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sostenuto.report.figures.forecast import forecast_figure
from sostenuto.report.figures.plot import lines, plotted
from sostenuto.report.judgment import Judgment
from sostenuto.report.numbers import count, number, percent
from sostenuto.report.page import compose
from sostenuto.report.section import Card, Cards, Cell, Column, Columns, Figures, Picture, Prose, Section, Table
from sostenuto.report.text import shorten
from sostenuto.results import BacktestResult

MOST_PICTURES = 6


@dataclass(frozen=True, eq=False)
class ForecastPicture:
    """One channel of one series: its end, and what comes."""

    name: str
    past: np.ndarray
    values: np.ndarray
    ahead: np.ndarray
    forecast: np.ndarray
    low: np.ndarray
    high: np.ndarray


def forecast_page(name: str, data: str, result: BacktestResult, pictures: Sequence[ForecastPicture]) -> str:
    """Return the page as HTML."""
    return compose(
        name=name,
        subject=f"forecaster on {shorten(data, 60)}",
        judgment=_judge(result),
        headline=_headline(result),
        sections=[_future(result, pictures), _past(result)],
        kind="report of a forecast",
    )


def _judge(result: BacktestResult) -> Judgment:
    own, *others = result.methods
    best = min(others, key=lambda method: method.rmse)
    said = f"Forecasts up to {counted_steps(result.horizon)} ahead were off by {number(own.rmse, digits=3)} (rmse)"
    remarks = (f"Measured by {count(result.origins)} forecasts into the later part of the series, each from its past.",)
    beside = f"{best.name} by {number(best.rmse, digits=3)}"
    if own.rmse < 0.99 * best.rmse:
        return Judgment("good", "Ahead of simple forecasts", f"{said}; the best simple one, {beside}.", remarks)
    if own.rmse <= 1.01 * best.rmse:
        return Judgment("caution", "No clear winner", f"{said}; {beside}.", remarks)
    return Judgment("bad", "A simple forecast wins", f"{said}; {beside}.", remarks)


def counted_steps(steps: int) -> str:
    """Write a number of steps.

    >>> counted_steps(1), counted_steps(14)
    ('1 step', '14 steps')
    """
    return f"{count(steps)} step{'' if steps == 1 else 's'}"


def _headline(result: BacktestResult) -> Cards:
    own = result.methods[0]
    season = counted_steps(result.season) if result.season > 1 else "none"
    return Cards(
        (
            Card("Error (rmse)", number(own.rmse, digits=3), f"over {counted_steps(result.horizon)} ahead"),
            Card("Against naive", number(own.mase, digits=3), "mean error over that of the naive forecast, one step"),
            Card("Inside intervals", percent(result.covered), f"of values; {percent(result.coverage)} were aimed at"),
            Card("Season", season, "found in the series, or given"),
        )
    )


def _future(result: BacktestResult, pictures: Sequence[ForecastPicture]) -> Section:
    drawn = tuple(
        Picture(
            forecast_figure(
                one.past, one.values, one.ahead, one.forecast, one.low, one.high, coverage=result.coverage, on_page=True
            ),
            f"The end of {one.name}, its forecast, and the interval around it.",
            shorten(one.name, 60),
        )
        for one in pictures[:MOST_PICTURES]
    )
    caption = f"The end of the series, the forecast, and the interval that should hold {percent(result.coverage)}."
    if len(pictures) > MOST_PICTURES:
        caption += f" The first {MOST_PICTURES} of {count(len(pictures))} are drawn; predictions.csv has all."
    return Section("What comes next", "forecast", (Figures(drawn, caption),), short_title="Forecast")


def _past(result: BacktestResult) -> Section:
    steps = list(range(1, result.horizon + 1))
    curves = {method.name: list(method.rmse_by_horizon) for method in result.methods}
    figure = plotted(lambda axes: lines(axes, steps, curves, labels=("steps ahead", "rmse")))
    head = (Column("Forecast"), *(Column(name, numeric=True) for name in ("rmse", "mae", "mase")))
    rows = tuple(
        (Cell(method.name), *(Cell(number(value, digits=3)) for value in (method.rmse, method.mae, method.mase)))
        for method in result.methods
    )
    table = Table("Errors over all horizons", head, rows, frozenset({0}))
    picture = Picture(figure, "Error by horizon of the forecaster and of simple forecasts.", "Error by horizon")
    words = (
        f"The later part of the series was forecast {count(result.origins)} times in {count(result.folds)} folds, each "
        "time by a model that had seen only what came before. Of several series each had a model of its own, and their "
        "errors are averaged."
    )
    caption = "Root mean squared error by how many steps ahead a forecast looks."
    return Section("How far off was it?", "errors", (Prose(words), Columns((Figures((picture,), caption),), (table,))))

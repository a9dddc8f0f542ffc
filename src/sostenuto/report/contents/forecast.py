"""The page of a forecast: what comes next, how far off such forecasts were, and simple forecasts beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sostenuto.report.figures.plot import lines, plotted
from sostenuto.report.judgment import Judgment
from sostenuto.report.numbers import count, counted, number, percent
from sostenuto.report.page import compose
from sostenuto.report.palette import COLORS
from sostenuto.report.section import Card, Cards, Cell, Column, Columns, Figures, Picture, Prose, Section, Table
from sostenuto.report.text import shorten
from sostenuto.results import BacktestResult

WIDTH, HEIGHT = 640, 300


def forecast_figure(
    past: np.ndarray,
    values: np.ndarray,
    ahead: np.ndarray,
    forecast: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    *,
    coverage: float,
    on_page: bool = False,
) -> Figure:
    """Draw ``values`` at the moments ``past``, and the ``forecast`` between ``low`` and ``high`` at ``ahead``.

    Moments are numbers or dates. ``on_page`` draws in the placeholder colors that the report's page replaces.

    >>> steps = np.arange(8.0)
    >>> figure = forecast_figure(steps[:5], steps[:5], steps[5:], steps[5:], steps[5:] - 1, steps[5:] + 1, coverage=0.9)
    >>> len(figure.axes[0].lines)
    2
    """
    seen, coming = (getattr(COLORS[role], "placeholder" if on_page else "light") for role in ("ink", "series-1"))

    def draw(axes: Axes) -> None:
        axes.plot(past, values, color=seen, linewidth=1.2, label="series")
        axes.fill_between(ahead, low, high, color=coming, alpha=0.2, linewidth=0, label=f"{coverage:.0%} interval")
        axes.plot(ahead, forecast, color=coming, linewidth=1.8, label="forecast")
        legend = axes.legend(loc="upper left")
        if np.asarray(past).dtype.kind == "M":
            axes.tick_params(axis="x", labelrotation=30)
        else:
            axes.set_xlabel("step")
        if not on_page:
            light = COLORS["muted"].light
            axes.tick_params(colors=light)
            axes.xaxis.label.set_color(light)
            for spine in axes.spines.values():
                spine.set_edgecolor(COLORS["line"].light)
            for text in legend.get_texts():
                text.set_color(COLORS["ink"].light)

    return plotted(draw, width=WIDTH, height=HEIGHT)


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
    said = f"Forecasts up to {counted(result.horizon, 'step')} ahead were off by {number(own.rmse, digits=3)} (rmse)"
    remarks = (f"Measured by {count(result.origins)} forecasts into the later part of the series, each from its past.",)
    beside = f"{best.name} by {number(best.rmse, digits=3)}"
    if own.rmse < 0.99 * best.rmse:
        return Judgment("good", "Ahead of simple forecasts", f"{said}; the best simple one, {beside}.", remarks)
    if own.rmse <= 1.01 * best.rmse:
        return Judgment("caution", "No clear winner", f"{said}; {beside}.", remarks)
    return Judgment("bad", "A simple forecast wins", f"{said}; {beside}.", remarks)


def _headline(result: BacktestResult) -> Cards:
    own = result.methods[0]
    naive = "seasonal naive" if result.season > 1 else "naive"
    season = counted(result.season, "step") if result.season > 1 else "none"
    return Cards(
        (
            Card("Error (rmse)", number(own.rmse, digits=3), f"over {counted(result.horizon, 'step')} ahead"),
            Card("Against naive", number(own.mase, digits=3), f"mean error over that of the {naive} forecast"),
            Card("Inside intervals", percent(result.covered), f"of values; {percent(result.coverage)} were aimed at"),
            Card("Season", season, "found in the series, or given"),
        )
    )


def _future(result: BacktestResult, pictures: Sequence[ForecastPicture]) -> Section:
    drawn = tuple(
        Picture(
            forecast_figure(
                picture.past,
                picture.values,
                picture.ahead,
                picture.forecast,
                picture.low,
                picture.high,
                coverage=result.coverage,
                on_page=True,
            ),
            f"The end of {picture.name}, its forecast, and the interval around it.",
            shorten(picture.name, 60),
        )
        for picture in pictures[:MOST_PICTURES]
    )
    caption = f"The end of the series, the forecast, and the interval that should hold {percent(result.coverage)}."
    if len(pictures) > MOST_PICTURES:
        caption += f" The first {MOST_PICTURES} of {count(len(pictures))} are drawn; predictions.csv has all."
    return Section("What comes next", "forecast", (Figures(drawn, caption),), short_title="Forecast")


def _past(result: BacktestResult) -> Section:
    head = (Column("Forecast"), *(Column(name, numeric=True) for name in ("rmse", "mae", "mase")))
    rows = tuple(
        (Cell(method.name), *(Cell(number(value, digits=3)) for value in (method.rmse, method.mae, method.mase)))
        for method in result.methods
    )
    table = Table("Errors over all horizons", head, rows, frozenset({0}))
    words = (
        f"The later part of the series was forecast {count(result.origins)} times in {count(result.folds)} folds, each "
        "time by a model that had seen only what came before. Of several series each had a model of its own, and their "
        "errors are averaged."
    )
    parts = (table,) if result.horizon == 1 else (Columns((_by_horizon(result),), (table,)),)
    return Section("How far off was it?", "errors", (Prose(words), *parts))


def _by_horizon(result: BacktestResult) -> Figures:
    steps = list(range(1, result.horizon + 1))
    curves = {method.name: list(method.rmse_by_horizon) for method in result.methods}

    def draw(axes: Axes) -> None:
        lines(axes, steps, curves, labels=("steps ahead", "rmse"))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    picture = Picture(plotted(draw), "Error by horizon of the forecaster and of simple forecasts.", "Error by horizon")
    return Figures((picture,), "Root mean squared error by how many steps ahead a forecast looks.")

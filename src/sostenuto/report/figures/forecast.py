"""A forecast: the end of the series, what comes next and the interval around it."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sostenuto.report.figures.plot import plotted
from sostenuto.report.palette import COLORS

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

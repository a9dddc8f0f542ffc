"""Mean ranks of methods over data sets, with the critical difference: how far apart two have to be to differ."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sostenuto.report.figures.plot import plotted
from sostenuto.report.palette import INK, MUTED, SERIES


def critical_difference(ranks: Mapping[str, float], difference: float) -> Figure:
    """Draw every method's mean rank with a bar of half the critical difference to each side; bars that overlap tie.

    >>> figure = critical_difference({"a": 1.3, "b": 1.9}, 0.4)
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['b', 'a']
    """
    ordered = sorted(ranks.items(), key=lambda pair: -pair[1])

    def draw(axes: Axes) -> None:
        for row, (_, rank) in enumerate(ordered):
            axes.plot([rank - difference / 2, rank + difference / 2], [row, row], color=SERIES[0], lw=2, ls="solid")
            axes.plot([rank], [row], "o", color=INK, ms=4, ls="none")
            axes.annotate(f"{rank:.2f}", (rank, row), (0, 5), textcoords="offset points", ha="center", color=MUTED)
        axes.set_yticks(range(len(ordered)), [name for name, _ in ordered])
        axes.set_ylim(-0.5, len(ordered) - 0.3)
        axes.set_xlabel(f"mean rank (1 is best); bars overlap: no difference at 5 % ({difference:.2f})")

    return plotted(draw, height=150)

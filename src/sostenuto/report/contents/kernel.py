"""What the kernel sees: the matrix, its spectrum, its fit to the labels, and the steps it looks at."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sostenuto.report.figures.canvas import (
    SMALL,
    canvas,
    draw_line,
    label_x,
    label_y,
    linear_ticks,
    log_ticks,
    shade,
    tick_margin,
)
from sostenuto.report.numbers import count, number, percent, tick_labels
from sostenuto.report.palette import INK, LINE, MUTED, SERIES, WRONG
from sostenuto.report.section import Card, Cards, Columns, Figures, LegendItem, Part, Picture, Prose, Section
from sostenuto.report.svg import house_style
from sostenuto.results import KernelSummary

WIDTH, HEIGHT = 410, 240
_SIDE = 380
_LEVELS = 10
_SMALLEST = 1e-16


@house_style()
def gram_picture(summary: KernelSummary) -> Figure:
    """Draw the matrix over √(k(x,x) k(y,y)): blue for alike, orange for unlike, paler near the middle value."""
    values = np.asarray(summary.picture)
    size = len(values)
    figure, axes = canvas(_SIDE + 12, _SIDE + 12, left=6, right=6, top=6, bottom=6)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    off = values[~np.eye(size, dtype=bool)] if size > 1 else values.ravel()
    middle = float(np.median(off))
    for color, gap, most in (
        (SERIES[0], values - middle, float(values.max()) - middle),
        (WRONG, middle - values, middle - float(values.min())),
    ):
        shade(axes, gap.clip(0) / max(most, np.finfo(float).tiny), color, levels=_LEVELS)
    groups = np.asarray(summary.groups)
    borders = np.flatnonzero(np.diff(groups)) + 0.5 if groups.size else np.empty(0)
    edges = np.array([-0.5, *borders, size - 0.5])
    axes.hlines(edges, -0.5, size - 0.5, color=INK, linewidth=0.8, clip_on=False)
    axes.vlines(edges, -0.5, size - 0.5, color=INK, linewidth=0.8, clip_on=False)
    return figure


@house_style()
def eigenvalue_decay(summary: KernelSummary) -> Figure | None:
    """Draw the eigenvalues over the largest, in logarithms; None where the kernel is 0."""
    values = np.asarray(summary.eigenvalues)
    if values.size == 0 or values[0] <= 0:
        return None
    shares = np.clip(values / values[0], _SMALLEST, None)
    low, high = 10 ** np.floor(np.log10(shares.min())), 2.0
    ticks = log_ticks(low, high)
    labels, left = tick_margin(ticks)
    figure, axes = canvas(WIDTH, HEIGHT, left=left, right=14, top=14, bottom=42)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylim(low, high)
    axes.set_xlim(1, max(len(shares), 2))
    numbers = np.arange(1, len(shares) + 1, dtype=float)
    draw_line(axes, numbers, shares, most=400, size=6, color=SERIES[0], linewidth=1.8, clip_on=False)
    label_y(axes, ticks, labels)
    where = linear_ticks(1, max(len(shares), 2), most=6, whole=True)
    label_x(axes, where, tick_labels(where))
    axes.set_xlabel("eigenvalue", fontsize=SMALL, color=MUTED, labelpad=6)
    return figure


@house_style()
def sensitivity_curves(summary: KernelSummary) -> Figure:
    """Draw s(t) for the kernel's own σ_w, for the suggested one, and quietly for the others."""
    figure, axes = canvas(WIDTH, HEIGHT, left=46, right=14, top=14, bottom=42)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.05)
    own = int(np.argmin(np.abs(np.asarray(summary.sigmas) - summary.sigma_w)))
    best = int(np.argmin(np.abs(np.asarray(summary.sigmas) - summary.suggestion)))
    for index, curve in enumerate(summary.sensitivities):
        style: dict[str, Any] = {"color": LINE, "linewidth": 1.2, "zorder": 1}
        if index == best:
            style = {"color": SERIES[1], "linewidth": 1.8, "linestyle": (0, (4, 2)), "zorder": 2}
        if index == own:
            style = {"color": SERIES[0], "linewidth": 1.8, "zorder": 3}
        axes.plot(np.linspace(0, 1, len(curve)), curve, clip_on=False, **style)
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    label_y(axes, ticks, tick_labels(ticks))
    label_x(axes, [0.0, 0.5, 1.0], ["first step", "", "last step"])
    axes.get_xticklabels()[0].set_horizontalalignment("left")
    axes.get_xticklabels()[-1].set_horizontalalignment("right")
    return figure


_FLAT = 0.01
"""A gain in evenness below this is not worth a suggestion."""


def kernel_section(summary: KernelSummary, classes: tuple[str, ...] = ()) -> Section:
    """Return the section on a kernel, for a page made with `sostenuto.report.page.save`."""
    many = directions_for(summary.eigenvalues)
    cards = Cards(
        (
            Card(
                "kernel alignment", number(summary.alignment, digits=3), "1: the kernel alone tells the targets apart"
            ),
            Card("effective rank", number(effective_rank(summary.eigenvalues), digits=3), "(Σλ)² / Σλ²"),
            Card("directions for 95 %", count(many), f"of {count(len(summary.eigenvalues))} hold 95 % of Σλ"),
        )
    )
    return Section(
        "What the kernel sees",
        "kernel",
        (
            Prose(f"The kernel is {summary.kernel}, fitted on {count(len(summary.eigenvalues))} training sequences."),
            cards,
            Columns((_matrix(summary, classes),), (*_spectrum(summary), *_sensitivity(summary))),
        ),
        short_title="Kernel",
    )


def effective_rank(eigenvalues: tuple[float, ...]) -> float:
    """Return (Σλ)² / Σλ²: how many directions a kernel spreads over.

    >>> effective_rank((2.0, 2.0, 0.0))
    2.0
    """
    values = np.asarray(eigenvalues)
    squares = float((values**2).sum())
    return float(values.sum() ** 2 / squares) if squares > 0 else 0.0


def directions_for(eigenvalues: tuple[float, ...]) -> int:
    """Count the largest eigenvalues that make up 95 % of the sum.

    >>> directions_for((90.0, 6.0, 4.0))
    2
    """
    values = np.cumsum(np.asarray(eigenvalues))
    return int(np.searchsorted(values, 0.95 * values[-1]) + 1) if values.size and values[-1] > 0 else 0


def _matrix(summary: KernelSummary, classes: tuple[str, ...]) -> Figures:
    shown, every = len(summary.picture), len(summary.eigenvalues)
    sorting = f"sorted by class ({', '.join(classes)})" if 0 < len(classes) <= 12 else "sorted by class"
    sorting = sorting if summary.groups else "sorted by target"
    of_all = f"{count(shown)} of {count(every)} training sequences" if shown < every else f"{count(every)} sequences"
    caption = (
        f"k(x, y) over the root of k(x, x) k(y, y) for {of_all}, {sorting}. Blue pairs are more alike than most, "
        "orange pairs less. Blue squares along the diagonal are classes that the kernel tells apart by itself."
    )
    told = f"The Gram matrix of {of_all}, {sorting}; its alignment with the targets is {number(summary.alignment)}."
    return Figures((Picture(gram_picture(summary), told, "The Gram matrix"),), caption)


def _spectrum(summary: KernelSummary) -> tuple[Part, ...]:
    figure = eigenvalue_decay(summary)
    if figure is None:
        return (Prose("Every value of the kernel is 0, so there is no spectrum to draw."),)
    values = np.asarray(summary.eigenvalues)
    told = f"The largest eigenvalue holds {percent(float(values[0] / values.sum()))} of the sum."
    caption = f"Eigenvalues of the Gram matrix over the largest. {told} The faster they fall, the fewer data suffice."
    return (
        Figures((Picture(figure, f"Decay of {count(len(values))} eigenvalues. {told}", "Eigenvalue decay"),), caption),
    )


def _sensitivity(summary: KernelSummary) -> tuple[Part, ...]:
    own = int(np.argmin(np.abs(np.asarray(summary.sigmas) - summary.sigma_w)))
    best = int(np.argmin(np.abs(np.asarray(summary.sigmas) - summary.suggestion)))
    now, then = summary.spreads[own], summary.spreads[best]
    legend = [LegendItem(f"σ_w = {summary.sigma_w:.3g}, this kernel", "series-1")]
    if best != own:
        legend.append(LegendItem(f"σ_w = {summary.suggestion:.3g}, the flattest", "series-2", dashed=True))
    caption = (
        "How much the kernel changes with the input at each step, s(t) of alemohammad2021, eq. (20), over its maximum; "
        "gray: other σ_w. A flat line treats all steps alike."
    )
    figure = Figures(
        (Picture(sensitivity_curves(summary), f"Sensitivity by step. {_advice(summary, now, then)}", "Sensitivity"),),
        caption,
        legend=tuple(legend),
    )
    return (figure, Prose(_advice(summary, now, then), note=True))


def _advice(summary: KernelSummary, now: float, then: float) -> str:
    spread = f"s(t) varies by {percent(now)} of its mean"
    if now - then < _FLAT:
        return f"{spread}, and no σ_w nearby makes it flatter: the choice agrees with section 3.4 of alemohammad2021."
    return (
        f"{spread}; with σ_w = {summary.suggestion:.3g} it would be {percent(then)}. Where nothing is known of which "
        "steps matter, alemohammad2021 (section 3.4) suggests the flattest. The fitted σ was chosen by its score."
    )

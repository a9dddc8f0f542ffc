"""Figure 1a of fermanian2021: the error of the step-N Taylor expansion, by N."""

from functools import partial
from typing import Any

import numpy as np
import torch

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.taylor_errors import ACTIVATIONS, spiral_path, taylor_errors, uniform_weights
from sostenuto.report.figures.plot import lines


def run(settings: Settings, bench: Workbench) -> None:
    """Expand, solve, compare."""
    orders = list(range(1, settings.orders + 1))
    errors = {name: np.array(bench.cell(name, partial(measure, settings, name, bench.seed))) for name in ACTIVATIONS}
    for name, result in errors.items():
        median = np.median(result, axis=0)
        slope, straight = line_through(np.log10(median))
        seen = ", ".join(f"{value:.2g}" for value in median)
        falls = bool((np.diff(median) < 0).all()) and straight >= 0.95
        bench.law(f"{name}: the error falls exponentially", falls, f"median by N: {seen}; R² {straight:.4f}")
        bench.number(f"{name}: factor from order to order", 10**slope)
    falling = [float((result[:, -1] < result[:, 0]).mean()) for result in errors.values()]
    seen = " and ".join(f"{100 * share:.1f} %" for share in falling)
    bench.law("every network converges", min(falling) == 1, f"{seen} of {settings.models}")
    rows = [
        (name, order, *(float(q) for q in np.quantile(result[:, order - 1], [0.05, 0.5, 0.95, 1])))
        for name, result in errors.items()
        for order in orders
    ]
    columns = ("activation", "N", "5 %", "median", "95 %", "largest")
    bench.table("Largest error along the path, over the networks", columns, rows)
    bench.figure("Error by order", partial(draw, orders=orders, errors=errors), caption="Median and 5 % to 95 %.")


def measure(settings: Settings, activation: str, seed: int) -> list[list[float]]:
    """Return the errors of all networks with one activation; both activations have the same weights."""
    weights = uniform_weights(settings.models, settings.hidden_size, torch.Generator().manual_seed(seed))
    path = spiral_path(settings.points, settings.total_variation, seed)
    return taylor_errors(weights, path, settings.orders, activation, settings.total_variation).tolist()


def line_through(values: np.ndarray) -> tuple[float, float]:
    """Fit a straight line over 1, 2, …; give its slope and R²."""
    x = np.arange(len(values))
    slope, start = np.polyfit(x, values, 1)
    left = ((values - start - slope * x) ** 2).sum()
    return float(slope), float(1 - left / ((values - values.mean()) ** 2).sum())


def draw(axes: Any, *, orders: list[int], errors: dict[str, np.ndarray]) -> None:
    """Draw medians, with the middle nine tenths as a band."""
    lines(axes, orders, {name: np.median(result, axis=0).tolist() for name, result in errors.items()}, marks=True)
    for result, line in zip(errors.values(), list(axes.lines), strict=True):
        low, high = np.quantile(result, [0.05, 0.95], axis=0)
        axes.fill_between(orders, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_yscale("log")
    axes.set_xlabel("order N")
    axes.set_ylabel("largest error along the path")

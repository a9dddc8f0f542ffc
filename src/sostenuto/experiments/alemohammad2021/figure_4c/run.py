"""Figure 4c of alemohammad2021: forecasts of Google's stock, by how much the lengths of windows vary."""

from functools import partial

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.ucr_kernels import KERNELS
from sostenuto.experiments.tasks.window_regression import (
    PREVIOUS,
    Windows,
    judge_ahead,
    judge_gaps,
    show,
    stock_prices,
    stock_windows,
    sweep,
)


def run(settings: Settings, bench: Workbench) -> None:
    """Vary T_var."""
    closes = stock_prices(settings, bench)
    swept = sweep(settings, bench, "variation", settings.points, partial(draw, settings, closes))
    others, default = KERNELS[1:], list(settings.points).index(10)
    bench.number("RNTK at T_var = 10", swept["RNTK"][default].tolist())
    bench.number("previous step at T_var = 10", swept[PREVIOUS][default].tolist())
    varied = {name: values[np.asarray(settings.points) > 0] for name, values in swept.items()}
    judge_ahead(bench, "RNTK is ahead of the other kernels", varied, "RNTK", others)
    lead = swept["RNTK"] - np.mean([swept[name] for name in others], axis=0)
    first, last = lead.mean(axis=1)[[0, -1]]
    said = f"{first:+.2f} dB at T_var = {settings.points[0]}, {last:+.2f} dB at {settings.points[-1]}"
    judge_gaps(bench, "the gap grows with the variation of lengths", [lead[-1] - lead[0]], said)
    judge_ahead(bench, "the previous step is ahead of all kernels", swept, PREVIOUS, KERNELS)
    show(bench, swept, settings.points, "T_var")


def draw(settings: Settings, closes: np.ndarray, point: float, seed: int) -> tuple[Windows, Windows]:
    """Cut windows of prices."""
    return stock_windows(closes, settings.shortest, int(point), settings.num_train, seed)

"""Figure 4d of alemohammad2021: forecasts of Google's stock, by the number of windows that train."""

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
    """Vary the number of training windows."""
    closes = stock_prices(settings, bench)
    swept = sweep(settings, bench, "windows", settings.points, partial(draw, settings, closes))
    others = KERNELS[1:]
    bench.number("RNTK with 20 windows", swept["RNTK"][list(settings.points).index(20)].tolist())
    judge_ahead(bench, "RNTK is ahead of the other kernels", swept, "RNTK", others)
    lost = {name: values[-1] - values[0] for name, values in swept.items()}
    rest, own = np.mean([lost[name] for name in others], axis=0), lost["RNTK"]
    said = f"RNTK loses {own.mean():.2f} dB, the others {rest.mean():.2f} dB"
    judge_gaps(bench, "RNTK keeps its performance when the training part is small", [rest - own], said)
    judge_gaps(bench, "RNTK improves with the training part", [own], f"by {own.mean():.2f} dB")
    judge_ahead(bench, "the previous step is ahead of all kernels", swept, PREVIOUS, KERNELS)
    show(bench, swept, settings.points, "training windows")


def draw(settings: Settings, closes: np.ndarray, point: float, seed: int) -> tuple[Windows, Windows]:
    """Cut windows of prices."""
    return stock_windows(closes, settings.shortest, settings.variation, int(point), seed)

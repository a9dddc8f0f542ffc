"""Figure 4d of alemohammad2021: forecasts of Google's stock, by the number of windows that train."""

from functools import partial

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.ucr_kernels import KERNELS
from sostenuto.experiments.tasks.window_regression import (
    PREVIOUS,
    Windows,
    ahead,
    show,
    stock_prices,
    stock_windows,
    sweep,
)


def run(settings: Settings, bench: Workbench) -> None:
    """Vary the number of training windows."""
    closes = stock_prices(settings, bench)
    found = sweep(settings, bench, "windows", settings.points, partial(draw, settings, closes))
    others = KERNELS[1:]
    bench.number("RNTK with 20 windows", found["RNTK"][list(settings.points).index(20)].tolist())
    bench.law("RNTK is ahead of the other kernels", *ahead(found, "RNTK", others))
    lost = {name: float(values[-1].mean() - values[0].mean()) for name, values in found.items()}
    rest = float(np.mean([lost[name] for name in others]))
    said = f"RNTK loses {lost['RNTK']:.2f} dB, the others {rest:.2f} dB"
    bench.law("RNTK keeps its performance when the training part is small", lost["RNTK"] < rest, said)
    bench.law("RNTK improves with the training part", lost["RNTK"] > 0, f"by {lost['RNTK']:.2f} dB")
    bench.law("the previous step is ahead of all kernels", *ahead(found, PREVIOUS, KERNELS))
    show(bench, found, settings.points, "training windows")


def draw(settings: Settings, closes: np.ndarray, point: float, seed: int) -> tuple[Windows, Windows]:
    """Cut windows of prices."""
    return stock_windows(closes, settings.shortest, settings.variation, int(point), seed)

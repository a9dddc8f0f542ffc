"""Figure 4b of alemohammad2021: forecasts of a sine, by the level of noise."""

from functools import partial

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.ucr_kernels import KERNELS
from sostenuto.experiments.tasks.window_regression import Windows, ahead, show, sine_windows, sweep


def run(settings: Settings, bench: Workbench) -> None:
    """Vary σ_n."""
    found = sweep(settings, bench, "noise", settings.points, partial(draw, settings))
    others = KERNELS[1:]
    bench.number("RNTK at σ_n = 0.05", found["RNTK"][list(settings.points).index(0.05)].tolist())
    bench.number("RNTK at the largest σ_n", found["RNTK"][-1].tolist())
    low = {name: values[np.asarray(settings.points) <= 0.05] for name, values in found.items()}
    bench.law("RNTK is ahead of the other kernels at low noise", *ahead(low, "RNTK", others))
    lost = {name: float(values[0].mean() - values[-1].mean()) for name, values in found.items()}
    rest = float(np.mean([lost[name] for name in others]))
    said = f"RNTK loses {lost['RNTK']:.1f} dB, the others {rest:.1f} dB"
    bench.law("the RNTK loses more to noise than the other kernels", lost["RNTK"] > rest, said)
    show(bench, found, settings.points, "σ_n", log="x")


def draw(settings: Settings, point: float, seed: int) -> tuple[Windows, Windows]:
    """Cut windows of a sine."""
    return sine_windows(settings, settings.variation, point, seed)

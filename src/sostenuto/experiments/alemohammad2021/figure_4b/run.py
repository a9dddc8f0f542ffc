"""Figure 4b of alemohammad2021: forecasts of a sine, by the level of noise."""

from functools import partial

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.ucr_kernels import KERNELS
from sostenuto.experiments.tasks.window_regression import Windows, judge_ahead, judge_gaps, show, sine_windows, sweep


def run(settings: Settings, bench: Workbench) -> None:
    """Vary σ_n."""
    swept = sweep(settings, bench, "noise", settings.points, partial(draw, settings))
    others = KERNELS[1:]
    bench.number("RNTK at σ_n = 0.05", swept["RNTK"][list(settings.points).index(0.05)].tolist())
    bench.number("RNTK at the largest σ_n", swept["RNTK"][-1].tolist())
    low = {name: values[np.asarray(settings.points) <= 0.05] for name, values in swept.items()}
    judge_ahead(bench, "RNTK is ahead of the other kernels at low noise", low, "RNTK", others)
    lost = {name: values[0] - values[-1] for name, values in swept.items()}
    rest = np.mean([lost[name] for name in others], axis=0)
    said = f"RNTK loses {lost['RNTK'].mean():.1f} dB, the others {rest.mean():.1f} dB"
    judge_gaps(bench, "the RNTK loses more to noise than the other kernels", [lost["RNTK"] - rest], said)
    show(bench, swept, settings.points, "σ_n", log="x")


def draw(settings: Settings, point: float, seed: int) -> tuple[Windows, Windows]:
    """Cut windows of a sine."""
    return sine_windows(settings, settings.variation, point, seed)

"""Figure 4a of alemohammad2021: forecasts of a noisy sine, by how much the lengths of windows vary."""

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
    sine_windows,
    sweep,
)


def run(settings: Settings, bench: Workbench) -> None:
    """Vary T_var."""
    swept = sweep(settings, bench, "variation", settings.points, partial(draw, settings))
    others, default = KERNELS[1:], list(settings.points).index(10)
    bench.number("RNTK at T_var = 10", swept["RNTK"][default].tolist())
    bench.number("previous step at T_var = 10", swept[PREVIOUS][default].tolist())
    varied = {name: values[np.asarray(settings.points) > 0] for name, values in swept.items()}
    judge_ahead(bench, "RNTK is ahead of the other kernels", varied, "RNTK", others)
    lead = swept["RNTK"] - np.mean([swept[name] for name in others], axis=0)
    first, last = lead.mean(axis=1)[[0, -1]]
    said = f"{first:+.2f} dB at T_var = {settings.points[0]}, {last:+.2f} dB at {settings.points[-1]}"
    judge_gaps(bench, "the gap grows with the variation of lengths", [lead[-1] - lead[0]], said)
    judge_ahead(bench, "RNTK is ahead of the previous step", swept, "RNTK", [PREVIOUS])
    judge_ahead(bench, "polynomial is ahead of the previous step", swept, "Polynomial", [PREVIOUS])
    last = {name: float((swept[name] - swept[PREVIOUS])[-1].mean()) for name in ("NTK", "RBF")}
    said = f"NTK {last['NTK']:+.2f} dB, RBF {last['RBF']:+.2f} dB"
    bench.law("NTK and RBF fall behind the previous step", max(last.values()) < 0, said)
    show(bench, swept, settings.points, "T_var")


def draw(settings: Settings, point: float, seed: int) -> tuple[Windows, Windows]:
    """Cut windows of a sine."""
    return sine_windows(settings, int(point), settings.noise, seed)

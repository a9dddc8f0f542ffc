"""Figure 7 of erichson2021: spectrum of A and accuracy through training, over learning rates and batch sizes."""

import math
from functools import partial
from typing import Any

import torch

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.sweeps import Swept, sweep
from sostenuto.models.base import SequenceModel
from sostenuto.report.palette import MUTED

SWEEPS = {"rate": "learning rate", "batch": "batch"}
REAL = "largest real part"
LEARNED = 50.0
UNBOUNDED = 1e300
"""Stands for the spectrum of weights that are no numbers any more."""


def run(settings: Settings, bench: Workbench) -> None:
    """Train over learning rates and over batch sizes, reading the spectrum of A off after every epoch."""
    data = bench.data(settings.dataset)
    swept = {prefix: sweep(bench, settings, data, prefix, probe=spectrum) for prefix in SWEEPS}
    every = [point for points in swept.values() for point in points]
    agree = [(last(point) > 0) == (point.test < LEARNED) for point in every]
    told = "; ".join(
        f"{SWEEPS[prefix]} {point.value:g}: {last(point):+.3g}, {point.test:.1f} %"
        for prefix, points in swept.items()
        for point in points
    )
    bench.law("models learn only where A is stable", all(agree), told)
    small = {SWEEPS[prefix]: last(points[0]) for prefix, points in swept.items()}
    told = ", ".join(f"least {name} {value:+.3g}" for name, value in small.items())
    bench.law("small steps end stable", max(small.values()) <= 0, told, seeds=1)
    for prefix, law in (("rate", "large learning rates lose stability"), ("batch", "large batches lose stability")):
        least, most = met(swept[prefix][0]), met(swept[prefix][-1])
        bench.law(law, most > least, f"{least:+.3g} at the least, {most:+.3g} at the largest", seeds=1)
    for prefix, name in SWEEPS.items():
        for which, item in (("least", swept[prefix][0]), ("largest", swept[prefix][-1])):
            bench.number(f"{which} {name}: test accuracy", item.test)
            if prefix == "rate":
                _report(bench, f"{which} {name}: largest real part at the end", last(item))
    for prefix, name in SWEEPS.items():
        for title, row, scale in (("Largest real part of A", REAL, 1), ("Validation accuracy, %", "validation", 100)):
            draw = partial(curves, points=swept[prefix], name=name, row=row, scale=scale, label=title)
            bench.figure(f"{title}, by {name}", draw, caption="One line a training.")
    rows = [
        (
            SWEEPS[p],
            f"{point.value:g}",
            last(point),
            met(point),
            point.validation,
            point.test,
            "yes" if point.diverged else "no",
        )
        for p, points in swept.items()
        for point in points
    ]
    columns = ("varied", "value", "Re λ(A), end", "Re λ(A), largest", "validation, %", "test, %", "diverged")
    bench.table("Trainings", columns, rows)


def spectrum(model: SequenceModel) -> dict[str, float]:
    """Return the largest real part of the eigenvalues of A."""
    layer: Any = model.layer
    weight = layer.weight("weight_linear", 0, False).detach().double().cpu()
    return {REAL: float(torch.linalg.eigvals(weight).real.max()) if bool(weight.isfinite().all()) else UNBOUNDED}


def last(point: Swept) -> float:
    """Return the largest real part after the last epoch; a training that was lost from the start has none, and is ∞."""
    return point.history[-1][REAL] if point.history else math.inf


def met(point: Swept) -> float:
    """Return the largest real part over all epochs."""
    return max((row[REAL] for row in point.history), default=math.inf)


def curves(axes: Any, *, points: list[Swept], name: str, row: str, scale: float, label: str) -> None:
    """Draw one line a training over the epochs; zero parts the stable from the unstable."""
    for point in points:
        epochs = [entry["epoch"] for entry in point.history]
        values = [scale * entry[row] if entry[row] < UNBOUNDED else math.nan for entry in point.history]
        axes.plot(epochs, values, marker="o", markersize=3, label=f"{name} {point.value:g}")
    if row == REAL:
        axes.axhline(0.0, color=MUTED, linewidth=0.8)
        axes.set_yscale("symlog", linthresh=0.01)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel="epoch", ylabel=label)
    axes.legend()


def _report(bench: Workbench, name: str, value: float) -> None:
    if value < UNBOUNDED:
        bench.number(name, value)
    else:
        bench.skip(name, "the loss became infinite")

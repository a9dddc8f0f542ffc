"""Figure 8 of erichson2021: accuracy through training on four tasks."""

from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import Trained, compete, report
from sostenuto.experiments.tasks.stable_approximation import falls
from sostenuto.report.figures.plot import lines

TASKS = {
    "ordered": "ordered MNIST",
    "permuted": "permuted MNIST",
    "pixels": "CIFAR-10, pixels",
    "padded": "CIFAR-10, noise-padded",
}
WITHIN = 0.01


def run(settings: Settings, bench: Workbench) -> None:
    """Train on every task and draw how validation accuracy rises; the test part is evaluated once, at the end."""
    trained: dict[str, Trained] = {}
    for task, name in TASKS.items():
        data = bench.data(settings[task])
        trained[task] = compete(bench, settings, data, {"lipschitz": f"Lipschitz RNN, {name}"}, part=task)["lipschitz"]
        report(bench, f"{name}: test accuracy", trained[task])
    scores = [100 * fit.mean for fit in trained.values()]
    told = ", ".join(f"{name} {score:.2f} %" for name, score in zip(TASKS.values(), scores, strict=True))
    bench.law("the tasks in order of difficulty", falls(scores), told, seeds=settings.seeds)
    needed = {task: [_arrival(record) for record in trained[task].records] for task in ("ordered", "permuted")}
    for task, epochs in needed.items():
        bench.number(f"epochs to within a point of the best, {task}", epochs)
    longer = fmean(needed["permuted"]) > fmean(needed["ordered"])
    told = ", ".join(f"{task} {fmean(epochs):g} epochs" for task, epochs in needed.items())
    bench.law("the permuted task takes longer", longer, told, seeds=settings.seeds)
    curves = {TASKS[task]: [_curve(record) for record in fit.records] for task, fit in trained.items()}
    epochs = [row["epoch"] for row in trained["ordered"].records[0]["history"]]
    series = {name: np.mean(rows, axis=0).tolist() for name, rows in curves.items()}
    spreads = {name: np.std(rows, axis=0).tolist() for name, rows in curves.items()}
    draw = partial(lines, x=epochs, series=series, spreads=spreads, labels=("epoch", "validation accuracy, %"))
    bench.figure("Accuracy through training", draw, caption="Mean and deviation over seeds.", width=520, height=340)


def _arrival(record: dict[str, Any]) -> int:
    """Return the first epoch within a point of the best validation accuracy."""
    history = record["history"]
    best = max(row["validation"] for row in history)
    return next(row["epoch"] for row in history if row["validation"] >= best - WITHIN)


def _curve(record: dict[str, Any]) -> list[float]:
    return [100 * row["validation"] for row in record["history"]]

"""Figure 4 of erichson2021: loss landscapes along the two dominant eigenvectors of the Hessian."""

from functools import partial
from typing import Any

import numpy as np

from sostenuto.audits import loss_surface
from sostenuto.data.dataset import Dataset
from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import Trained, compete
from sostenuto.experiments.tasks.long_data import folded
from sostenuto.experiments.tasks.trained_cells import trained_model
from sostenuto.report.figures.plot import lines
from sostenuto.report.palette import INK, SERIES

NAMES = {"lipschitz": "Lipschitz RNN", "antisymmetric": "antisymmetric RNN", "ode": "neural-ODE RNN"}


def run(settings: Settings, bench: Workbench) -> None:
    """Train three models and move their weights."""
    dataset = folded(bench.data(settings.dataset), settings.channels)
    trained = compete(bench, settings, dataset, NAMES)
    asking = [(f"{prefix}/surface", partial(moved, settings, bench, dataset, fit)) for prefix, fit in trained.items()]
    results = dict(zip(trained, bench.ahead(partial(bench.cell, *task) for task in asking), strict=True))
    rises = {prefix: np.asarray(result["loss"]) - result["center"] for prefix, result in results.items()}
    for prefix, name in NAMES.items():
        words = trained[prefix].words
        bench.number(f"{name}: loss at the weights", results[prefix]["center"], recipe=words)
        bench.number(f"{name}: mean rise of the loss", float(rises[prefix].mean()), recipe=words)
    centers = [result["center"] for result in results.values()]
    told = ", ".join(f"{NAMES[prefix]} {result['center']:.3g}" for prefix, result in results.items())
    bench.law("all three start from about the same loss", max(centers) - min(centers) <= 0.1, told, seeds=1)
    best = {min(rises, key=lambda prefix, of=of: of(rises[prefix])) for of in (np.mean, np.max)}
    told = "; ".join(f"{NAMES[prefix]} {rise.mean():.3g} and {rise.max():.3g}" for prefix, rise in rises.items())
    bench.law("the landscape of the Lipschitz RNN is the smoothest", best == {"lipschitz"}, told, seeds=1)
    columns = ("model", "first eigenvalue", "second", "loss at the weights", "mean rise", "largest rise")
    rows = [
        (NAMES[p], *result["eigenvalues"], result["center"], float(rises[p].mean()), float(rises[p].max()))
        for p, result in results.items()
    ]
    bench.table("Curvature and rise of the loss", columns, rows)
    steps = results["lipschitz"]["steps"]
    middle = len(steps) // 2
    for which, axis in (("first", 0), ("second", 1)):
        slices = {NAMES[p]: np.take(result["loss"], middle, axis=1 - axis).tolist() for p, result in results.items()}
        draw = partial(lines, x=steps, series=slices, labels=(f"step along the {which} eigenvector", "training loss"))
        bench.figure(f"Along the {which} eigenvector", draw)
    highest = max(float(np.max(result["loss"])) for result in results.values())
    lowest = min(float(np.min(result["loss"])) for result in results.values())
    levels = np.geomspace(max(lowest, highest / 100), highest, 12)[1:-1]
    for prefix, result in results.items():
        portrait = partial(draw_levels, steps=steps, loss=np.asarray(result["loss"]), levels=levels)
        caption = (
            f"Lines of equal loss, the same {len(levels)} from {levels[0]:.2g} to {levels[-1]:.2g} for all models."
        )
        bench.figure(NAMES[prefix], portrait, caption=caption, width=320, height=300)


def moved(settings: Settings, bench: Workbench, dataset: Dataset, trained: Trained) -> dict[str, Any]:
    """Measure the loss around the first seed's weights, on training images."""
    key, recipe = next(iter(trained.cells.items()))
    stored = trained_model(bench, key, dataset, recipe)
    train = stored.encoding.encode(dataset.train.take(np.arange(settings.curved)))
    options = {"radius": settings.radius, "points": settings.points, "seed": bench.seed, "batch_size": 500}
    surface = loss_surface(stored.model.to(bench.device), train.values, train.targets, **options)
    loss = [list(row) for row in surface.loss]
    return {
        "steps": list(surface.steps),
        "loss": loss,
        "center": surface.center,
        "eigenvalues": list(surface.eigenvalues),
    }


def draw_levels(axes: Any, *, steps: list[float], loss: np.ndarray, levels: np.ndarray) -> None:
    """Draw lines of equal loss."""
    shown = axes.contour(steps, steps, loss.T, levels=levels, colors=[SERIES[0]], linewidths=1.2)
    axes.clabel(shown, fmt="%.2g", fontsize=8, colors=[INK])
    axes.plot([0], [0], "x", color=SERIES[1], markersize=5)
    axes.set(xlabel="along the first eigenvector", ylabel="along the second", aspect="equal")

"""Figure 3 of erichson2021: accuracy of four trained units under noise on the input."""

from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from sostenuto.audits import noise_accuracy
from sostenuto.data.dataset import Dataset
from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import Trained, compete, report
from sostenuto.experiments.tasks.long_data import folded
from sostenuto.experiments.tasks.trained_cells import trained_model
from sostenuto.report.figures.plot import lines

NAMES = {
    "ode": "neural-ODE RNN",
    "antisymmetric": "antisymmetric RNN",
    "orthogonal": "orthogonal RNN",
    "lipschitz": "Lipschitz RNN",
}
KINDS = {"white noise": ("gaussian", "gaussian"), "salt and pepper": ("salt-and-pepper", "impulses")}
"""What the page calls it: the audit's kind of noise, and the setting that lists its levels."""
UNITS = {
    "white noise": "standard deviation of the noise over that of the pixels",
    "salt and pepper": "share of pixels replaced",
}


def run(settings: Settings, bench: Workbench) -> None:
    """Train four models and ask them about noisy test images."""
    dataset = folded(bench.data(settings.dataset), settings.channels)
    trained = compete(bench, settings, dataset, NAMES)
    asking = [(f"{prefix}/noise", partial(asked, settings, bench, dataset, fit)) for prefix, fit in trained.items()]
    results = dict(zip(trained, bench.ahead(partial(bench.cell, *task, tests=True) for task in asking), strict=True))
    for what, (_, levels) in KINDS.items():
        kept = {prefix: _mean(settings[levels], result[what]["accuracy"]) for prefix, result in results.items()}
        for prefix, value in kept.items():
            bench.number(f"{NAMES[prefix]}: {what}", value, recipe=trained[prefix].words)
        first = max(kept, key=kept.__getitem__)
        told = ", ".join(f"{NAMES[prefix]} {value:.1f} %" for prefix, value in kept.items())
        bench.law(f"the Lipschitz RNN stands {what} best", first == "lipschitz", told, seeds=1)
        series = {
            NAMES[prefix]: [100 * value for value in result[what]["accuracy"]] for prefix, result in results.items()
        }
        spreads = {
            NAMES[prefix]: [100 * value for value in result[what]["deviation"]] for prefix, result in results.items()
        }
        labels = (UNITS[what], "test accuracy, %")
        draw = partial(lines, x=settings[levels], series=series, spreads=spreads, labels=labels, marks=True)
        bench.figure(what.capitalize(), draw, caption="Mean and deviation over draws of the noise.")
    for prefix, name in NAMES.items():
        report(bench, f"{name}: test accuracy", trained[prefix])


def asked(settings: Settings, bench: Workbench, dataset: Dataset, trained: Trained) -> dict[str, Any]:
    """Ask the first seed's model about test images under both kinds of noise."""
    key, recipe = next(iter(trained.cells.items()))
    stored = trained_model(bench, key, dataset, recipe)
    assert dataset.test is not None
    test = stored.encoding.encode(dataset.test.take(np.arange(min(settings.asked, len(dataset.test)))))
    model, results = stored.model.to(bench.device), {}
    for what, (kind, levels) in KINDS.items():
        options = {"levels": settings[levels], "kind": kind, "repeats": settings.repeats, "batch_size": 1000}
        curve = noise_accuracy(model, test.values, test.targets, seed=bench.seed, **options)
        results[what] = {"accuracy": list(curve.score), "deviation": list(curve.deviation)}
    return results


def _mean(levels: list[float], accuracy: list[float]) -> float:
    return 100 * fmean(value for level, value in zip(levels, accuracy, strict=True) if level > 0)

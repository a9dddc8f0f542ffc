"""Figure 7 of rusch2021: norms of the hidden weights during training on noise-padded CIFAR-10."""

from functools import partial

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.oscillator_fits import images_before_noise, oscillator_recipe
from sostenuto.experiments.tasks.trained_cells import train_cell
from sostenuto.models.base import SequenceModel
from sostenuto.report.figures.plot import lines

BOUND = 20.0


def run(settings: Settings, bench: Workbench) -> None:
    """Train with several seeds, reading the norms off after every epoch."""
    data = images_before_noise(bench, settings.dataset)
    bench.checksums.setdefault(data.name, data.train.checksum())
    names = [f"layer {number}" for number in range(1, settings.num_layers + 1)]
    cells = [
        partial(
            train_cell,
            bench,
            f"fit/seed={seed}",
            data,
            oscillator_recipe(settings, seed=seed),
            probe=hidden_norms,
        )
        for seed in bench.seeds(settings.seeds)
    ]
    bench.ahead(cells)
    runs = [[[row[name] for row in cell()["history"]] for name in names] for cell in cells]
    norms = np.asarray(runs)
    ends = norms[:, :, -1].max(axis=1)
    bench.number("largest norm at the end", ends.tolist())
    bench.law("norms do not explode", bool(norms.max() < BOUND), f"at most {norms.max():.3g}")
    half = norms.shape[2] // 2
    first = np.abs(norms[:, :, half - 1] - 1).mean()
    second = np.abs(norms[:, :, -1] - norms[:, :, half - 1]).mean()
    bench.law("norms saturate", bool(second < first / 2), f"{first:.3g} in the first half, {second:.3g} in the second")
    epochs = list(range(1, norms.shape[2] + 1))
    means, spreads = norms.mean(axis=0), norms.std(axis=0)
    series = {f"layer {number}": row.tolist() for number, row in enumerate(means, start=1)}
    bands = {f"layer {number}": row.tolist() for number, row in enumerate(spreads, start=1)}
    draw = partial(lines, x=epochs, series=series, spreads=bands, labels=("epoch", "largest |w|"))
    bench.figure("Norms of the hidden weights", draw, caption="Mean and deviation over trainings; they start below 1.")


def hidden_norms(model: SequenceModel) -> dict[str, float]:
    """Return the largest absolute hidden weight of every layer."""
    weights = [value for name, value in model.named_parameters() if "weight_hh" in name]
    return {f"layer {number}": float(value.detach().abs().max()) for number, value in enumerate(weights, start=1)}

"""Figure 5 of rusch2021: the effective time step of every unit after training on permuted MNIST."""

from functools import partial
from typing import Any

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.oscillator_fits import oscillator_recipe
from sostenuto.experiments.tasks.trained_cells import train_cell, trained_model
from sostenuto.report.figures.plot import lines


def run(settings: Settings, bench: Workbench) -> None:
    """Train once, read the steps off."""
    data = bench.data(settings.dataset)
    recipe = oscillator_recipe(settings, seed=bench.seed)
    results = train_cell(bench, "fit", data, recipe)
    steps = bench.cell("steps", lambda: effective_steps(trained_model(bench, "fit", data, recipe).model))
    ratio = settings.step_size / min(min(layer) for layer in steps)
    bench.number("largest step over the least effective one", ratio)
    within = [max(layer) / min(layer) for layer in steps]
    bench.law(
        "units of a layer differ", min(within) >= 1.3, ", ".join(f"{run:.3g}" for run in within) + " times", seeds=1
    )
    means = [sum(layer) / len(layer) for layer in steps]
    seen = "means " + ", ".join(f"{mean:.4g}" for mean in means)
    bench.law("layers differ", max(means) >= 1.05 * min(means), seen, seeds=1)
    bench.note(f"Validation accuracy of the trained model: {100 * results['validation']:.2f} %.")
    units = list(range(1, len(steps[0]) + 1))
    series = {f"layer {number}": sorted(layer) for number, layer in enumerate(steps, start=1)}
    draw = partial(lines, x=units, series=series, labels=("unit, by its step", "effective step"))
    bench.figure(
        "Effective time steps",
        draw,
        caption=f"Each layer's units in order; the largest allowed is {settings.step_size}.",
    )


def effective_steps(model: Any) -> list[list[float]]:
    """Return Δt·σ̂(c) of every unit, one list per layer."""
    layer = model.layer
    return [layer.effective_step(number).tolist() for number in range(layer.num_layers)]

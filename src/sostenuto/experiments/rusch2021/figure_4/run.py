"""Figure 4 of rusch2021: test accuracy over the step Δt and the stiffness α."""

from functools import partial
from statistics import fmean

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.oscillator_fits import accuracies, images_before_noise
from sostenuto.report.figures.plot import heat


def run(settings: Settings, bench: Workbench) -> None:
    """Train at every point of the grid; the figure itself shows test scores, nothing is chosen by them."""
    data = images_before_noise(bench, settings.dataset)
    points = {
        f"step={step}/stiffness={stiffness}": (data, {"step_size": step, "stiffness": stiffness})
        for stiffness in settings.stiffnesses
        for step in settings.step_sizes
    }
    scores = accuracies(bench, settings, points)
    grid = [
        [fmean(scores[f"step={step}/stiffness={stiffness}"]) for step in settings.step_sizes]
        for stiffness in settings.stiffnesses
    ]
    along_step = [max(row) - min(row) for row in grid]
    along_stiffness = [max(column) - min(column) for column in zip(*grid, strict=True)]
    bench.number("variation with the step", max(along_step))
    bench.number("variation with the stiffness", fmean(along_stiffness))
    seen = f"{fmean(along_step):.1f} points along Δt, {fmean(along_stiffness):.1f} along α"
    bench.law(
        "the step matters more than the stiffness",
        fmean(along_step) > fmean(along_stiffness),
        seen,
        seeds=settings.seeds,
    )
    draw = partial(
        heat, values=grid, rows=settings.stiffnesses, columns=settings.step_sizes, labels=("Δt", "α (stiffness)")
    )
    bench.figure("Test accuracy, %", draw, caption="One training a point; the weights of the best validation epoch.")

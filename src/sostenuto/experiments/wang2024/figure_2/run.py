"""Figure 2 of wang2024: perturbation error of tanh RNNs fitted to a nonlinear functional with power-law memory."""

from functools import partial

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.device_training import train_cell
from sostenuto.experiments.tasks.functional_fits import (
    betas_of,
    curve_cell,
    fitted_width,
    functional,
    functional_recipe,
)
from sostenuto.experiments.tasks.perturbation_curves import crossing, falls, stable_up_to
from sostenuto.report.figures.plot import lines


def run(settings: Settings, bench: Workbench) -> None:
    """Train every width, move the weights, compare."""
    memory = {"memory": "polynomial", "exponent": settings.exponent, "step_size": settings.step_size}
    draw_data = partial(functional, bench.seed, num_train=settings.num_train, gain=settings.gain, **memory)
    data, longer = draw_data(num_steps=settings.num_steps), draw_data(num_steps=settings.test_steps)
    bench.checksums.setdefault(data.name, data.train.checksum())
    betas = betas_of(settings)
    options = {"seed": bench.seed, "activation": "tanh"}
    trainings = {
        width: (f"width={width}", data, functional_recipe(settings, "residual", width, **options))
        for width in settings.widths
    }
    bench.ahead(partial(train_cell, bench, *training) for training in trainings.values())
    errors, curves = zip(*(fitted_width(bench, settings, *one) for one in trainings.values()), strict=True)
    long_curves = [curve_cell(bench, settings, *one, longer.test, "longer") for one in trainings.values()]
    bench.number("error of approximation, widest", errors[-1])
    bench.law("wider networks approximate better", falls(errors), ", ".join(f"{error:.3g}" for error in errors))
    radii = [stable_up_to(betas, curve["errors"], 2 * curve["still"]) for curve in curves]
    bench.law(
        "no wider network is more stable", radii[-1] < radii[0], "β ≤ " + ", ".join(f"{one:.2g}" for one in radii)
    )
    common = [stable_up_to(betas, curve["errors"], 2 * curves[0]["still"]) for curve in curves]
    rows = list(zip(settings.widths, errors, (curve["still"] for curve in curves), common, radii, strict=True))
    columns = ("width", "error of approximation", "largest error", "β up to twice the first's", "β up to twice its own")
    bench.table("How far the weights may move", columns, rows)
    place = crossing(betas, curves[-2]["errors"], curves[-1]["errors"])
    bench.number("where the curves of the two widest cross", betas[-1] if place is None else place)
    for title, found in (("horizon of training", curves), ("longer horizon", long_curves)):
        series = {f"m = {width}": curve["errors"] for width, curve in zip(settings.widths, found, strict=True)}
        bench.figure(f"E(β), {title}", partial(lines, x=betas, series=series, labels=("β", "E(β)"), log="xy"))

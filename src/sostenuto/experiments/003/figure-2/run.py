"""Figure 2 of paper 003: perturbation error of tanh RNNs fitted to a nonlinear functional with power-law memory."""

from functools import partial
from typing import Any

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.functional_fits import error_curve, functional, functional_config
from sostenuto.experiments.tasks.perturbation_curves import crossing, falls, stable_up_to
from sostenuto.experiments.tasks.training import fit_cell, fitted_model
from sostenuto.report.figures.plot import lines


def run(settings: Settings, bench: Workbench) -> None:
    """Train every width, move the weights, compare."""
    memory = {"memory": "polynomial", "exponent": settings.exponent, "step_size": settings.step_size}
    draw_data = partial(functional, bench.seed, num_train=settings.num_train, gain=settings.gain, **memory)
    data, longer = draw_data(num_steps=settings.num_steps), draw_data(num_steps=settings.test_steps)
    betas = [settings.first_beta * 2 ** (power / 2) for power in range(settings.num_betas)]
    fits, curves, long_curves = [], [], []
    for width in settings.widths:
        config = functional_config(settings, "residual", width, seed=bench.seed, activation="tanh")
        key = f"width={width}"
        fits.append(fit_cell(bench, key, data, config))
        for part, found, name in ((data.test, curves, "trained"), (longer.test, long_curves, "longer")):
            measure = partial(_measured, bench, key, data, config, part, betas, settings.draws)
            found.append(bench.cell(f"{key}/{name}", measure))
    errors = [fit["validation"] for fit in fits]
    bench.number("error of approximation, widest", errors[-1])
    bench.law("wider networks approximate better", falls(errors), ", ".join(f"{error:.3g}" for error in errors))
    radii = [stable_up_to(betas, curve["errors"], 2 * curve["still"]) for curve in curves]
    bench.law(
        "no wider network is more stable", radii[-1] < radii[0], "β ≤ " + ", ".join(f"{one:.2g}" for one in radii)
    )
    place = crossing(betas, curves[-2]["errors"], curves[-1]["errors"])
    bench.number("where the curves of the two widest cross", betas[-1] if place is None else place)
    for title, found in (("horizon of training", curves), ("longer horizon", long_curves)):
        series = {f"m = {width}": curve["errors"] for width, curve in zip(settings.widths, found, strict=True)}
        bench.figure(f"E(β), {title}", partial(lines, x=betas, series=series, labels=("β", "E(β)"), log="xy"))


def _measured(
    bench: Workbench, key: str, data: Any, config: Any, part: Any, betas: list[float], draws: int
) -> dict[str, Any]:
    return error_curve(fitted_model(bench, key, data, config), part, betas, draws=draws, seed=bench.seed)

"""Figure 2 of wang2024: perturbation error of tanh RNNs fitted to a nonlinear functional with power-law memory."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sostenuto.data.dataset import Dataset
from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.stable_approximation import (
    DRAWN,
    betas_of,
    common_limit,
    crossing,
    curve_cell,
    draw_errors,
    error_of_zero,
    falls,
    fitted_width,
    functional,
    functional_recipe,
    keeps,
    stable_up_to,
    told,
)
from sostenuto.experiments.tasks.teachers import deviation
from sostenuto.experiments.tasks.trained_cells import train_cell


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
    errors, curves = zip(*(fitted_width(bench, settings, *training) for training in trainings.values()), strict=True)
    long_curves = [curve_cell(bench, settings, *training, longer.test, "longer") for training in trainings.values()]
    bench.number("error of approximation, widest", errors[-1])
    bench.law("wider networks approximate better", falls(errors), ", ".join(f"{error:.3g}" for error in errors))
    assert data.test is not None
    limit = common_limit(curves[0]["still"], error_of_zero(data.test))
    radii = [stable_up_to(betas, curve["errors"], limit) for curve in curves]
    bench.law("power-law memory loses its stability", not keeps(radii), told(radii))
    doubled = [stable_up_to(betas, curve["errors"], 2 * curve["still"]) for curve in curves]
    rows = list(zip(settings.widths, errors, (curve["still"] for curve in curves), radii, doubled, strict=True))
    lengths = ("radius: β up to the limit", "β up to twice its own error")
    columns = ("width", "error of approximation", "largest error", *lengths)
    bench.table("How far the weights may move", columns, rows)
    place = crossing(betas, curves[-2]["errors"], curves[-1]["errors"])
    bench.number("where the curves of the two widest cross", betas[-1] if place is None else place)
    for title, result in (("horizon of training", curves), ("longer horizon", long_curves)):
        series = {f"m = {width}": curve["errors"] for width, curve in zip(settings.widths, result, strict=True)}
        draw = partial(draw_errors, betas=betas, curves=series, limit=limit)
        bench.figure(f"E(β), {title}", draw, caption=DRAWN)
    compare_epochs(settings, bench, data, draw_data)


def compare_epochs(settings: Settings, bench: Workbench, data: Dataset, draw_data: Callable[..., Dataset]) -> None:
    """Count the epochs that a network needs for power-law memory and for exponential memory of the same gain."""
    faded = draw_data(num_steps=settings.num_steps, memory="exponential", decay=settings.decay)
    bench.checksums.setdefault("exponential memory", faded.train.checksum())
    faded = replace(faded, name="exponential memory")
    width, needed = settings.widths[0], {}
    for key, item in ((f"width={width}", data), (f"exponential/width={width}", faded)):
        recipe = functional_recipe(settings, "residual", width, seed=bench.seed, activation="tanh")
        history = train_cell(bench, key, item, recipe)["history"]
        good = settings.reached * deviation(item)
        needed[key] = next((row["epoch"] for row in history if row["validation"] <= good), None)
    for name, count in zip(("power-law", "exponential"), needed.values(), strict=True):
        if count is None:
            bench.skip(f"epochs to the good error, {name} memory", f"not reached in {settings.epochs} epochs")
        else:
            bench.number(f"epochs to the good error, {name} memory", count)
    slow, fast = needed.values()
    evidence = f"{slow or f'more than {settings.epochs}'} epochs against {fast or f'more than {settings.epochs}'}"
    short = "" if settings.epochs >= 1000 else f"{settings.epochs} epochs were run, the paper's 1000"
    holds = fast is not None and (slow or settings.epochs) >= 100 * fast
    bench.law("exponential memory is learned in a hundredth of the epochs", holds, evidence, not_judged=short)

"""Figure 4 of wang2024: linear RNNs with a stable recurrent weight, fitted to power-law memory."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.stable_approximation import (
    betas_of,
    functional,
    keeps,
    radii_of_widths,
    stable_up_to,
    told,
)


def run(settings: Settings, bench: Workbench) -> None:
    """Train every width of three forms, move the weights, compare."""
    memory = {"memory": "polynomial", "exponent": settings.exponent, "step_size": settings.step_size}
    data = functional(bench.seed, num_train=settings.num_train, num_steps=settings.num_steps, **memory)
    radii_by_form = {
        form: radii_of_widths(
            bench, settings, data, form, "stable", activation="identity", reparametrization=form, form="diagonal"
        )
        for form in ("direct", "exp", "softplus")
    }
    radii = {form: radii["radius"] for form, radii in radii_by_form.items()}
    for form in ("exp", "softplus"):
        bench.law(f"{form} keeps its radius", keeps(radii[form]), told(radii[form]))
    limit = 2 * max(radii["still"][0] for radii in radii_by_form.values())
    last = {form: stable_up_to(betas_of(settings), radii["widest"], limit) for form, radii in radii_by_form.items()}
    ahead = max(last["exp"], last["softplus"]) >= last["direct"]
    evidence = ", ".join(f"{form}: β ≤ {radius:.2g}" for form, radius in last.items())
    bench.law("a stable form allows no lesser change", ahead, evidence)
    bench.number("error of approximation, softplus, widest", radii_by_form["softplus"]["error"][-1])

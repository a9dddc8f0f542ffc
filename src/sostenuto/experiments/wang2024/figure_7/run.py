"""Figure 7 of wang2024: ReLU RNNs with a free and with a stable matrix, fitted to power-law memory."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.stable_approximation import functional, keeps, radii_of_widths, told


def run(settings: Settings, bench: Workbench) -> None:
    """Train every width of both forms, move the weights, compare."""
    memory = {"memory": "polynomial", "exponent": settings.exponent, "step_size": settings.step_size}
    data = functional(bench.seed, num_train=settings.num_train, num_steps=settings.num_steps, **memory)
    options = {"activation": "relu", "form": "dissipative"}
    free, stable = (
        radii_of_widths(bench, settings, data, kind, "stable", reparametrization=kind, **options)
        for kind in ("direct", "softplus")
    )
    bench.law("the free network loses its radius", not keeps(free["radius"]), told(free["radius"]))
    bench.law("softplus keeps its radius", keeps(stable["radius"]), told(stable["radius"]))
    bench.number("error of approximation, softplus, widest", stable["error"][-1])

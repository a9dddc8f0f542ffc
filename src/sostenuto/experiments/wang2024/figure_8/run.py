"""Figure 8 of wang2024: hardtanh and tanh RNNs with a stable matrix, fitted to power-law memory."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.stable_approximation import functional, keeps, radii_of_widths, told


def run(settings: Settings, bench: Workbench) -> None:
    """Train every width of both activations, move the weights, compare."""
    memory = {"memory": "polynomial", "exponent": settings.exponent, "step_size": settings.step_size}
    data = functional(bench.seed, num_train=settings.num_train, num_steps=settings.num_steps, **memory)
    for activation in ("hardtanh", "tanh"):
        options = {"activation": activation, "reparametrization": "softplus", "form": "dissipative"}
        radii = radii_of_widths(bench, settings, data, activation, "stable", **options)
        bench.law(f"{activation} keeps its radius", keeps(radii["radius"]), told(radii["radius"]))
    bench.number("error of approximation, tanh, widest", radii["error"][-1])

"""Table 1 of wang2024: stable against direct reparametrization on MNIST."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete, judge_lead, report

STABLE = ("softplus", "exp", "inverse")


def run(settings: Settings, bench: Workbench) -> None:
    """Train every reparametrization from the same seeds, and test each once a seed; with ReLU, then with tanh."""
    data = bench.data(settings.dataset)
    names = {kind: f"{kind} ({'stable' if kind in STABLE else 'free'})" for kind in (*STABLE, "direct")}
    for activation in ("relu", "tanh"):
        fits = compete(bench, settings, data, names, part=activation)
        lead = "" if activation == "relu" else "tanh, "
        for kind, trained in fits.items():
            report(bench, f"{lead}{kind}: test accuracy", trained)
            bench.number(f"{lead}{kind}: test loss", trained.losses, recipe=trained.words)
        chosen = max(STABLE, key=lambda kind: sum(record["validation"] for record in fits[kind].records))
        best, direct = fits[chosen].mean, fits["direct"].mean
        evidence = f"{chosen}: {100 * best:.2f} % against {100 * direct:.2f} %"
        if activation == "relu":
            pair = [(fits[chosen], fits["direct"])]
            judge_lead(bench, "stable reparametrization is ahead", pair, evidence)
        else:
            ahead = "ahead here too" if best > direct else "not ahead"
            unsaid = "The paper does not say which its table has."
            bench.note(f"With tanh stable reparametrization is {ahead}: {evidence}. {unsaid}")

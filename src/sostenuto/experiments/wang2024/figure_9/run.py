"""Figure 9 of wang2024: learning curves on MNIST of stable and direct reparametrization."""

import statistics
from functools import partial

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete, standard_error, unsure
from sostenuto.report.figures.plot import lines

KINDS = ("softplus", "exp", "inverse", "direct")


def run(settings: Settings, bench: Workbench) -> None:
    """Train, and draw loss and accuracy over epochs."""
    trained = compete(bench, settings, bench.data(settings.dataset), {kind: kind for kind in KINDS}, part="relu")
    halfway: dict[str, list[float]] = {}
    epochs = [row["epoch"] for row in trained["direct"].records[0]["history"]]
    for what, title in (("train_loss", "training loss"), ("validation", "validation accuracy")):
        runs = {kind: [[row[what] for row in record["history"]] for record in trained[kind].records] for kind in KINDS}
        means = {kind: [statistics.fmean(values) for values in zip(*rows, strict=True)] for kind, rows in runs.items()}
        spread = {kind: [_deviation(values) for values in zip(*rows, strict=True)] for kind, rows in runs.items()}
        draw = partial(lines, x=epochs, series=means, spreads=spread, labels=("epoch", title))
        bench.figure(f"MNIST: {title}", draw, caption="Mean over seeds, with a band of one deviation.")
        if what == "train_loss":
            halfway = {kind: [values[len(values) // 2 - 1] for values in rows] for kind, rows in runs.items()}
    for kind in ("softplus", "direct"):
        bench.number(f"training loss halfway, {kind}", halfway[kind], recipe=trained[kind].words)
    losses = {kind: statistics.fmean(values) for kind, values in halfway.items()}
    best = min(KINDS[:-1], key=losses.__getitem__)
    gap, errors = losses["direct"] - losses[best], [standard_error(halfway[kind]) for kind in (best, "direct")]
    evidence = ", ".join(f"{kind} {loss:.3f}" for kind, loss in losses.items())
    bench.law("stable reparametrization learns faster", gap > 0, evidence, undecided=unsure(gap, errors))


def _deviation(values: tuple[float, ...]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0

"""Figure 6 of rusch2021: depth, residual stacking and learned time steps on noise-padded CIFAR-10."""

from functools import partial
from statistics import fmean, pstdev
from typing import Any

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import standard_error, unsure
from sostenuto.experiments.tasks.oscillator_fits import accuracies, images_before_noise
from sostenuto.report.figures.plot import lines

KINDS: dict[str, dict[str, Any]] = {"standard": {}, "residual": {"skip": 2}, "steps not learned": {"learn_step": False}}


def run(settings: Settings, bench: Workbench) -> None:
    """Train every kind at every depth, with several seeds."""
    data = images_before_noise(bench, settings.dataset)
    points = {(kind, depth): f"{kind.replace(' ', '-')}/layers={depth}" for kind in KINDS for depth in settings.depths}
    results = accuracies(
        bench,
        settings,
        {key: (data, {"num_layers": depth, **KINDS[kind]}) for (kind, depth), key in points.items()},
    )
    scores = {kind: [results[points[kind, depth]] for depth in settings.depths] for kind in KINDS}
    means = {kind: [fmean(row) for row in rows] for kind, rows in scores.items()}
    seen = "; ".join(f"{kind}: {', '.join(f'{mean:.1f}' for mean in row)} %" for kind, row in means.items())
    bench.number("standard, 3 layers", scores["standard"][0])
    deep = [scores["residual"][-1], scores["standard"][-1]]
    gap, doubt = fmean(deep[0]) - fmean(deep[1]), [standard_error(result) for result in deep]
    bench.law("residual stacking helps deep stacks", gap > 0, seen, undecided=unsure(gap, doubt))
    pair = ("standard", "steps not learned")
    gap = fmean(means[pair[0]]) - fmean(means[pair[1]])
    doubt = [standard_error(row) / len(settings.depths) for kind in pair for row in scores[kind]]
    bench.law("learned steps help", gap > 0, seen, undecided=unsure(gap, doubt))
    spreads = {kind: [pstdev(row) for row in rows] for kind, rows in scores.items()}
    labels = ("layers", "test accuracy, %")
    draw = partial(lines, x=settings.depths, series=means, spreads=spreads, labels=labels, marks=True)
    bench.figure("Accuracy by depth", draw, caption="Mean and deviation over trainings.")

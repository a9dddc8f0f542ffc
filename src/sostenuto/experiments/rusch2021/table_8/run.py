"""Table 8 of rusch2021: spread of UnICORNN's test accuracy over seeds."""

import statistics

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete

TASKS = {
    "mnist": {"small": "permuted MNIST, 128 units", "large": "permuted MNIST, 256 units"},
    "cifar": {"images": "noise-padded CIFAR-10"},
}


def run(settings: Settings, bench: Workbench) -> None:
    """Train with every seed, test each once."""
    for task, names in TASKS.items():
        found = compete(bench, settings, bench.data(settings[task]), names, part=task)
        for prefix, name in names.items():
            scores = [100 * score for score in found[prefix].scores]
            bench.number(f"{name}: mean", scores)
            bench.number(f"{name}: deviation", statistics.stdev(scores) if len(scores) > 1 else 0.0, n=len(scores))
    if bench.protocol == "reduced":
        bench.note("Reduced: three seeds and a tenth of the epochs; IMDB's spread is table 5 with --set seeds=10.")

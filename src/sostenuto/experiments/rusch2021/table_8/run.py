"""Table 8 of rusch2021: spread of UnICORNN's test accuracy over seeds."""

import statistics

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete
from sostenuto.experiments.tasks.long_data import cut, word_stand_in

TASKS = {
    "mnist": {"small": "permuted MNIST, 128 units", "large": "permuted MNIST, 256 units"},
    "cifar": {"images": "noise-padded CIFAR-10"},
    "films": {"reviews": "IMDB"},
}


def run(settings: Settings, bench: Workbench) -> None:
    """Train with every seed, test each once."""
    for task, names in TASKS.items():
        made_up = settings[task] == "words"
        data = word_stand_in(bench.seed) if made_up else bench.data(settings[task])
        data = cut(data, settings.longest) if task == "films" else data
        fits = compete(bench, settings, data, names, part=task)
        for prefix, name in names.items():
            trained = fits[prefix]
            scores = [100 * score for score in trained.scores]
            bench.number(f"{name}: mean", scores, recipe=trained.words)
            deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
            bench.number(f"{name}: deviation", deviation, n=len(scores), recipe=trained.words)

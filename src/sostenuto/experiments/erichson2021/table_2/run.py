"""Table 2 of erichson2021: CIFAR-10 pixel by pixel, and noise-padded."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete

NAMES = {
    "lipschitz": "Lipschitz RNN, 256 units",
    "antisymmetric": "antisymmetric RNN, 256 units",
    "lstm": "LSTM, 128 units",
}
TASKS = ("ordered", "padded")


def run(settings: Settings, bench: Workbench) -> None:
    """Train on both tasks, choose on validation, test once."""
    means: dict[str, dict[str, float]] = {}
    for task in TASKS:
        found = compete(bench, settings, bench.data(settings[task]), NAMES, part=task)
        for prefix, name in NAMES.items():
            bench.number(f"{name}, {task}", [100 * score for score in found[prefix].scores])
        means[task] = {prefix: 100 * trained.mean for prefix, trained in found.items()}
        record = found["lipschitz"].records[0]
        if task == "ordered":
            bench.number("Lipschitz RNN: parameters", record["parameters"] / 1000)
            bench.number("seconds of training, Lipschitz RNN", record["seconds"])
    ahead = all(max(means[task], key=means[task].__getitem__) == "lipschitz" for task in TASKS)
    told = "; ".join(f"{task}: " + ", ".join(f"{v:.2f} %" for v in means[task].values()) for task in TASKS)
    bench.law("Lipschitz RNN is ahead on both tasks", ahead, told)

"""Table 1 of erichson2021: ordered and permuted pixel-by-pixel MNIST."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete

NAMES = {
    "lipschitz_128": "Lipschitz RNN, 128 units",
    "lipschitz_64": "Lipschitz RNN, 64 units",
    "antisymmetric": "antisymmetric RNN, 128 units",
    "lstm": "LSTM, 128 units",
}
TASKS = ("ordered", "permuted")


def run(settings: Settings, bench: Workbench) -> None:
    """Train on both orders, choose on validation, test once."""
    means: dict[str, dict[str, float]] = {}
    for task in TASKS:
        found = compete(bench, settings, bench.data(settings[task]), NAMES, part=task)
        for prefix, name in NAMES.items():
            bench.number(f"{name}, {task}", [100 * score for score in found[prefix].scores])
        means[task] = {prefix: 100 * trained.mean for prefix, trained in found.items()}
        record = found["lipschitz_128"].records[0]
        if task == "ordered":
            bench.number("Lipschitz RNN, 128 units: parameters", record["parameters"] / 1000)
            bench.number("seconds of training, 128 units", record["seconds"])
    ahead = all(max(means[task], key=means[task].__getitem__) == "lipschitz_128" for task in TASKS)
    told = "; ".join(f"{task}: " + ", ".join(f"{v:.2f} %" for v in means[task].values()) for task in TASKS)
    bench.law("Lipschitz RNN is ahead on both tasks", ahead, told)
    gains = {task: means[task]["lipschitz_128"] - means[task]["lipschitz_64"] for task in TASKS}
    evidence = ", ".join(f"{task} {gain:+.2f} points" for task, gain in gains.items())
    bench.law("the permuted task wants the larger unit", gains["permuted"] > gains["ordered"], evidence)

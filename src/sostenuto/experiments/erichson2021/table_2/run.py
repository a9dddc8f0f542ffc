"""Table 2 of erichson2021: CIFAR-10 pixel by pixel, and noise-padded."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import Trained, compete, judge_lead, report_all, with_views

NAMES = {
    "lipschitz": "Lipschitz RNN, 256 units",
    "antisymmetric": "antisymmetric RNN, 256 units",
    "lstm": "LSTM, 128 units",
}
VIEWED = with_views(NAMES)
TASKS = ("ordered", "padded")


def run(settings: Settings, bench: Workbench) -> None:
    """Train on both tasks, choose on validation, test once."""
    trained: dict[str, dict[str, Trained]] = {}
    for task in TASKS:
        names = NAMES | VIEWED if settings.views else NAMES
        trained[task] = compete(bench, settings, bench.data(settings[task]), names, part=task)
        report_all(bench, trained[task], NAMES | VIEWED, after=f", {task}")
    record = trained["ordered"]["lipschitz"].records[0]
    bench.number("Lipschitz RNN: parameters", record["parameters"] / 1000)
    bench.number("seconds of training, Lipschitz RNN", record["seconds"])
    means = {task: [f"{100 * trained[task][prefix].mean:.2f} %" for prefix in NAMES] for task in TASKS}
    told = "; ".join(f"{task}: {', '.join(said)}" for task, said in means.items())
    rivals = [(fit["lipschitz"], fit[prefix]) for fit in trained.values() for prefix in NAMES if prefix != "lipschitz"]
    judge_lead(bench, "Lipschitz RNN is ahead on both tasks", rivals, told)

"""Table 1 of erichson2021: ordered and permuted pixel-by-pixel MNIST."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import Trained, compete, judge_lead, report_all, unsure, with_views

NAMES = {
    "lipschitz_128": "Lipschitz RNN, 128 units",
    "lipschitz_64": "Lipschitz RNN, 64 units",
    "antisymmetric": "antisymmetric RNN, 128 units",
    "lstm": "LSTM, 128 units",
}
VIEWED = with_views(NAMES)
TASKS = ("ordered", "permuted")


def run(settings: Settings, bench: Workbench) -> None:
    """Train on both orders, choose on validation, test once."""
    trained: dict[str, dict[str, Trained]] = {}
    for task in TASKS:
        names = NAMES | VIEWED if settings.views else NAMES
        trained[task] = compete(bench, settings, bench.data(settings[task]), names, part=task)
        report_all(bench, trained[task], NAMES | VIEWED, after=f", {task}")
    record = trained["ordered"]["lipschitz_128"].records[0]
    bench.number("Lipschitz RNN, 128 units: parameters", record["parameters"] / 1000)
    bench.number("seconds of training, 128 units", record["seconds"])
    means = {task: {prefix: 100 * trained[task][prefix].mean for prefix in NAMES} for task in TASKS}
    told = "; ".join(f"{task}: " + ", ".join(f"{v:.2f} %" for v in means[task].values()) for task in TASKS)
    rivals = [
        (fit["lipschitz_128"], fit[prefix]) for fit in trained.values() for prefix in NAMES if prefix != "lipschitz_128"
    ]
    judge_lead(bench, "Lipschitz RNN is ahead on both tasks", rivals, told)
    gains = {task: means[task]["lipschitz_128"] - means[task]["lipschitz_64"] for task in TASKS}
    evidence = ", ".join(f"{task} {gain:+.2f} points" for task, gain in gains.items())
    more = gains["permuted"] - gains["ordered"]
    errors = [100 * trained[task][prefix].error for task in TASKS for prefix in ("lipschitz_128", "lipschitz_64")]
    bench.law("the permuted task wants the larger unit", more > 0, evidence, undecided=unsure(more, errors))

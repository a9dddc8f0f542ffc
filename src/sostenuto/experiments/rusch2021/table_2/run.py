"""Table 2 of rusch2021: noise-padded CIFAR-10."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete, judge_lead, report_all, with_views

NAMES = {"unicornn": "UnICORNN, 3 layers of 128", "cornn": "coRNN, 128 units", "lstm": "LSTM, 128 units"}
VIEWED = with_views(NAMES)


def run(settings: Settings, bench: Workbench) -> None:
    """Train, choose on validation, test once."""
    names = NAMES | VIEWED if settings.views else NAMES
    trained = compete(bench, settings, bench.data(settings.dataset), names)
    report_all(bench, trained, NAMES | VIEWED)
    record = trained["unicornn"].records[0]
    bench.number("UnICORNN: parameters", record["parameters"] / 1000)
    bench.number("seconds of training, UnICORNN", record["seconds"])
    evidence = ", ".join(f"{name} {100 * trained[prefix].mean:.2f} %" for prefix, name in NAMES.items())
    rivals = [(trained["unicornn"], trained[prefix]) for prefix in NAMES if prefix != "unicornn"]
    judge_lead(bench, "UnICORNN remembers what the LSTM forgets", rivals, evidence)
    bench.note("The noise is drawn anew for every batch in training, and is the same for every scoring of a part.")

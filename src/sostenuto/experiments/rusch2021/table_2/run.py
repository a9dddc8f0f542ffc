"""Table 2 of rusch2021: noise-padded CIFAR-10."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete

NAMES = {"unicornn": "UnICORNN, 3 layers of 128", "cornn": "coRNN, 128 units", "lstm": "LSTM, 128 units"}


def run(settings: Settings, bench: Workbench) -> None:
    """Train, choose on validation, test once."""
    found = compete(bench, settings, bench.data(settings.dataset), NAMES)
    for prefix, name in NAMES.items():
        bench.number(name, [100 * score for score in found[prefix].scores])
    record = found["unicornn"].records[0]
    bench.number("UnICORNN: parameters", record["parameters"] / 1000)
    bench.number("seconds of training, UnICORNN", record["seconds"])
    means = {prefix: 100 * trained.mean for prefix, trained in found.items()}
    evidence = ", ".join(f"{NAMES[prefix]} {mean:.2f} %" for prefix, mean in means.items())
    bench.law("UnICORNN remembers what the LSTM forgets", max(means.values()) == means["unicornn"], evidence)
    bench.note("The noise is drawn anew for every batch in training, and is the same for every scoring of a part.")

"""Table 1 of rusch2021: permuted sequential MNIST."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete

NAMES = {
    "unicornn_256": "UnICORNN, 3 layers of 256",
    "unicornn_128": "UnICORNN, 3 layers of 128",
    "lstm": "LSTM, 256 units",
}


def run(settings: Settings, bench: Workbench) -> None:
    """Train, choose on validation, test once."""
    found = compete(bench, settings, bench.data(settings.dataset), NAMES)
    for prefix, name in NAMES.items():
        bench.number(name, [100 * score for score in found[prefix].scores])
    for prefix in ("unicornn_256", "unicornn_128"):
        bench.number(f"{NAMES[prefix]}: parameters", found[prefix].records[0]["parameters"] / 1000)
    ours, lstm = found["unicornn_128"].mean, found["lstm"].mean
    bench.law("UnICORNN is ahead of the LSTM", ours > lstm, f"{100 * ours:.2f} % against {100 * lstm:.2f} %")
    record = found["unicornn_256"].records[0]
    bench.number("seconds of training, 3 layers of 256", record["seconds"])
    bench.number("steps a second, 3 layers of 256", record["steps_per_second"])
    if bench.protocol == "reduced":
        bench.note(
            "Reduced: fewer epochs with a one-cycle schedule, weight decay on matrices and an average of the weights, "
            "instead of 2600 epochs at two learning rates."
        )

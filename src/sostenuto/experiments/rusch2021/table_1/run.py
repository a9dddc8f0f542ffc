"""Table 1 of rusch2021: permuted sequential MNIST."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete, judge_lead, report_all, with_views

NAMES = {
    "unicornn_256": "UnICORNN, 3 layers of 256",
    "unicornn_128": "UnICORNN, 3 layers of 128",
    "lstm": "LSTM, 256 units",
    "gru": "GRU, 256 units",
    "exprnn": "expRNN, 512 units",
    "cornn": "coRNN, 256 units",
    "indrnn": "IndRNN, 6 layers of 128",
}
VIEWED = with_views({prefix: NAMES[prefix] for prefix in ("unicornn_256", "unicornn_128", "lstm")})


def run(settings: Settings, bench: Workbench) -> None:
    """Train, choose on validation, test once."""
    names = NAMES | VIEWED if settings.views else NAMES
    trained = compete(bench, settings, bench.data(settings.dataset), names)
    report_all(bench, trained, NAMES | VIEWED)
    for prefix in ("unicornn_256", "unicornn_128"):
        bench.number(f"{NAMES[prefix]}: parameters", trained[prefix].records[0]["parameters"] / 1000)
    ours, lstm = trained["unicornn_128"], trained["lstm"]
    evidence = f"{100 * ours.mean:.2f} % against {100 * lstm.mean:.2f} %"
    judge_lead(bench, "UnICORNN is ahead of the LSTM", [(ours, lstm)], evidence)
    record = trained["unicornn_256"].records[0]
    bench.number("seconds of training, 3 layers of 256", record["seconds"])
    bench.number("steps a second, 3 layers of 256", record["steps_per_second"])

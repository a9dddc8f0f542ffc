"""Table 3 of rusch2021: EigenWorms."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete, report
from sostenuto.experiments.tasks.long_data import pooled, wave_stand_in

NAMES = {
    "unicornn": "UnICORNN, 2 layers of 32",
    "cornn": "coRNN, 32 units",
    "indrnn": "IndRNN, 2 layers of 32",
    "lstm_sampled": "LSTM on 200 random steps",
    "lstm_truncated": "LSTM, gradients cut after 500 steps",
}


def run(settings: Settings, bench: Workbench) -> None:
    """Divide 70/15/15, train, choose the epoch on validation, test once a seed."""
    if settings.dataset == "stand-in":
        whole = wave_stand_in(bench.seed, count=settings.count, steps=settings.steps)
        bench.note(f"Made-up waves in noise, {settings.steps} steps of 6 channels, five classes by frequency.")
    else:
        whole = pooled(bench.data(settings.dataset))
    trained = compete(bench, settings, whole, NAMES)
    for prefix, name in NAMES.items():
        report(bench, name, trained[prefix])
    bench.number("UnICORNN: parameters", trained["unicornn"].records[0]["parameters"] / 1000)

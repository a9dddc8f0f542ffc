"""Table 4 of rusch2021: respiratory and heart rate from PPG and ECG."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete, report
from sostenuto.experiments.tasks.long_data import pooled, rate_stand_in

NAMES = {"unicornn": "UnICORNN", "indrnn": "IndRNN", "cornn": "coRNN", "lstm": "LSTM"}
TARGETS = {"respiratory": "respiratory rate", "heart": "heart rate"}


def run(settings: Settings, bench: Workbench) -> None:
    """Divide 70/15/15, train, choose the epoch on validation, test once a seed."""
    for target, name in TARGETS.items():
        if settings[target] == "stand-in":
            whole = rate_stand_in(bench.seed, count=settings.count, steps=settings.steps)
        else:
            whole = pooled(bench.data(settings[target]))
        # The step size of an oscillator is the signal's: the paper has one for each target.
        own = {key.replace(f"unicornn_{target}.", "unicornn."): value for key, value in settings.items()}
        trained = compete(bench, own, whole, NAMES, part=target)
        for prefix, model in NAMES.items():
            report(bench, f"{model}, {name}", trained[prefix])

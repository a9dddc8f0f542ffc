"""Table 7 of rusch2021: Lorenz 96, calm and chaotic."""

from dataclasses import replace

import numpy as np

from sostenuto.data.tasks.lorenz96 import lorenz96
from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import Trained, compete, judge_lead

NAMES = {"unicornn": "UnICORNN", "cornn": "coRNN", "lstm": "LSTM"}
FORCINGS = {"calm": 0.9, "chaotic": 8.0}


def run(settings: Settings, bench: Workbench) -> None:
    """Train on both systems; errors are divided by the deviation of the test targets."""
    errors: dict[str, dict[str, float]] = {}
    trained: dict[str, dict[str, Trained]] = {}
    for part, forcing in FORCINGS.items():
        count = settings.count
        made = lorenz96(
            bench.seed,
            forcing=forcing,
            num_steps=settings.steps,
            num_train=count,
            num_validation=count,
            num_test=count,
        )
        data = replace(made, name=f"{made.name}, F = {forcing:g}")
        assert data.test is not None
        deviation = float(np.concatenate([np.asarray(row) for row in data.test.targets or []]).std())
        fits = compete(bench, settings, data, NAMES, part=part)
        errors[part] = {prefix: fit.mean / deviation for prefix, fit in fits.items()}
        trained[part] = fits
        for prefix, name in NAMES.items():
            scores = [score / deviation for score in fits[prefix].scores]
            bench.number(f"{name}, F = {forcing:g}", scores, recipe=fits[prefix].words)
    chaotic = errors["chaotic"]
    evidence = ", ".join(f"{NAMES[prefix]} {error:.3g}" for prefix, error in chaotic.items())
    pair = (trained["chaotic"]["lstm"], trained["chaotic"]["unicornn"])
    judge_lead(bench, "the LSTM is ahead where the system is chaotic", [pair], evidence)

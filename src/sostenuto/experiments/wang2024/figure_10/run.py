"""Figure 10 of wang2024: memory functions of random networks by a step and by an impulse."""

import statistics
from functools import partial
from typing import Any

import numpy as np
import torch

from sostenuto.audits import memory_function
from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.tails import is_exponential, shares, why_undecided
from sostenuto.models.prediction import SequenceToSequence
from sostenuto.nn import LAYERS
from sostenuto.report.figures.plot import lines

PROBES = {"step": "heaviside", "impulse": "impulse"}
OPTIONS = {"stable": {"activation": "identity", "integrator": "exact", "step_size": 0.1}}


def run(settings: Settings, bench: Workbench) -> None:
    """Draw networks, measure their memory by both probes, compare the rates."""
    results = {
        (model, probe): bench.cell(f"{model}/{probe}", partial(measure, settings, model, kind, bench.seed))
        for model in settings.models
        for probe, kind in PROBES.items()
    }
    kinds = [kind for result in results.values() for kind in result["kinds"]]
    share, possible = shares(kinds, is_exponential)
    untold = why_undecided(share >= 0.9, possible >= 0.9, kinds)
    told = f"{100 * share:.0f} % of {len(kinds)}"
    bench.law("random networks forget exponentially", share >= 0.9, told, undecided=untold)
    rates = {
        key: statistics.median([rate for rate in result["rates"] if rate] or [0.0]) for key, result in results.items()
    }
    ratios = {model: rates[model, "step"] / max(rates[model, "impulse"], 1e-12) for model in settings.models}
    told = ", ".join(f"{model} {ratio:.2f}" for model, ratio in ratios.items())
    bench.law("both probes agree", all(1 / 1.5 <= ratio <= 1.5 for ratio in ratios.values()), told)
    for probe in PROBES:
        bench.number(f"median rate, LSTM, {probe}", rates["lstm", probe])
        series = {model: results[model, probe]["mean"] for model in settings.models}
        lags = results[settings.models[0], probe]["lags"]
        draw = partial(lines, x=lags, series=series, labels=("lag", "memory"), log="y")
        bench.figure(f"Memory, by a {probe}", draw, caption=f"Geometric mean of {settings.repeats} networks.")


def measure(settings: Settings, model: str, probe: str, seed: int) -> dict[str, Any]:
    """Draw ``repeats`` networks of one kind and measure each."""
    kinds, rates, curves, lags = [], [], [], ()
    for repeat in range(settings.repeats):
        torch.manual_seed(1000 * seed + repeat)
        layer: Any = LAYERS[model](1, settings.hidden_size, batch_first=True, **OPTIONS.get(model, {}))
        memory = memory_function(
            SequenceToSequence(layer, 1).double(),
            settings.horizon,
            input_size=1,
            probe=probe,
            amplitudes=[settings.amplitude],
        )
        kinds.append(memory.kind)
        rates.append(memory.rate)
        curves.append(memory.memory)
        lags = memory.lags
    mean = np.exp(np.log(np.maximum(np.asarray(curves), 1e-18)).mean(0))
    return {"kinds": kinds, "rates": rates, "mean": mean, "lags": list(lags)}

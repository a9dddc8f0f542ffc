"""Figure 2 of rusch2021: time of the combined forward and backward pass."""

from functools import partial
from typing import Any

import torch

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.timing import median_times
from sostenuto.report.figures.plot import bars

OURS, SHALLOW = "UnICORNN, 2 layers", "UnICORNN, 1 layer"
TWO_LAYERS = ("SRU, 2 layers", "IndRNN, 2 layers, batch norm")
ONE_LAYER = ("nn.LSTM", "nn.GRU", "coRNN", "ExpRNN", "torchrecurrent UnICORNN")
PUBLISHED = ("nn.LSTM", "nn.GRU", *TWO_LAYERS, "coRNN as a loop", "ExpRNN as a loop", "torchrecurrent UnICORNN")
LOOPS = {"coRNN as a loop": "a loop's coRNN", "ExpRNN as a loop": "a loop's ExpRNN"}


def run(settings: Settings, bench: Workbench) -> None:
    """Time every layer on every device that is here, or was when its cell was stored."""
    for device, label in (("cpu", "CPU"), ("cuda", "GPU")):
        results = _times(settings, bench, device)
        if not results:
            why = f"no {label} here, or not among the devices asked for"
            for name in bench.experiment.expected:
                if name.startswith(label):
                    bench.skip(name, why)
            continue
        _report(bench, label, results)


def _times(settings: Settings, bench: Workbench, device: str) -> dict[int, dict[str, Any]]:
    results: dict[int, dict[str, Any]] = {}
    here = device in settings.devices and (device == "cpu" or torch.cuda.is_available())
    for length in settings.lengths:
        sizes = (length, settings.batch_size, settings.input_size, settings.hidden_size)
        for group, rounds in (("fused", settings[f"{device}.rounds"]), ("looped", settings.loop_rounds)):
            key, depends = f"{device}/length={length}/{group}", {"sizes": sizes, "rounds": rounds}
            if here or bench.remembers(key, depends=depends):
                measure = partial(median_times, group, *sizes, device=device, rounds=rounds)
                cell = bench.cell(key, measure, depends=depends)
                known = results.setdefault(length, {"where": cell["where"], "milliseconds": {}})
                known["milliseconds"] |= cell["milliseconds"]
    return results


def _report(bench: Workbench, label: str, results: dict[int, dict[str, Any]]) -> None:
    times = {length: cell["milliseconds"] for length, cell in results.items()}
    _race(bench, f"{label}: UnICORNN is the fastest, as published", times, {OURS: PUBLISHED})
    _race(bench, f"{label}: UnICORNN is the fastest, depth for depth", times, {SHALLOW: ONE_LAYER, OURS: TWO_LAYERS})
    longest = times[max(times)]
    bench.number(f"{label}: time of nn.LSTM over UnICORNN's", longest["nn.LSTM"] / longest[OURS])
    fused = min(longest["coRNN"], longest["ExpRNN"])
    bench.number(f"{label}: time of our compiled coRNN or ExpRNN, the faster, over UnICORNN's", fused / longest[OURS])
    if label == "GPU":
        for name, short in LOOPS.items():
            bench.number(f"GPU: time of {short} over UnICORNN's", longest[name] / longest[OURS])
    rows = [(name, *(row.get(name, float("nan")) for row in times.values())) for name in longest]
    where = ", ".join(sorted({cell["where"] for cell in results.values()}))
    bench.table(f"Milliseconds, forward and backward ({where})", ("layer", *(f"{n} steps" for n in results)), rows)
    for length, cell in results.items():
        draw = partial(bars, values=cell["milliseconds"], labels=("milliseconds", ""), log=True)
        bench.figure(f"{label}, {length} steps", draw, caption=f"Median time of a batch, on {cell['where']}.")


def _race(bench: Workbench, name: str, times: dict[int, dict[str, float]], heats: dict[str, tuple[str, ...]]) -> None:
    """Compare UnICORNN with the nearest of its rivals, at every length and in every heat."""
    ahead, seen = [], []
    for length, row in times.items():
        for runner, rivals in heats.items():
            nearest = min((rival for rival in rivals if rival in row), key=lambda rival: row[rival])
            ahead.append(row[runner] < row[nearest])
            seen.append(f"{length} steps: {row[runner]:.3g} ms, next {nearest} {row[nearest]:.3g} ms")
    bench.law(name, all(ahead), "; ".join(seen))

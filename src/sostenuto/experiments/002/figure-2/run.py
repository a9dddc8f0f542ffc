"""Figure 2 of paper 002: time of the combined forward and backward pass."""

from functools import partial
from typing import Any

import torch

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.timing import median_times
from sostenuto.report.figures.plot import bars

OURS = "UnICORNN, 2 layers"
LOOPS = {"coRNN as a loop": "a loop's coRNN", "ExpRNN as a loop": "a loop's ExpRNN"}


def run(settings: Settings, bench: Workbench) -> None:
    """Time every layer on every device that is here, or was when its cell was stored."""
    for device, label in (("cpu", "CPU"), ("cuda", "GPU")):
        found = _times(settings, bench, device)
        if not found:
            why = f"no {label} here, or not among the devices asked for"
            for name in bench.experiment.expected:
                if name.startswith(label):
                    bench.skip(name, why)
            continue
        _report(bench, label, found)


def _times(settings: Settings, bench: Workbench, device: str) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    here = device in settings.devices and (device == "cpu" or torch.cuda.is_available())
    for length in settings.lengths:
        sizes = (length, settings.batch_size, settings.input_size, settings.hidden_size)
        for group, rounds in (("fused", settings.rounds[device]), ("looped", settings.loop_rounds)):
            key, depends = f"{device}/length={length}/{group}", {"sizes": sizes, "rounds": rounds}
            if here or bench.remembers(key, depends=depends):
                measure = partial(median_times, group, *sizes, device=device, rounds=rounds)
                cell = bench.cell(key, measure, depends=depends)
                known = found.setdefault(length, {"where": cell["where"], "milliseconds": {}})
                known["milliseconds"] |= cell["milliseconds"]
    return found


def _report(bench: Workbench, label: str, found: dict[int, dict[str, Any]]) -> None:
    rivals = {length: _rivals(cell["milliseconds"]) for length, cell in found.items()}
    first = {length: cell["milliseconds"][OURS] < min(rivals[length].values()) for length, cell in found.items()}
    nearest = {length: min(times, key=lambda name: times[name]) for length, times in rivals.items()}
    seen = [
        f"{length} steps: {found[length]['milliseconds'][OURS]:.3g} ms, next {name} {rivals[length][name]:.3g} ms"
        for length, name in nearest.items()
    ]
    bench.law(f"{label}: UnICORNN is the fastest", all(first.values()), "; ".join(seen))
    longest = found[max(found)]["milliseconds"]
    bench.number(f"{label}: time of nn.LSTM over UnICORNN's", longest["nn.LSTM"] / longest[OURS])
    if label == "GPU":
        for name, short in LOOPS.items():
            bench.number(f"GPU: time of {short} over UnICORNN's", longest[name] / longest[OURS])
    names = list(longest)
    rows = [(name, *(found[length]["milliseconds"].get(name, float("nan")) for length in found)) for name in names]
    where = ", ".join(sorted({cell["where"] for cell in found.values()}))
    bench.table(f"Milliseconds, forward and backward ({where})", ("layer", *(f"{n} steps" for n in found)), rows)
    for length, cell in found.items():
        labels = ("milliseconds", "")
        draw = partial(bars, values=cell["milliseconds"], labels=labels, log=True)
        bench.figure(f"{label}, {length} steps", draw, caption=f"Median time of a batch, on {cell['where']}.")


def _rivals(times: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in times.items() if name not in (OURS, "LipschitzRNN")}

"""Figure 12 of wang2024: a random transformer cannot be approximated stably by tanh RNNs."""

from functools import partial

import torch

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.stable_approximation import radii_of_widths, told
from sostenuto.experiments.tasks.tails import is_otherwise, shares, why_undecided
from sostenuto.experiments.tasks.teachers import CausalAttention, deviation, remembered, taught
from sostenuto.report.figures.plot import lines


def run(settings: Settings, bench: Workbench) -> None:
    """Measure the transformer's memory, teach tanh RNNs, move their weights."""
    torch.manual_seed(bench.seed)
    teacher = CausalAttention(settings.teacher_width).eval()
    data = taught(teacher, "attention", bench.seed, num_train=settings.num_train, num_steps=settings.num_steps)
    memory = bench.cell("memory", partial(remembered, teacher, settings.horizon, "impulse"))
    kind = memory["kind"]
    least, most = (share > 0 for share in shares([kind], is_otherwise))
    untold = why_undecided(least, most, [kind])
    bench.law("the transformer does not forget exponentially", least, kind, undecided=untold)
    radii_by_width = radii_of_widths(bench, settings, data, "attention", "residual", activation="tanh")
    size = deviation(data)
    errors, radii = radii_by_width["error"], radii_by_width["radius"]
    unstable = errors[-1] > errors[0] / 2 or radii[-1] < radii[0]
    left = ", ".join(f"{error / size:.3g}" for error in errors)
    bench.law("it is not approximated stably", unstable, f"errors {left}; {told(radii)}")
    bench.number("error of approximation, widest", errors[-1] / size)
    draw = partial(lines, x=memory["lags"], series={"transformer": memory["memory"]}, labels=("lag", "memory"), log="y")
    bench.figure("Memory of the target", draw)

"""Figure 3 of fermanian2021: the Frobenius and the RKHS norm of networks while they are trained."""

from functools import partial
from typing import Any

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.spiral_networks import NEEDED, Penalty, arms, trained
from sostenuto.report.figures.plot import lines

PRINTED = 0.1
LEARNED = 0.95


def run(settings: Settings, bench: Workbench) -> None:
    """Train every run of every arm and compare the norms."""
    depends = {name: settings[name] for name in NEEDED}
    compared = arms(settings.weights, settings.released_weights)
    results: dict[str, list[dict[str, Any]]] = {arm.name: [] for arm in compared}
    for index, seed in enumerate(bench.progress(bench.seeds(settings.runs), "runs")):
        for arm in compared:
            train = partial(measure, settings, arm, seed)
            results[arm.name].append(bench.cell(f"{arm.key}/run={index}", train, depends=depends))
    curves = {
        kind: {name: np.array([run[kind] for run in runs]) for name, runs in results.items()}
        for kind in ("frobenius", "norm", "loss")
    }
    learned = {name: float(np.mean([run["train"] for run in runs])) for name, runs in results.items()}

    printed = Penalty(PRINTED).name
    similar, different, said = compare(curves, printed)
    bench.law("Frobenius norms are of similar magnitude", similar, said[0])
    bench.law("RKHS norms are very different", different, said[1])
    able = [Penalty(weight).name for weight in sorted(settings.weights) if weight > 0]
    able = [name for name in able if learned[name] >= LEARNED]
    similar, different, said = compare(curves, able[-1]) if able else (False, False, ("no weight learns", ""))
    seen = f"{able[-1] if able else ''}: {'; '.join(said)}"
    bench.law("the same of a network that learns", similar and different, seen)
    for label, name in (("without penalty", Penalty(0.0).name), ("with weight 0.1", printed)):
        bench.number(f"Frobenius norm {label}", curves["frobenius"][name][:, -1].tolist())
        bench.number(f"RKHS norm {label}", curves["norm"][name][:, -1].tolist())
    rows = [
        (
            name,
            f"{100 * learned[name]:.1f}",
            *(f"{np.mean(curves[kind][name][:, -1]):.3g} ± {np.std(curves[kind][name][:, -1]):.2g}" for kind in curves),
        )
        for name in results
    ]
    columns = ("penalty", "training accuracy, %", "‖W‖_F", "‖ξ‖", "cross-entropy")
    bench.table("After training, mean ± standard deviation over the runs", columns, rows)
    epochs = next(iter(results.values()))[0]["epoch"]
    for title, kind in (("Frobenius norm of the weights", "frobenius"), ("Norm in the RKHS", "norm")):
        caption = "Median and 10 % to 90 % of the runs."
        bench.figure(title, partial(draw, epochs=epochs, curves=curves[kind], log=kind == "norm"), caption=caption)


def measure(settings: Settings, penalty: Penalty, seed: int) -> dict[str, Any]:
    """Train one network and give its norms at every few epochs."""
    return trained(settings, penalty, seed)[1]


def compare(curves: dict[str, dict[str, np.ndarray]], name: str) -> tuple[bool, bool, tuple[str, str]]:
    """Hold the norms after training against those without penalty: similar, different, and what was seen."""
    plain = Penalty(0.0).name
    weights = [float(curves["frobenius"][each][:, -1].mean()) for each in (plain, name)]
    norms = [float(np.median(curves["norm"][each][:, -1])) for each in (plain, name)]
    said = (
        f"‖W‖_F {weights[0]:.3g} without, {weights[1]:.3g} with",
        f"‖ξ‖ {norms[0]:.3g} without, {norms[1]:.3g} with",
    )
    return abs(np.log10(weights[0] / weights[1])) <= 0.5, norms[0] >= 10 * norms[1], said


def draw(axes: Any, *, epochs: list[float], curves: dict[str, np.ndarray], log: bool) -> None:
    """Draw medians over training, with the middle four fifths of the runs as a band."""
    lines(axes, epochs, {name: np.median(values, axis=0).tolist() for name, values in curves.items()})
    for values, line in zip(curves.values(), list(axes.lines), strict=True):
        low, high = np.quantile(values, [0.1, 0.9], axis=0)
        axes.fill_between(epochs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set_xlabel("epoch")
    axes.set_ylabel("‖ξ‖" if log else "‖W‖_F")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)  # above: the curves fill the plot
    if log:
        axes.set_yscale("log")

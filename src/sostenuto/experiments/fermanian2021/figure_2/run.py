"""Figure 2 of fermanian2021: accuracy under attack, with and without the penalty on the RKHS norm."""

from functools import partial
from typing import Any

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import standard_error, unsure
from sostenuto.experiments.tasks.spiral_networks import NEEDED, Penalty, arms, attacked, spiral_data, trained
from sostenuto.report.figures.plot import lines

PRINTED = 0.1


def run(settings: Settings, bench: Workbench) -> None:
    """Train every run of every arm, attack it, compare run by run."""
    depends = {name: settings[name] for name in (*NEEDED, "epsilons", "attack_steps")}
    compared = arms(settings.weights, settings.released_weights)
    # Runs outside, arms inside: a run that was stopped has whole comparisons behind it.
    results: dict[str, list[dict[str, Any]]] = {arm.name: [] for arm in compared}
    for index, seed in enumerate(bench.progress(bench.seeds(settings.runs), "runs")):
        for arm in compared:
            train = partial(measure, settings, arm, seed)
            results[arm.name].append(bench.cell(f"{arm.key}/run={index}", train, depends=depends))
    accuracy = {name: 100 * np.array([run["accuracy"] for run in runs]) for name, runs in results.items()}
    plain, printed = accuracy[Penalty(0.0).name], accuracy[Penalty(PRINTED).name]
    released = accuracy[Penalty(PRINTED, released=True).name]

    holds, said, undecided = gains(printed[:, -1] - plain[:, -1])
    bench.law("the penalty makes the network more stable", holds, said, undecided=undecided)
    half = max(1, settings.runs // 2)
    smaller = [Penalty(weight).name for weight in settings.weights if 0 < weight < PRINTED]
    chosen = max(smaller, key=lambda name: float(accuracy[name][:half, -1].mean()))
    holds, said, undecided = gains(accuracy[chosen][half:, -1] - plain[half:, -1])
    bench.law("a smaller weight makes it more stable", holds, f"{chosen}: {said}", undecided=undecided)
    bench.number("clean accuracy without penalty", plain[:, 0].tolist())
    bench.number("clean accuracy with weight 0.1", printed[:, 0].tolist())
    bench.number("strongest attack, without penalty", plain[:, -1].tolist())
    bench.number("strongest attack, with weight 0.1", printed[:, -1].tolist())
    bench.number("strongest attack, with weight 0.1 as released", released[:, -1].tolist())
    bench.number("strongest attack, with the chosen smaller weight", accuracy[chosen][:, -1].tolist())
    rows = [
        (name, _spread([100 * run["train"] for run in runs]), *(_spread(column) for column in accuracy[name].T))
        for name, runs in results.items()
    ]
    columns = ("penalty", "training", *(f"ε = {epsilon:g}" for epsilon in settings.epsilons))
    bench.table("Accuracy in %, mean ± standard deviation over the runs", columns, rows)
    bench.figure(
        "Accuracy under attack",
        partial(draw, epsilons=settings.epsilons, accuracy=accuracy),
        caption="Mean and standard deviation over the runs; ε is the Frobenius norm of the change of a whole spiral.",
        width=560,
        height=360,
    )


def measure(settings: Settings, penalty: Penalty, seed: int) -> dict[str, Any]:
    """Train one network and attack it."""
    model, history = trained(settings, penalty, seed)
    test = spiral_data(settings, seed)[1]
    accuracy = attacked(model, test, settings.epsilons, settings.attack_steps)
    ends = {name: history[name][-1] for name in ("norm", "frobenius", "loss")}
    return {"accuracy": accuracy, "train": history["train"], **ends}


def gains(differences: np.ndarray) -> tuple[bool, str, str]:
    """Judge paired differences: whether their mean is above 0, what it is, and why that may decide nothing."""
    mean, error = float(differences.mean()), standard_error(differences.tolist())
    said = f"{mean:+.1f} ± {error:.1f} points (standard error, {len(differences)} runs)"
    return mean > 0, said, unsure(mean, [error])


def draw(axes: Any, *, epsilons: list[float], accuracy: dict[str, np.ndarray]) -> None:
    """Draw accuracy over ε with bands."""
    means = {name: values.mean(0).tolist() for name, values in accuracy.items()}
    spreads = {name: values.std(0).tolist() for name, values in accuracy.items()}
    lines(axes, epsilons, means, spreads=spreads, labels=("ε", "accuracy, %"), marks=True)


def _spread(values: Any) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values):.1f}"

"""Figure 2 of erichson2021: the linear part and the symmetric-skew form, varied one at a time."""

from functools import partial

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.sweeps import Swept, sweep
from sostenuto.report.figures.plot import lines

TASKS = ("ordered", "permuted")
SWEEPS = {"linear": "α, weight of the linear part", "skew": "β, share of the skew part"}


def run(settings: Settings, bench: Workbench) -> None:
    """Train at every α and every β, on both tasks."""
    results: dict[str, dict[str, list[Swept]]] = {}
    for task in TASKS:
        data = bench.data(settings[task])
        results[task] = {prefix: sweep(bench, settings, data, prefix, part=task) for prefix in SWEEPS}
    scores = {
        task: {prefix: {point.value: point.test for point in points} for prefix, points in sweeps.items()}
        for task, sweeps in results.items()
    }
    alphas = {task: scores[task]["linear"] for task in TASKS}
    told = "; ".join(f"{task}: " + ", ".join(f"α {a:g}: {s:.2f} %" for a, s in alphas[task].items()) for task in TASKS)
    bench.law("the linear part helps", all(point[1.0] > point[0.0] for point in alphas.values()), told, seeds=1)
    bench.law("too much of it harms", all(point[2.0] < point[1.0] for point in alphas.values()), told, seeds=1)
    betas = {task: scores[task]["skew"] for task in TASKS}
    best = {task: max(point, key=point.__getitem__) for task, point in betas.items()}
    told = "; ".join(f"{task}: " + ", ".join(f"β {b:g}: {s:.2f} %" for b, s in betas[task].items()) for task in TASKS)
    bench.law("both parts are wanted", all(0.5 < beta < 1.0 for beta in best.values()), told, seeds=1)
    more = best["permuted"] > best["ordered"]
    told = ", ".join(f"{task} β = {beta:g}" for task, beta in best.items())
    bench.law("the permuted task wants more of the skew part", more, told, seeds=1)
    for task in TASKS:
        bench.number(f"best β, {task}", best[task])
        bench.number(f"{task}, α = 1", alphas[task][1.0])
    for prefix, label in SWEEPS.items():
        series = {task: list(scores[task][prefix].values()) for task in TASKS}
        values = list(scores["ordered"][prefix])
        draw = partial(lines, x=values, series=series, labels=(label, "test accuracy, %"), marks=True)
        bench.figure(label, draw, caption="One training a point.")
    rows = [
        (task, prefix, point.value, point.validation, point.test, "yes" if point.diverged else "no")
        for task, sweeps in results.items()
        for prefix, points in sweeps.items()
        for point in points
    ]
    bench.table("Trainings", ("task", "varied", "value", "validation, %", "test, %", "diverged"), rows)

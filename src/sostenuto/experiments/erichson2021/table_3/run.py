"""Table 3 of erichson2021: attacks and curvature of trained models."""

from functools import partial
from typing import Any

import torch

from sostenuto.audits import adversarial_accuracy, hessian_spectrum
from sostenuto.data.dataset import Dataset
from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import Trained, compete, report
from sostenuto.experiments.tasks.long_data import folded
from sostenuto.experiments.tasks.trained_cells import trained_model

NAMES = {"ode": "neural-ODE RNN", "antisymmetric": "antisymmetric RNN", "lipschitz": "Lipschitz RNN"}
ATTACKS = ("PGD", "DeepFool, l2", "DeepFool, linf")
CURVATURES = ("largest eigenvalue", "trace")


def run(settings: Settings, bench: Workbench) -> None:
    """Train three models, attack them on test images, and find the spectrum of their Hessians on training images."""
    dataset = folded(bench.data(settings.dataset), settings.channels)
    trained = compete(bench, settings, dataset, NAMES)
    asking = [(f"{prefix}/audit", partial(audit, settings, bench, dataset, fit)) for prefix, fit in trained.items()]
    results = dict(zip(trained, bench.ahead(partial(bench.cell, *task, tests=True) for task in asking), strict=True))
    for prefix, name in NAMES.items():
        report(bench, f"{name}: test accuracy", trained[prefix])
        words = trained[prefix].words
        for what in ATTACKS:
            bench.number(f"{name}: {what}", 100 * results[prefix][what], recipe=words)
        for what in CURVATURES:
            bench.number(f"{name}: {what}", results[prefix][what], recipe=words)
        bench.number(f"{name}: condition number", results[prefix]["condition"], recipe=words)
    best = [max(results, key=lambda prefix, what=what: results[prefix][what]) for what in ATTACKS]
    flat = [min(results, key=lambda prefix, what=what: results[prefix][what]) for what in CURVATURES]
    for name, winners in (("the Lipschitz RNN stands attacks best", best), ("the Lipschitz RNN lies flattest", flat)):
        bench.law(name, set(winners) == {"lipschitz"}, ", ".join(NAMES[winner] for winner in winners), seeds=1)
    columns = ("model", *ATTACKS, *CURVATURES, "its standard error", "condition number, at least")
    shown = (*ATTACKS, *CURVATURES, "standard error", "condition")
    rows = [(NAMES[prefix], *(result[what] for what in shown)) for prefix, result in results.items()]
    bench.table("Attacked accuracy and curvature", columns, rows)


def audit(settings: Settings, bench: Workbench, dataset: Dataset, trained: Trained) -> dict[str, Any]:
    """Attack the first seed's model, and look at its curvature."""
    key, recipe = next(iter(trained.cells.items()))
    stored = trained_model(bench, key, dataset, recipe)
    model = stored.model.to(bench.device)
    assert dataset.test is not None
    test = stored.encoding.encode(dataset.test.take(torch.arange(min(settings.attacked, len(dataset.test))).numpy()))
    train = stored.encoding.encode(dataset.train.take(torch.arange(settings.curved).numpy()))
    attack = partial(adversarial_accuracy, model, test.values, test.targets, bounds=(0.0, 1.0), seed=bench.seed)
    pgd = attack(attack="pgd", epsilons=[settings.pgd_radius], steps=settings.pgd_steps, step_size=settings.pgd_step)
    fooled = {
        norm: attack(attack="deepfool", norm=norm, epsilons=[limit], steps=settings.deepfool_steps)
        for norm, limit in (("l2", settings.deepfool_l2), ("linf", settings.deepfool_linf))
    }
    spectrum = hessian_spectrum(
        model, train.values, train.targets, probes=settings.probes, lanczos_steps=settings.lanczos_steps
    )
    return {
        "PGD": pgd.score[0],
        **{f"DeepFool, {norm}": curve.score[0] for norm, curve in fooled.items()},
        **{f"median, {norm}": curve.median_size for norm, curve in fooled.items()},
        "largest eigenvalue": spectrum.top[0],
        "trace": spectrum.trace,
        "standard error": spectrum.trace_error,
        "condition": spectrum.condition,
    }

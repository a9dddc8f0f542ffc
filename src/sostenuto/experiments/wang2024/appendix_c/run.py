"""Appendix C of wang2024: linear units with rescaled rates, and whether they approximate slow memory stably."""

from functools import partial
from typing import Any

import numpy as np

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.rescaled_units import LinearUnits, slow_memory, worst_errors
from sostenuto.experiments.tasks.stable_approximation import falls, keeps, stable_up_to, told
from sostenuto.report.figures.plot import lines

FORMS = {
    "plain": "first memory, plain network",
    "rescaled": "first memory, rescaled network",
    "slower": "second memory, rescaled network",
    "spread": "second memory, rescaled network, terms at the units k = j²",
}
RUIN = 1e6
"""Larger errors are all alike."""
MOVES = {"weights": "the recurrent weights move", "all": "read-out and recurrent weights move"}


def run(settings: Settings, bench: Workbench) -> None:
    """Take the target's own terms as approximants, move their weights, compare the radii."""
    betas = [settings.first_beta * 2 ** (power / 2) for power in range(settings.num_betas)]
    radii: dict[tuple[str, str], list[float]] = {}
    rows = []
    for form, name in FORMS.items():
        for moved, saying in MOVES.items():
            results = [
                bench.cell(f"{form}/{moved}/width={width}", partial(measure, settings, form, moved, width, betas))
                for width in settings.widths
            ]
            radii[form, moved] = [stable_up_to(betas, result["errors"], settings.limit) for result in results]
            series = {f"m = {width}": result["errors"] for width, result in zip(settings.widths, results, strict=True)}
            bench.figure(f"E(β), {name}; {saying}", partial(draw, betas=betas, series=series))
            rows += [
                (name, saying, width, result["still"], radius)
                for width, result, radius in zip(settings.widths, results, radii[form, moved], strict=True)
            ]
    for name, holds, key in (
        ("a plain network loses its radius", falls, ("plain", "weights")),
        ("a rescaled one keeps it, recurrent weights moved", keeps, ("rescaled", "weights")),
        ("a rescaled one keeps it, all weights moved", keeps, ("rescaled", "all")),
        ("a slower memory makes the rescaled one lose it", falls, ("slower", "weights")),
        ("terms at other units let it keep it", keeps, ("spread", "weights")),
    ):
        bench.law(name, holds(radii[key]), told(radii[key]))
    time, memory = _target(settings, "plain")
    bench.number("integral of the first memory up to the horizon", float(np.trapezoid(memory, time)))
    columns = (
        "approximation",
        "what moves",
        "width",
        "error without a change",
        "β up to which it stays below the limit",
    )
    bench.table(f"Errors sup|ρ − ρ̂|, limit {settings.limit:g}", columns, rows)


def measure(settings: Settings, form: str, moved: str, width: int, betas: list[float]) -> dict[str, Any]:
    """Approximate by ``width`` units, and move their weights."""
    lags, target = _target(settings, form)
    still, errors = worst_errors(approximant(form, width), lags, target, betas, readout=moved == "all")
    return {"still": still, "errors": [min(error, RUIN) for error in errors]}


def approximant(form: str, width: int) -> LinearUnits:
    """Return the units that hold the first terms of the target exactly."""
    unit = np.arange(1.0, width + 1)
    if form == "plain":
        return LinearUnits(-1 / unit, unit**-2, np.ones(width))
    if form == "rescaled":
        return LinearUnits(-np.ones(width), unit**-2, 1 / unit)
    if form == "slower":
        return LinearUnits(-1 / unit, unit**-2, 1 / unit)
    root = np.sqrt(unit)
    return LinearUnits(-np.ones(width), np.where(root == np.round(root), 1 / unit, 0.0), 1 / unit)


def draw(axes: Any, *, betas: list[float], series: dict[str, list[float]]) -> None:
    """Draw E(β), one line a width, where errors can still be told from ruin."""
    lines(axes, betas, series, labels=("β", "E(β)"), log="xy")
    axes.set_ylim(1e-3, 1e2)


def _target(settings: Settings, form: str) -> tuple[np.ndarray, np.ndarray]:
    lags = np.concatenate([[0.0], np.geomspace(0.01, settings.horizon, settings.num_lags)])
    return lags, slow_memory(lags, 1 if form in ("plain", "rescaled") else 2, settings.terms)

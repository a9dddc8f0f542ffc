"""Networks of growing width fitted to one functional, and how far their weights may move (paper 003)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sostenuto.data.dataset import Dataset
from sostenuto.experiments.tasks.device_training import train_cell
from sostenuto.experiments.tasks.functional_fits import betas_of, fitted_width, functional_recipe
from sostenuto.experiments.tasks.perturbation_curves import stable_up_to
from sostenuto.experiments.workbench import Workbench
from sostenuto.report.figures.plot import lines


def radii_of_widths(
    bench: Workbench, settings: Mapping[str, Any], data: Dataset, name: str, layer: str, **options: Any
) -> dict[str, list[float]]:
    """Train every width in ``settings``, move its weights, and draw E(β) under ``name``.

    Returns, one number a width: ``error``, what approximation left; ``still``, the largest error without a change, and
    ``radius``, the β up to which that at most doubles. Weights that move are the trained ones: the free parameter
    behind a stable matrix, where there is one.
    """
    bench.checksums.setdefault(data.name, data.train.checksum())
    betas = betas_of(settings)
    found: dict[str, list[float]] = {"error": [], "still": [], "radius": []}
    curves: dict[str, Sequence[float]] = {}
    trainings = {
        width: (
            f"{name.replace(' ', '-')}/width={width}",
            data,
            functional_recipe(settings, layer, width, seed=bench.seed, **options),
        )
        for width in settings["widths"]
    }
    bench.ahead(partial(train_cell, bench, *training) for training in trainings.values())
    for width, training in trainings.items():
        error, curve = fitted_width(bench, settings, *training)
        found["error"].append(error)
        found["still"].append(curve["still"])
        found["radius"].append(stable_up_to(betas, curve["errors"], 2 * curve["still"]))
        curves[f"m = {width}"] = curve["errors"]
    bench.figure(f"E(β), {name}", partial(lines, x=betas, series=curves, labels=("β", "E(β)"), log="xy"))
    rows = list(zip(settings["widths"], *found.values(), strict=True))
    bench.table(name, ("width", "error of approximation", "largest error", "β that doubles it"), rows)
    return found


def keeps(radii: Sequence[float], share: float = 0.25) -> bool:
    """Say whether the radius at every width is at least ``share`` of the first's.

    >>> keeps([1.0, 0.5, 2.0]), keeps([1.0, 0.1])
    (True, False)
    """
    return min(radii) >= share * radii[0]


def told(radii: Sequence[float]) -> str:
    """Write radii for a law's evidence.

    >>> told([0.1, 0.25])
    'β ≤ 0.1, 0.25'
    """
    return "β ≤ " + ", ".join(f"{radius:.2g}" for radius in radii)

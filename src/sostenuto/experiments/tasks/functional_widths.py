"""Networks of growing width fitted to one functional, and how far their weights may move (wang2024)."""

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

    Returns, one number a width: ``error``, what approximation left; ``still``, the largest error without a change;
    ``radius``, the β up to which E(β) stays below twice the first width's ``still``, one limit for all widths, as a
    stable approximation is one whose E(β) stays small as the width grows (definition 3.5); and ``doubled``, the β
    that doubles a width's own ``still``, which shrinks by mere approximating better. Weights that move are the
    trained ones: the free parameter behind a stable matrix, where there is one. ``widest`` is E(β) of the last width.
    """
    bench.checksums.setdefault(data.name, data.train.checksum())
    betas = betas_of(settings)
    found: dict[str, list[float]] = {"error": [], "still": [], "radius": [], "doubled": []}
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
        found["radius"].append(stable_up_to(betas, curve["errors"], 2 * found["still"][0]))
        found["doubled"].append(stable_up_to(betas, curve["errors"], 2 * curve["still"]))
        curves[f"m = {width}"] = curve["errors"]
    bench.figure(f"E(β), {name}", partial(lines, x=betas, series=curves, labels=("β", "E(β)"), log="xy"))
    rows = list(zip(settings["widths"], *found.values(), strict=True))
    lengths = ("β up to twice the first's", "β up to twice its own")
    bench.table(name, ("width", "error of approximation", "largest error", *lengths), rows)
    return found | {"widest": list(curves[f"m = {settings['widths'][-1]}"])}


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

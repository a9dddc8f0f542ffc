"""Networks of growing width fitted to one functional, and how far their weights may move (paper 003)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sostenuto.data.dataset import Dataset
from sostenuto.experiments.tasks.functional_fits import error_curve, functional_config
from sostenuto.experiments.tasks.perturbation_curves import stable_up_to
from sostenuto.experiments.tasks.training import fit_cell, fitted_model
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
    betas = [settings["first_beta"] * 2 ** (power / 2) for power in range(settings["num_betas"])]
    found: dict[str, list[float]] = {"error": [], "still": [], "radius": []}
    curves: dict[str, Sequence[float]] = {}
    for width in settings["widths"]:
        config = functional_config(settings, layer, width, seed=bench.seed, **options)
        key = f"{name.replace(' ', '-')}/width={width}"
        fit = fit_cell(bench, key, data, config)
        measure = partial(_measured, bench, key, data, config, betas, settings["draws"])
        curve = bench.cell(f"{key}/curve", measure)
        found["error"].append(fit["validation"])
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


def _measured(bench: Workbench, key: str, data: Dataset, config: Any, betas: list[float], draws: int) -> dict[str, Any]:
    assert data.test is not None
    stored = fitted_model(bench, key, data, config)
    return error_curve(stored, data.test, betas, draws=draws, seed=bench.seed)

"""Figure 1b of fermanian2021: the error of the step-N Taylor expansion, by the norm of the weights."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.taylor_errors import (
    ACTIVATIONS,
    rescaled,
    spiral_path,
    taylor_errors,
    uniform_weights,
)
from sostenuto.report.figures.plot import lines

BEYOND = 0.5
"""The norm up to which convergence is asked: fifty times what the paper's condition (11) allows here."""


def run(settings: Settings, bench: Workbench) -> None:
    """Expand, solve, and sort the errors by the norm of the weights."""
    edges = np.geomspace(settings.smallest, settings.largest, settings.bins + 1)
    middles = np.sqrt(edges[1:] * edges[:-1])
    medians, early = {}, []
    for name in ACTIVATIONS:
        results = bench.cell(name, partial(measure, settings, name, bench.seed))
        norms, errors = np.array(results["norms"]), np.array(results["errors"])
        ranks = [rank_correlation(norms, errors[:, order]) for order in range(settings.orders)]
        seen = ", ".join(f"{rank:.3f}" for rank in ranks)
        bench.law(f"{name}: the error grows with the weights", min(ranks) >= 0.7, f"by N: {seen}")
        inside = np.clip(np.digitize(norms, edges) - 1, 0, settings.bins - 1)
        medians[name] = np.array([np.median(errors[inside == index], axis=0) for index in range(settings.bins)])
        early.append(medians[name][edges[1:] <= BEYOND])
        better = medians[name][:, -1] < medians[name][:, 0]
        last = settings.bins if better.all() else int(np.argmin(better))
        far = float(middles[last - 1]) if last else 0.0
        bench.number(f"{name}: largest norm at which order 5 is better than order 1", far)
        curves = {f"N = {order + 1}": medians[name][:, order].tolist() for order in range(settings.orders)}
        draw = partial(_draw, middles=middles, curves=curves, cloud=(norms, errors[:, -1]))
        bench.figure(f"Error by ‖W‖, {name}", draw, caption="Medians by bins; dots are the networks at the highest N.")
    falls = all(bool((np.diff(part, axis=1) < 0).all()) for part in early)
    steepest = max(float((part[:, 1:] / part[:, :-1]).max()) for part in early)
    bench.law("convergence beyond the paper's condition", falls, f"largest factor from order to order {steepest:.3f}")
    rows = [
        (name, float(middle), *row.tolist())
        for name, table in medians.items()
        for middle, row in zip(middles, table, strict=True)
    ]
    columns = ("activation", "‖W‖_F", *(f"N = {order + 1}" for order in range(settings.orders)))
    bench.table("Median of the largest error along the path", columns, rows)


def measure(settings: Settings, activation: str, seed: int) -> dict[str, Any]:
    """Return norms, their logarithms drawn uniformly, and errors of all networks with one activation."""
    generator = torch.Generator().manual_seed(seed)
    weights = uniform_weights(settings.models, settings.hidden_size, generator)
    decades = math.log10(settings.largest / settings.smallest)
    draws = torch.rand(settings.models, generator=generator, dtype=torch.float64)
    scaled = rescaled(weights, settings.smallest * 10 ** (decades * draws))
    path = spiral_path(settings.points, settings.total_variation, seed)
    errors = taylor_errors(scaled, path, settings.orders, activation, settings.total_variation)
    return {"norms": scaled.frobenius.tolist(), "errors": errors.tolist()}


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's rank correlation."""
    first, second = (np.argsort(np.argsort(values)) for values in (x, y))
    return float(np.corrcoef(first, second)[0, 1])


def _draw(axes: Any, *, middles: np.ndarray, curves: dict[str, list[float]], cloud: tuple[np.ndarray, ...]) -> None:
    axes.plot(*cloud, ".", color="0.75", markersize=2, zorder=0)
    lines(axes, middles.tolist(), curves, labels=("‖W‖_F", "largest error along the path"), log="xy", marks=True)

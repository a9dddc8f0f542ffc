"""Figure 1 of erichson2021: vector fields of Lipschitz units trained on a pendulum."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sostenuto.audits import fixed_points
from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.planar_flows import (
    circle,
    draw_flow,
    flow_trajectories,
    learn_swings,
    silent_flow,
    swings,
    two_units,
)
from sostenuto.nn import LipschitzRNN

NAMES = ("(a) free", "(b) β = 0.65, γ = 0.25", "(c) β = 0.8, γ = 0.25", "(d) skew")
STILL = 1e-5
"""Real parts closer to zero than this count as zero; the steps of a turning state lose less."""
TOGETHER = 0.05


def run(settings: Settings, bench: Workbench) -> None:
    """Train the four units, find their points of rest, and follow them for long."""
    results, layers = {}, {}
    for name, beta, gamma in zip(NAMES, settings.betas, settings.gammas, strict=True):
        weights = bench.cell(f"beta={beta}", partial(train, settings, beta, gamma, bench.seed))
        layers[name] = restored(settings, beta, gamma, weights["weights"])
        results[name] = bench.cell(f"beta={beta}/ends", partial(measure, settings, layers[name], bench.seed))
        bench.number(f"{name}: root mean square error", weights["error"])
    free, *formed, skew = results.values()
    told = f"eigenvalues of A up to {free['linear']:+.3g}; from {settings.far:g} to {free['farthest']:.3g}"
    bench.law("a free matrix ends unstable", free["linear"] > 0 and free["farthest"] > 2 * settings.far, told)
    told = ", ".join(f"{system['linear']:+.3g}" for system in formed)
    bench.law("the form makes A stable", all(system["linear"] < 0 for system in formed), f"real parts up to {told}")
    told = ", ".join(f"{system['apart']:.3g}" for system in formed)
    attracts = all(system["apart"] < TOGETHER for system in formed)
    bench.law("where A is stable, an equilibrium attracts", attracts, f"ends lie up to {told} apart")
    told = f"real parts at rest {', '.join(f'{value:+.2g}' for value in skew['rest'])}; nearest end {skew['kept']:.2g}"
    swinging = all(value >= -STILL for value in skew["rest"]) and skew["kept"] > 0.5
    bench.law("a skew matrix has no attractor", swinging, f"{told} of its start")
    columns = ("unit", "largest Re λ(A)", "‖W‖₂", "points of rest: largest Re λ of the Jacobian", "contraction proved")
    rows = [
        (
            name,
            result["linear"],
            result["norm"],
            ", ".join(f"{value:+.3g}" for value in result["rest"]) or "none",
            result["proved"],
        )
        for name, result in results.items()
    ]
    bench.table("What the trained units do", columns, rows)
    for name, layer in layers.items():
        flow = silent_flow(layer)
        paths = flow_trajectories(flow, circle(settings.radius, 4), duration=25.0, step=settings.step)
        draw = partial(portrait, flow=flow, paths=paths.numpy(), extent=settings.extent)
        bench.figure(name, draw, caption="Arrows show the direction alone; four solutions.", width=360, height=360)


def train(settings: Settings, beta: float, gamma: float, seed: int) -> dict[str, Any]:
    """Train one unit; its weights come back as lists."""
    torch.manual_seed(seed)
    options = {"reach": settings.reach, "duration": settings.duration, "step": settings.step}
    paths = swings(settings.swings, **options, seed=seed)
    layer = two_units(beta, gamma, settings.step)
    error = learn_swings(layer, paths, settings)
    return {"error": error, "weights": {name: value.tolist() for name, value in layer.state_dict().items()}}


def restored(settings: Settings, beta: float, gamma: float, weights: dict[str, Any]) -> LipschitzRNN:
    """Make the unit again from its weights."""
    layer = two_units(beta, gamma, settings.step)
    layer.load_state_dict({name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()})
    return layer


def measure(settings: Settings, layer: LipschitzRNN, seed: int) -> dict[str, Any]:
    """Return A's spectrum, the points of rest, and where trajectories end."""
    linear, weight = (layer.weight(name, 0, False).detach() for name in ("weight_linear", "weight_hh"))
    rests = fixed_points(layer, np.zeros((1, 50, 1)), tries=32, seed=seed).points
    flow, starts = silent_flow(layer), circle(settings.radius, settings.starts)
    ends = flow_trajectories(flow, starts, duration=settings.long_duration, step=settings.step)[:, -1]
    far = flow_trajectories(
        flow, circle(settings.far, settings.starts), duration=settings.long_duration, step=settings.step
    )
    sizes = far.norm(dim=-1)
    points = torch.tensor([rest.state for rest in rests], dtype=torch.float64).reshape(-1, 2)
    return {
        "linear": float(torch.linalg.eigvals(linear).real.max()),
        "norm": float(torch.linalg.matrix_norm(weight, 2)),
        "rest": [math.log(rest.radius) / settings.step for rest in rests],
        "apart": min(1e300, float(torch.cdist(ends, ends).max())),
        "kept": _kept(starts, ends, points),
        "farthest": min(1e300, float(sizes.nan_to_num(nan=1e300).max())),
        "proved": str(layer.certificate("lure").holds).lower(),
    }


def portrait(axes: Any, *, flow: Any, paths: np.ndarray, extent: float) -> None:
    """Draw a phase portrait."""
    draw_flow(axes, flow, paths, extent=extent)
    axes.set(xlabel="angle", ylabel="speed")


def _kept(starts: Tensor, ends: Tensor, points: Tensor) -> float:
    """Return the least distance of an end from its nearest point of rest, over the distance of its start."""
    if not len(points):
        return math.inf
    after, before = (torch.cdist(states, points).amin(1) for states in (ends, starts))
    return float((after / before).min())

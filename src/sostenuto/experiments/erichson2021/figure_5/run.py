"""Figure 5 of erichson2021: level sets of the Lyapunov function, and trajectories."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.planar_flows import circle, draw_flow, flow_trajectories, lipschitz_flow
from sostenuto.report.palette import INK
from sostenuto.theory import lyapunov

SMALL = 1e-12
"""V is not followed below this: there rounding moves it up and down."""


def run(settings: Settings, bench: Workbench) -> None:
    """Follow one system from a circle, then many random ones."""
    A, W = drawn_system(settings)  # noqa: N806
    P = lyapunov(A).P  # noqa: N806
    paths = follow(settings, A, W, settings.radius, settings.duration)
    rise, end = largest_rise(paths, P), float(paths[:, -1].norm(dim=-1).max())
    seen = f"V changes by {rise:.2g} of itself at most in a step; all end within {end:.2g}"
    bench.law("level sets trap the trajectories", rise <= 0 and end < 1e-3, seen)
    results = bench.cell("systems", partial(random_systems, settings, bench.seed))
    worst = max(results["rises"])
    told = f"{len(results['rises'])} systems; V changes by {worst:.2g} of itself at most in a step"
    bench.law("the proof's condition suffices", worst <= 0, told)
    repelling, certified = np.mean(results["repels"]), np.mean(results["certified"])
    both = int(np.sum(np.logical_and(results["repels"], results["certified"])))
    told = f"{sum(results['repels'])} of {len(results['repels'])} repel; {both} of these fulfill the condition"
    bench.law("a Hurwitz A alone is not enough", repelling > 0 and both == 0, told)
    bench.number("systems that repel, of those with a Hurwitz A", 100 * float(repelling))
    bench.number("systems the condition certifies, of those", 100 * float(certified))
    extent = 1.35 * settings.radius
    portrait = partial(draw, A=A, W=W, paths=paths[::2].numpy(), P=P, extent=extent)
    caption = "Thin ellipses are level sets of V. 2‖P‖₂‖W‖₂ = 0.9: trajectories cross them inward alone."
    bench.figure("Trapped", portrait, caption=caption, width=360, height=360)
    turn = torch.tensor([[-0.1, 1.0], [-1.0, -0.1]], dtype=torch.float64)
    strong = torch.eye(2, dtype=torch.float64)
    away = follow(settings, turn, strong, 0.3, settings.duration)
    portrait = partial(draw, A=turn, W=strong, paths=away[::3].numpy(), P=lyapunov(turn).P, extent=extent)
    caption = "A has the eigenvalues −0.1 ± i, and W = I: trajectories leave the level sets they start on."
    bench.figure("Hurwitz, and not trapped", portrait, caption=caption, width=360, height=360)


def drawn_system(settings: Settings) -> tuple[Tensor, Tensor]:
    """Return a spiral whose level sets are ellipses, and a rotation as W at a share of what the proof allows."""
    A = torch.tensor(  # noqa: N806
        [[-settings.decay, settings.turn * settings.stretch], [-settings.turn / settings.stretch, -settings.decay]],
        dtype=torch.float64,
    )
    W = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)  # noqa: N806
    return A, W * settings.weight_share / (2 * lyapunov(A).norm)


def random_systems(settings: Settings, seed: int) -> dict[str, Any]:
    """Draw systems with a Hurwitz A; follow each with its own W from near 0, and with a scaled W from afar."""
    generator = torch.Generator().manual_seed(seed)
    systems = []
    while len(systems) < settings.systems:
        A, W = torch.randn(2, 2, 2, generator=generator, dtype=torch.float64)  # noqa: N806
        if float(torch.linalg.eigvals(A).real.max()) < -0.05:
            systems.append((A, W))
    A, W = (torch.stack(matrices) for matrices in zip(*systems, strict=True))  # noqa: N806
    solved = [lyapunov(matrix) for matrix in A]
    P = torch.stack([solution.P for solution in solved])  # noqa: N806
    shares = torch.tensor([2 * solution.norm for solution in solved]) * torch.linalg.matrix_norm(W, 2)
    away = follow(settings, A, W, settings.near, settings.long_duration)
    scaled = W * (settings.weight_share / shares)[:, None, None]
    paths = follow(settings, A, scaled, settings.radius, settings.duration)
    return {
        "rises": [largest_rise(*pair) for pair in zip(paths, P, strict=True)],
        "repels": (away[..., -1, :].norm(dim=-1).amax(-1) > 10 * settings.near).tolist(),
        "certified": (shares < 1).tolist(),
    }


def follow(settings: Settings, A: Tensor, W: Tensor, radius: float, duration: float) -> Tensor:  # noqa: N803
    """Follow solutions of one system, or of each of several, from a circle around 0."""
    starts = circle(radius, settings.starts).expand(*A.shape[:-2], -1, -1)
    return flow_trajectories(lipschitz_flow(A, W), starts, duration=duration, step=settings.step)


def largest_rise(paths: Tensor, P: Tensor) -> float:  # noqa: N803
    """Return the largest relative change of V from one step to the next; negative where V falls throughout."""
    values = ((paths @ P) * paths).sum(-1)
    moves = values.diff(dim=1) / values[:, :-1].clamp_min(SMALL)
    return float(moves[values[:, :-1] > SMALL].max())


def draw(axes: Any, *, A: Tensor, W: Tensor, paths: np.ndarray, P: Tensor, extent: float) -> None:  # noqa: N803
    """Draw the flow, trajectories and level sets."""
    draw_flow(axes, lipschitz_flow(A, W), paths, extent=extent)
    side = np.linspace(-extent, extent, 121)
    grid = np.stack(np.meshgrid(side, side), axis=-1)
    values = np.einsum("...i,ij,...j", grid, P.numpy(), grid)
    axes.contour(
        side, side, values, levels=np.linspace(0.1, 1, 6) ** 2 * values.max() / 2, colors=[INK], linewidths=0.7
    )
    axes.set(xlabel="first unit", ylabel="second unit")

"""Figure 6 of erichson2021: real parts of the eigenvalues of the symmetric-skew form over β, and their bound."""

import itertools
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sostenuto.constraints.symmetric_skew import SymmetricSkew
from sostenuto.experiments import Settings, Workbench
from sostenuto.report.palette import INK, SERIES

ROUNDING = 1e-9
SETTLED = 0.75
"""From here on the symmetric part weighs at most a quarter; before, the skew part still spreads the spectrum."""

STRIDE = 10_000
"""Between the draws of two seeds, so that they share none."""


def run(settings: Settings, bench: Workbench) -> None:
    """Follow the extreme real parts over β, and hold them against both forms of the bound."""
    results = {
        (size, shift): bench.cell(f"N={size}/shift={shift}", partial(measure, settings, size, shift, bench.seed))
        for size, shift in itertools.product(settings.sizes, settings.shifts)
    }
    outside = [_outside(result) for result in results.values()]
    bench.law("the corrected bound holds", max(outside) <= ROUNDING, f"outside by {max(outside):.2g} at most")
    still = {size: results[size, 0.0] for size in settings.sizes}
    ends = [abs(value) for outcome in still.values() for row in outcome["real"] for value in row[-1]]
    bench.number("largest real part, β = 1", max(ends))
    bench.number("largest real part, β = ½, N = 128", [row[0][1] for row in still[128]["real"]])
    shrinks = {size: _shrinks(settings.betas, outcome) for size, outcome in still.items()}
    means = {size: np.mean(outcome["real"], axis=0)[:, 1] for size, outcome in still.items()}
    told = "; ".join(f"N = {size}, largest: {', '.join(f'{v:.2g}' for v in row)}" for size, row in means.items())
    bench.law("real parts go to zero with β", all(shrinks.values()) and max(ends) <= ROUNDING, told)
    share = bench.cell("printed", partial(printed_share, settings, bench.seed))
    bench.number("share outside of the printed bound", 100 * share)
    size, shift, draws = settings.small_size, settings.small_shift, settings.small_draws
    evidence = f"{100 * share:.1f} % of {draws} matrices of {size} × {size}, γ = {shift:g}"
    bench.law("the bound as printed fails with γ", share > 0, evidence)
    for size, outcome in still.items():
        caption = "Largest and least real part, one line a matrix, without γ; dashed, the bound of each."
        bench.figure(f"N = {size}", partial(draw, betas=settings.betas, measured=outcome), caption=caption)


def measure(settings: Settings, size: int, shift: float, seed: int) -> dict[str, Any]:
    """Return the extreme real parts and their bounds: one row a draw, one pair a β."""
    real, bound = [], []
    for draw_number in range(settings.draws):
        free = matrix(size, STRIDE * seed + draw_number)
        forms = [SymmetricSkew(beta, shift) for beta in settings.betas]
        real.append([extremes(form(free)) for form in forms])
        bound.append([form.eigenvalue_bounds(free) for form in forms])
    return {"real": real, "bound": bound}


def printed_share(settings: Settings, seed: int) -> float:
    """Count small random matrices with an eigenvalue outside of eq. (43) as printed, at β = ¾."""
    form, count = SymmetricSkew(SETTLED, settings.small_shift), 0
    for draw_number in range(settings.small_draws):
        free = matrix(settings.small_size, STRIDE * seed + draw_number)
        low, high = form.eigenvalue_bounds(free)
        least, largest = (value - settings.small_shift for value in extremes(form(free)))
        count += least < low - ROUNDING or largest > high + ROUNDING
    return count / settings.small_draws


def matrix(size: int, seed: int) -> Tensor:
    """Draw M with entries N(0, 1/N)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, size, generator=generator, dtype=torch.float64) / size**0.5


def extremes(weight: Tensor) -> tuple[float, float]:
    """Return the least and the largest real part of the eigenvalues."""
    values = torch.linalg.eigvals(weight).real
    return float(values.min()), float(values.max())


def draw(axes: Any, *, betas: list[float], measured: dict[str, Any]) -> None:
    """Draw both extremes and their bounds over β."""
    for which, color in ((1, SERIES[1]), (0, SERIES[0])):
        for number, (real, bound) in enumerate(zip(measured["real"], measured["bound"], strict=True)):
            name = ("least", "largest")[which] if number == 0 else None
            axes.plot(betas, [pair[which] for pair in real], color=color, linestyle="solid", linewidth=1, label=name)
            name = "bound" if number == 0 and which == 0 else None
            axes.plot(
                betas, [pair[which] for pair in bound], color=INK, linestyle=(0, (4, 3)), linewidth=0.8, label=name
            )
    axes.set(xlabel="β", ylabel="real part")
    axes.legend()


def _outside(measured: dict[str, Any]) -> float:
    real, bound = np.asarray(measured["real"]), np.asarray(measured["bound"])
    return float(max((bound[..., 0] - real[..., 0]).max(), (real[..., 1] - bound[..., 1]).max()))


def _shrinks(betas: list[float], measured: dict[str, Any]) -> bool:
    means = np.mean(measured["real"], axis=0)[[beta >= SETTLED for beta in betas]]
    return bool((np.diff(means[:, 0]) > 0).all() and (np.diff(means[:, 1]) < 0).all())

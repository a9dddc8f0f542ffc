"""Figure 1 of wang2024: perturbation errors of linear functionals with exponential and power-law memory."""

from functools import partial
from typing import Any

import numpy as np

from sostenuto.audits import fit_exponential_sum, perturbed_sum_error
from sostenuto.data.tasks.linear_functional import memory_function
from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.stable_approximation import (
    DRAWN,
    common_limit,
    draw_errors,
    falls,
    keeps,
    stable_up_to,
    told,
)

TRUSTED = 8
"""Up to this width weights stay near one; beyond it the fit gains little, by huge weights that cancel."""


def run(settings: Settings, bench: Workbench) -> None:
    """Fit, perturb, and compare the radii of both memories."""
    betas = [settings.first_beta * 2.0**power for power in range(settings.num_betas)]
    results = {
        memory: [
            bench.cell(f"{memory}/width={width}", partial(measure, settings, memory, width, betas, bench.seed))
            for width in settings.widths
        ]
        for memory in ("exponential", "polynomial")
    }
    exponential, power = results["exponential"], results["polynomial"]
    limits = {memory: common_limit(fits[0]["still"], fits[0]["zero"]) for memory, fits in results.items()}
    radii = {
        memory: [stable_up_to(betas, fit["errors"], limits[memory]) for fit in fits] for memory, fits in results.items()
    }
    trusted = [fit for width, fit in zip(settings.widths, power, strict=True) if width <= TRUSTED]

    bench.number("exponential memory: slowest rate", exponential[0]["slowest"])
    bench.law("exponential memory is approximated stably", keeps(radii["exponential"]), told(radii["exponential"]))
    bench.number("power-law memory: error at the largest width", power[-1]["still"])
    still = [fit["still"] for fit in trusted]
    bench.law("power-law memory is approximated ever better", falls(still), _few(still))
    bench.law("power-law memory loses its stability", not keeps(radii["polynomial"]), told(radii["polynomial"]))
    slowest = [fit["slowest"] for fit in trusted]
    bench.law("power-law memory: the slowest rate goes to zero", falls(slowest), _few(slowest))
    for memory, fits in results.items():
        curves = {f"m = {width}": fit["errors"] for width, fit in zip(settings.widths, fits, strict=True)}
        bench.figure(
            f"E(β), {memory} memory", partial(draw, betas=betas, curves=curves, limit=limits[memory]), caption=DRAWN
        )


def measure(settings: Settings, memory: str, width: int, betas: list[float], seed: int) -> dict[str, Any]:
    """Fit a memory by ``width`` exponentials and move the weights."""
    lags = np.arange(1.0, settings.horizon + 1)
    target = memory_function(memory, lags, decay=settings.decay, exponent=settings.exponent)
    fit = fit_exponential_sum(lags, target, width)
    errors = perturbed_sum_error(fit, lags, target, betas, draws=settings.draws, seed=seed)
    zero = float(np.abs(target).sum())
    return {"still": fit.total, "zero": zero, "slowest": min(fit.rates), "errors": errors}


def draw(axes: Any, *, betas: list[float], curves: dict[str, list[float]], limit: float) -> None:
    """Draw E(β), one line a width, where errors can still be told from ruin."""
    draw_errors(axes, betas=betas, curves=curves, limit=limit)
    axes.set_ylim(1e-5, 1e3)


def _few(values: list[float]) -> str:
    return ", ".join(f"{value:.2g}" for value in values)

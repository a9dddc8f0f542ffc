"""Lyapunov exponents of Lorenz-96 with 40 variables and forcing 8, by our own RK4 and our own audit.

Published values: largest exponent 1.67 to 1.69 per unit of time, Kaplan–Yorke dimension about 27.1 (Lorenz and Emanuel
1998 give 27.1; later work agrees to within a few hundredths). Thirty-two starts are followed at once, and the
spread between them gives the standard error.
"""

import time
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.audits.stability.lyapunov_spectrum import lyapunov_spectrum
from sostenuto.nn.integrators import rk4

TITLE = "Lyapunov exponents of Lorenz-96 (40 variables, forcing 8) against the published values"

VARIABLES, FORCING, STEP = 40, 8.0, 0.05
PUBLISHED = {"largest": (1.67, 1.69), "kaplan_yorke": 27.1}


def run(progress: bool = True, starts: int = 32, steps: int = 10_000, washout: int = 400) -> dict[str, Any]:
    """Return the largest exponent, the dimension, their errors and the whole spectrum."""
    if progress:
        print(f"{starts} starts of {steps} steps of {STEP}")
    begun = time.perf_counter()
    spectrum = lyapunov_spectrum(
        step, start=first_states(starts), steps=steps, washout=washout, step_time=STEP, batch_size=starts
    )
    dimension = spectrum.kaplan_yorke or 0.0
    return {
        "variables": VARIABLES,
        "forcing": FORCING,
        "step": STEP,
        "starts": starts,
        "counted_time": spectrum.counted_steps * STEP,
        "largest": spectrum.largest,
        "largest_standard_error": spectrum.standard_error[0] if spectrum.standard_error else 0.0,
        "kaplan_yorke": dimension,
        "published_largest": list(PUBLISHED["largest"]),
        "published_kaplan_yorke": PUBLISHED["kaplan_yorke"],
        "kaplan_yorke_relative_difference": abs(dimension / PUBLISHED["kaplan_yorke"] - 1),
        "sum_of_exponents": sum(spectrum.exponents),
        "exponents": list(spectrum.exponents),
        "seconds": time.perf_counter() - begun,
    }


def step(h: Float[Tensor, " variable"], x: Float[Tensor, " channel"]) -> Float[Tensor, " variable"]:  # noqa: ARG001
    """Take one RK4 step of x′ᵢ = (xᵢ₊₁ − xᵢ₋₂)xᵢ₋₁ − xᵢ + 8; the input is not looked at.

    >>> still = torch.full((40,), 8.0).double()
    >>> bool((step(still, torch.zeros(0)) == still).all())
    True
    """
    return rk4(lambda now, _: _field(now), h, STEP)


def first_states(count: int, seed: int = 0) -> Float[Tensor, "start variable"]:
    """Draw states around the one at rest."""
    noise = torch.randn(count, VARIABLES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return FORCING + noise


def _field(x: Tensor) -> Tensor:
    ahead, behind, two_behind = (torch.roll(x, shift, -1) for shift in (-1, 1, 2))
    return (ahead - two_behind) * behind - x + FORCING

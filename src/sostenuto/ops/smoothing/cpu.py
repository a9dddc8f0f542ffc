"""Exponential smoothing on the CPU: one series, smoother and season after the other, its state in registers."""

from typing import no_type_check

import numpy as np
from jaxtyping import Float64
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.compiled import OPTIONS, procedure


def smoothing_cpu(
    values: Float64[Tensor, "time series"],
    gains: Float64[Tensor, "smoother 3"],
    seasons: tuple[int, ...],
    horizon: int,
    last: bool,
    season_gain: float,
) -> Float64[Tensor, "season smoother origin ahead series"]:
    """Run the kernel."""
    steps, series = values.shape
    out = values.new_empty(len(seasons), len(gains), 1 if last else steps, horizon, series)
    periods = np.asarray(seasons, np.int64)
    memory = np.empty(max(int(periods.max()), 1))
    _smooth(values.contiguous().numpy(), gains.contiguous().numpy(), periods, season_gain, memory, out.numpy())
    return out


@procedure
@no_type_check
def _begin(values, season, level, profile):
    """Start level and profile with the first season, or with nothing."""
    level[0] = 0.0
    profile[:] = 0.0
    begun = min(season, len(values))
    for step in range(begun):
        level[0] += values[step] / begun
    for step in range(begun):
        profile[step] = values[step] - level[0]


@procedure
@no_type_check
def _extend(level, trend, damping, profile, phase, out):
    """Write the forecasts from one step."""
    reach, power = 0.0, 1.0
    for ahead in range(len(out)):
        phase = phase + 1 if phase + 1 < len(profile) else 0
        power *= damping
        reach += power
        out[ahead] = level + reach * trend + profile[phase]


@njit(**OPTIONS)
@no_type_check
def _smooth(values, gains, seasons, season_gain, memory, out):
    """Write the forecasts of every step, or those of the last where ``out`` has one origin."""
    steps, start = len(values), np.empty(1)
    skipped = steps - out.shape[2]
    for place, smoother, column in np.ndindex(len(seasons), len(gains), values.shape[1]):
        season, alpha, beta, damping = seasons[place], gains[smoother, 0], gains[smoother, 1], gains[smoother, 2]
        profile = memory[: max(season, 1)]
        _begin(values[:, column], season, start, profile)
        level, trend = start[0], 0.0
        for step in range(steps):
            phase, gain = step % len(profile), max(alpha, 1 / (step + 1))
            known, error = level + damping * trend, 0.0
            if step >= season:
                error = values[step, column] - known - profile[phase]
            level = known + gain * error
            if step > 0:
                trend *= damping
                if beta > 0:
                    trend += max(beta, 1 / step) * error
            if season > 0:
                profile[phase] += max(season_gain, 1 / (step // season + 1)) * (1 - gain) * error
            if step >= skipped:
                _extend(level, trend, damping, profile, phase, out[place, smoother, step - skipped, :, column])

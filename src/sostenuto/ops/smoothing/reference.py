"""Exponential smoothing in plain torch; it defines the op."""

import torch
from jaxtyping import Float64
from torch import Tensor


def smoothing_reference(
    values: Float64[Tensor, "time series"],
    gains: Float64[Tensor, "smoother 3"],
    seasons: tuple[int, ...],
    horizon: int,
    last: bool,
    season_gain: float,
) -> Float64[Tensor, "season smoother origin ahead series"]:
    """Follow all seasons, smoothers and series side by side, step by step."""
    steps, series = values.shape
    alpha, beta, damping = gains.T[..., None]
    level = values.new_zeros(len(seasons), len(gains), series)
    trend = torch.zeros_like(level)
    begins = torch.tensor(seasons)[:, None, None]
    each, period = torch.arange(len(seasons)), begins.clamp(min=1).flatten()
    profile = values.new_zeros(int(period.max()), *level.shape)
    ahead = torch.arange(1, horizon + 1)
    reach = (damping[..., None] ** ahead).cumsum(2).transpose(1, 2)  # (smoother, ahead, 1)
    for place, season in enumerate(seasons):
        if season:
            first = values[:season]
            level[place] = first.mean(0)
            profile[: len(first), place] = (first - first.mean(0))[:, None]
    out = values.new_empty(*level.shape[:2], 1 if last else steps, horizon, series)
    for step, value in enumerate(values):
        phase, gain = step % period, alpha.clamp(min=1 / (step + 1))
        known = level + damping * trend
        error = torch.where(step >= begins, value - known - profile[phase, each], 0.0)
        level = known + gain * error
        if step:
            trend = damping * trend + torch.where(beta > 0, beta.clamp(min=1 / step), 0.0) * error
        own = (1 / (step // period + 1).to(values)).clamp(min=season_gain)[:, None, None]
        profile[phase, each] += torch.where(begins > 0, own, 0.0) * (1 - gain) * error
        if not last or step == steps - 1:
            later = profile[(step + ahead[:, None]) % period, each].permute(1, 2, 0, 3)
            out[:, :, -1 if last else step] = level[:, :, None] + reach * trend[:, :, None] + later
    return out

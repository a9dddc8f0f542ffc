"""Exponential smoothing: running means of level, trend and season with given gains; nothing is fitted."""

import numpy as np
from jaxtyping import Float

SMOOTHERS = np.array(
    [
        (0.0, 0.0, 1.0),
        (0.1, 0.0, 1.0),
        (0.3, 0.0, 1.0),
        (0.6, 0.0, 1.0),
        (0.1, 0.02, 1.0),
        (0.3, 0.1, 0.9),
        (0.6, 0.3, 0.9),
        (1.0, 0.001, 1.0),
    ]
)
"""Gain of the level, gain of the trend, and what a trend keeps of itself per step; the first is the mean of all values,
the last the previous value and the mean change."""
_SEASON_GAIN = 0.3


def smoothed_forecasts(
    values: Float[np.ndarray, "time channel"], horizon: int, seasons: tuple[int, ...] = (0,), *, last: bool = False
) -> Float[np.ndarray, "season smoother origin ahead channel"]:
    """Forecast from every step, or the ``last`` alone, by all `SMOOTHERS`, with a profile over each season (0: none).

    With the error e of a value, its forecast from the step before being level ℓ + trend φb + profile s of its phase:
    ℓ ← ℓ + φb + αe, b ← φb + βe, s ← s + γ(1 − α)e (Holt 1957, Winters 1960, damped by Gardner and McKenzie 1985).
    The first season starts level and profile. A gain above 0 is at least one over the values so far, so that a short
    past is a plain mean; so is α always.

    >>> smoothed_forecasts(np.arange(50.0)[:, None], 3)[0, -1, -1].ravel().round(6).tolist()
    [50.0, 51.0, 52.0]
    >>> waves = np.tile([0.0, 0.0, 6.0], 30)[:, None]
    >>> smoothed_forecasts(waves, 3, (0, 3), last=True)[1, 1].ravel().round(1).tolist()
    [0.0, 0.0, 6.0]
    """
    steps, channels = values.shape
    alpha, beta, damping = SMOOTHERS.T[..., None]
    level, trend = np.zeros((2, len(seasons), len(SMOOTHERS), channels))
    each, period = np.arange(len(seasons)), np.maximum(seasons, 1)
    profile = np.zeros((max(period), *level.shape))
    ahead = np.arange(1, horizon + 1)
    reach = np.cumsum(damping[..., None] ** ahead, axis=2).transpose(0, 2, 1)  # (smoother, ahead, 1)
    for place, season in enumerate(seasons):
        if season:
            first = values[:season]
            level[place] = first.mean(0)
            profile[: len(first), place] = (first - first.mean(0))[:, None]
    trending, begins = beta > 0, np.asarray(seasons)[:, None, None]
    out = np.empty((*level.shape[:2], 1 if last else steps, horizon, channels))
    for step, value in enumerate(values):
        phase, gain = step % period, np.maximum(alpha, 1 / (step + 1))
        known = level + damping * trend
        error = np.where(step >= begins, value - known - profile[phase, each], 0.0)
        level = known + gain * error
        if step:
            trend = damping * trend + np.where(trending, np.maximum(beta, 1 / step), 0.0) * error
        own = np.where(begins > 0, np.maximum(_SEASON_GAIN, 1 / (step // period + 1))[:, None, None], 0.0)
        profile[phase, each] += own * (1 - gain) * error
        if not last or step == steps - 1:
            later = profile[(step + ahead[:, None]) % period, each].transpose(1, 2, 0, 3)
            out[:, :, -1 if last else step] = level[:, :, None] + reach * trend[:, :, None] + later
    return out

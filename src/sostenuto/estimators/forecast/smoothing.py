"""Exponential smoothing: running means of level, trend and season with given gains; nothing is fitted."""

import numpy as np
import torch
from jaxtyping import Float

from sostenuto.ops.smoothing import exponential_smoothing

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


def smoothed_forecasts(
    values: Float[np.ndarray, "time channel"], horizon: int, seasons: tuple[int, ...] = (0,), *, last: bool = False
) -> Float[np.ndarray, "season smoother origin ahead channel"]:
    """Forecast from every step, or the ``last`` alone, by all `SMOOTHERS`, with a profile over each season (0: none).

    The recursion is that of `sostenuto.ops.smoothing.exponential_smoothing`.

    >>> smoothed_forecasts(np.arange(50.0)[:, None], 3)[0, -1, -1].ravel().round(6).tolist()
    [50.0, 51.0, 52.0]
    >>> waves = np.tile([0.0, 0.0, 6.0], 30)[:, None]
    >>> smoothed_forecasts(waves, 3, (0, 3), last=True)[1, 1].ravel().round(1).tolist()
    [0.0, 0.0, 6.0]
    """
    given = torch.from_numpy(np.ascontiguousarray(values, np.float64))
    gains = torch.from_numpy(SMOOTHERS)
    return exponential_smoothing(given, gains, seasons, horizon=horizon, last=last).numpy()

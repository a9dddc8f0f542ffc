"""Forecasts that need no fit: the previous value and the last season's; ridge regressions correct them."""

import numpy as np
from jaxtyping import Float


def base_forecasts(
    values: Float[np.ndarray, "time channel"], horizon: int, season: int = 0
) -> Float[np.ndarray, "time ahead channel"]:
    """Forecast from every step: its own value, or with a season the latest value seen at the phase of each next step.

    >>> base_forecasts(np.arange(6.0)[:, None], 3, season=2)[-1].ravel()
    array([4., 5., 4.])
    """
    ahead = np.arange(1, horizon + 1)
    back = np.zeros(horizon, int) if season == 0 else season * -(-ahead // season) - ahead
    return values[np.maximum(np.arange(len(values))[:, None] - back, 0)]


def future_values(values: Float[np.ndarray, "time channel"], horizon: int) -> Float[np.ndarray, "origin ahead channel"]:
    """Give the values after each step that has ``horizon`` steps after it.

    >>> future_values(np.arange(4.0)[:, None], 2)[..., 0].tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    return values[np.arange(len(values) - horizon)[:, None] + np.arange(1, horizon + 1)]

"""Exponential smoothing of level, trend and season for many gains at once: check, choose a backend, apply."""

from jaxtyping import Float64
from torch import Tensor

from sostenuto.checks import check_count, require
from sostenuto.ops.backend import choose_backend
from sostenuto.ops.smoothing.reference import smoothing_reference

SEASON_GAIN = 0.3
"""Gain γ of the season's profile."""
FEW_STEPS = 50
"""A series of fewer steps is smoothed by the reference in less time than the kernel takes to come into memory."""


def exponential_smoothing(
    values: Float64[Tensor, "time series"],
    gains: Float64[Tensor, "smoother 3"],
    seasons: tuple[int, ...] = (0,),
    *,
    horizon: int,
    last: bool = False,
    backend: str = "auto",
) -> Float64[Tensor, "season smoother origin ahead series"]:
    """Forecast every series from every step, or the ``last`` alone, with each of the gains and seasons (0: none).

    With the error e of a value, its forecast from the step before being level ℓ + trend φb + profile s of its phase:
    ℓ ← ℓ + φb + αe, b ← φb + βe, s ← s + γ(1 − α)e (Holt 1957, Winters 1960, damped by Gardner and McKenzie 1985),
    γ = 0.3. The first season starts level and profile. A gain above 0 is at least one over the values so far, so that
    a short past is a plain mean; so is α always.

    Args:
        values: side by side, of one length.
        gains: α, β and φ of each smoother.
        seasons: steps of a season, or 0.
        horizon: steps to forecast.
        last: forecast from the last step alone.
        backend: ``"reference"``, ``"cpu"``, or ``"auto"``: the kernel unless there are few steps.

    Returns:
        The forecasts.

    >>> import torch
    >>> exponential_smoothing(torch.arange(9.0).double()[:, None], torch.tensor([[1.0, 0.1, 1.0]]).double(),
    ...     horizon=2, last=True).ravel().tolist()
    [9.0, 10.0]
    """
    check_count("horizon", horizon)
    require(len(values) > 0, "expected at least one step", "got none")
    require(len(seasons) > 0 and min(seasons) >= 0, "expected seasons of 0 or more steps", f"got {seasons}")
    if backend == "auto" and len(values) < FEW_STEPS:
        backend = "reference"
    arguments = (values, gains, tuple(seasons), horizon, last, SEASON_GAIN)
    if choose_backend(backend, values, built=("cpu",)) == "reference":
        return smoothing_reference(*arguments)
    from sostenuto.ops.smoothing.cpu import smoothing_cpu

    return smoothing_cpu(*arguments)

"""The memory of linear damped oscillators: every unit keeps |λ| = e^{−γδ} of a difference, whatever it reads."""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import require
from sostenuto.nn.certificates import LevelDecay, both_directions


class DampedUnits(NamedTuple):
    """One layer in one direction: γ, the scale of the drive, V, and |c|."""

    decay: Float[Tensor, " H"]
    scale: Float[Tensor, " H"]
    entering: Float[Tensor, "H _"]
    readout: Float[Tensor, " H"]


def damped_decay(
    directions: list[DampedUnits], spans: tuple[float, float], drive: float | Float[np.ndarray, " H"] | None
) -> tuple[LevelDecay, Float[np.ndarray, " unit"]]:
    """Return a layer's rates and the half-lives of its units; coefficients may be off by some units in the last place.

    A drive x held over a span δ adds x∫₀^δ e^{κs}ds, at most |x|(1 − e^{−γδ})/γ, so that drives below D keep a state
    that starts at 0 below D/γ in spans of any length.

    Args:
        directions: units of one direction, or of two.
        spans: the least and the largest time span.
        drive: a bound on the drive, of each unit or of all.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> level, lives = damped_decay([DampedUnits(one / 10, one, one[None], one)], (1.0, 1.0), 2.0)
    >>> round(level.fastest, 6), round(level.slowest, 6), round(level.reach, 6), lives.round(3)
    (0.1, 0.1, 20.0, array([6.931]))
    """
    off = _rounding(directions[0].decay.dtype)
    levels, lives = [], []
    for unit in directions:
        decay, scale, entering, readout = (part.detach().double().cpu().numpy() for part in unit)
        fast, slow = decay * spans[1] * (1 + off) + off, decay * spans[0] * (1 - off) - off
        push, reach = float(np.linalg.norm(entering, 2)) * float((scale * np.minimum(spans[1], 1 / decay)).max()), None
        if drive is not None and slow.min() > 0:
            reach = float(np.linalg.norm(drive * scale / (decay * (1 - off) - off / spans[0]))) * (1 + off)
        clock = float((decay * (1 + off) + off / spans[0]).max()), float((decay * (1 - off) - off / spans[0]).min())
        leaving = float(readout.max()) * (1 + off)
        rates = float(fast.max()), float(slow.min())
        levels.append(LevelDecay(*rates, push * (1 + off), leaving, reach, (1.0, 1.0), clock))
        lives.append(math.log(2) / fast * (1 - 1e-15))
    return both_directions(levels), np.concatenate(lives)


def promised_decay(half_life: float, dtype: torch.dtype, time_span: float = 1.0) -> float:
    """Return the γ below which a half-life is certified, rounding of the coefficients of each step counted.

    >>> round(1 / promised_decay(100.0, torch.float64), 6) == round(100 / math.log(2), 6)
    True
    """
    off = _rounding(dtype)
    steps, most = half_life / time_span, math.floor(math.log(2) / (4 * off))
    rate = (math.log(2) / steps - 2 * off) * (1 - 2 * off)
    require(rate > 2 * off, f"expected half_life of at most {most} steps in {dtype}", f"got {steps:g}")
    return rate / time_span


def _rounding(dtype: torch.dtype) -> float:
    return 16 * torch.finfo(dtype).eps

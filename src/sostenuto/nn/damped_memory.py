"""The memory of linear damped oscillators: every unit keeps |λ| = e^{−γδ} of a difference, whatever it reads."""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import require
from sostenuto.nn.certificates import LevelDecay


class DampedUnits(NamedTuple):
    """One layer in one direction: γ, how strongly a step's drive enters each unit for a span of 1, V, and |c|."""

    decay: Float[Tensor, " H"]
    gain: Float[Tensor, " H"]
    entering: Float[Tensor, "H _"]
    readout: Float[Tensor, " H"]


def damped_decay(
    directions: list[DampedUnits], spans: tuple[float, float], drive: float | None
) -> tuple[LevelDecay, Float[np.ndarray, " unit"]]:
    """Give a layer's rates and the half-lives of its units; coefficients may be off by some units in the last place.

    What enters in a span of 1 bounds nothing in a longer one, so a window is proved for a span of 1 alone.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> level, lives = damped_decay([DampedUnits(one / 10, one, one[None], one)], (1.0, 1.0), None)
    >>> round(level.fastest, 6), round(level.slowest, 6), lives.round(3)
    (0.1, 0.1, array([6.931]))
    """
    decay = np.concatenate([unit.decay.detach().double().cpu().numpy() for unit in directions])
    off = _rounding(directions[0].decay.dtype)
    fast, slow = decay * spans[1] * (1 + off) + off, decay * spans[0] * (1 - off) - off
    lives = math.log(2) / fast * (1 - 1e-15)
    rates = float(fast.max()), float(slow.min())
    clock = float((decay * (1 + off) + off / spans[0]).max()), float((decay * (1 - off) - off / spans[0]).min())
    if len(directions) > 1 or spans != (1.0, 1.0):
        return LevelDecay(*rates, distortion=(1.0, 1.0), clock=clock), lives
    gain, entering, readout = (part.detach().double().cpu().numpy() for part in directions[0][1:])
    push = float(gain.max()) * float(np.linalg.norm(entering, 2)) * (1 + off)
    reach = None
    if drive is not None and rates[1] > 0:
        reach = drive * float(np.linalg.norm(gain / -np.expm1(-slow))) * (1 + off)
    return LevelDecay(*rates, push, float(readout.max()) * (1 + off), reach, (1.0, 1.0)), lives


def promised_decay(half_life: float, dtype: torch.dtype, time_span: float = 1.0) -> float:
    """Give the γ below which a half-life is certified, rounding of the coefficients of each step counted.

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

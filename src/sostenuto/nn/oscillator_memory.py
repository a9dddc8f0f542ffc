"""The memory certificate of a stack of oscillators."""

import math
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.certificates import (
    LevelDecay,
    MemoryCertificate,
    OscillatorGrowth,
    half_lives,
    oscillator_growth,
    remembering,
)
from sostenuto.nn.certificates.interval import Interval

NORM = (
    "√ΣNᵢ, Nᵢ = q₀y² − h q₀ y z + z² of each unit, with q₀ the middle of its stiffnesses; q̄y² + z² where that says more"
)


@runtime_checkable
class Oscillators(Protocol):
    """What a certificate reads of a layer."""

    stiffness: float

    def cells(self) -> list[tuple[int, bool]]:
        """List layers and directions."""
        ...

    def weight(self, name: str, layer: int, reverse: bool) -> Tensor:
        """Look a weight up."""
        ...

    def effective_step(self, layer: int = 0, *, reverse: bool = False) -> Tensor:
        """Return h of each unit."""
        ...


def cell_growth(
    layer: Oscillators, level: int, reverse: bool, spans: tuple[float, float] = (1.0, 1.0), drive: float | None = None
) -> OscillatorGrowth:
    """Bound one layer's differences in one direction, for every input: see `oscillator_growth`."""
    step, weight = layer.effective_step(level, reverse=reverse).detach(), layer.weight("weight_hh", level, reverse)
    size, known = step.double().cpu().numpy(), weight.detach().double().cpu().numpy()
    # Kernels may round the logistic function otherwise than torch does, by some units in the last place.
    off = 4 * torch.finfo(step.dtype).eps
    return oscillator_growth(
        Interval(size * (1 - off), size * (1 + off)), known, layer.stiffness, spans=spans, drive=drive
    )


def weight_limit(
    step: Float[Tensor, " H"], stiffness: float, half_life: float, *, time_span: float = 1.0
) -> Float[Tensor, " H"]:
    """Return w_max of each unit: |w| ≤ w_max keeps half of every difference for ``half_life`` steps; 0 where none does.

    asinh(r̄/2) ≤ ln 2/n means h²w² ≤ 4s²q₀(1 − h²q₀/4) with s = 2·sinh(ln 2/n), q₀ = α ± w/2: a quadratic in w, of
    which the lesser root of both signs is taken, less what rounding in the step's dtype can do to h and w.

    >>> limit = weight_limit(torch.tensor([0.1]), 1.0, 100.0)
    >>> round(float(half_lives(oscillator_growth(np.array([0.1]), -limit.double().numpy(), 1.0).rate)[0]), 1)
    100.0
    """
    off = torch.finfo(step.dtype).eps
    h = step.double() * time_span * (1 + 1e-6 + 5 * off)
    margin = (stiffness * (4 - h**2 * stiffness)).clamp(min=0)
    share = (2 * math.sinh(math.log(2) / half_life)) ** 2
    square, linear, constant = h**2 * (1 + share / 4), (share * (2 - h**2 * stiffness)).abs(), share * margin
    root = 2 * constant / (linear + torch.sqrt(linear**2 + 4 * square * constant)).clamp(min=1e-300)
    return (root * (1 - 1e-5 - 2 * off)).to(step.dtype)


def oscillator_memory(layer: Oscillators, spans: tuple[float, float], drive: float | None) -> MemoryCertificate:
    """Certify a stack: an oscillator without damping provably remembers, and is not proved to forget."""
    by_level: list[list[OscillatorGrowth]] = []
    for level, reverse in layer.cells():
        growth = cell_growth(layer, level, reverse, spans, drive)
        by_level = [*by_level, [growth]] if level == len(by_level) else [*by_level[:-1], [*by_level[-1], growth]]
    fastest = [float(max(growth.rate.max() for growth in level)) for level in by_level]
    return remembering(
        [
            LevelDecay(rate, -rate, distortion=(cost := _distortion(level), cost))
            for rate, level in zip(fastest, by_level, strict=True)
        ],
        half_lives(np.concatenate([growth.rate for growth in by_level[0]])),
        norm=NORM,
        checked="a step is a rotation after a shear of size r ≤ h|w|/(2√(q₀(1 − h²q₀/4))): asinh(r/2) a step",
        reason="an oscillator without damping is not proved to forget",
        spans=spans,
    )


def _distortion(growths: list[OscillatorGrowth]) -> float:
    """Bound the largest over the least stretch of (scale·y, z − shear·y) by (y, z), over all units."""
    scale, shear = (np.concatenate([getattr(growth, name) for growth in growths]) for name in ("scale", "shear"))
    both, apart = np.hypot(1 + scale, shear), np.hypot(scale - 1, shear)
    return float((both + apart).max() / (both - apart).min() * (1 + 1e-9))

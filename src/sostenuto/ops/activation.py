"""The nonlinearities of the recurrences, by name: each has its slope as a function of its own value.

Back-propagation through a scan then keeps σ(a) alone: tanh 1 − u², relu and modrelu [u ≠ 0], hardtanh [|u| < 1],
logistic u(1 − u), identity 1. Numba computes them in `_cpu/activation.py`, Triton in `_gpu/activation.py`; whatever
else is said of one stands here.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError, check_choice


class Activation(NamedTuple):
    """A nonlinearity σ, the least and largest slope of its secants, and what bounds it.

    ``least_slope`` gives that of secants between −A and A, from A; without it a bounded drive changes nothing. σ with
    a threshold has ``slopes`` None: it jumps, and nothing is proved about it. ``settles`` says what states of
    h′ = σ(Wh + z) do that settle, by default for a σ that is 0 at 0 alone; ``has_rate`` whether ∫σ is half of σ², so
    that they do it at a known rate.
    """

    apply: Callable[..., Tensor]
    slopes: tuple[float, float] | None = (0.0, 1.0)
    largest_value: float | None = None
    least_slope: Callable[[float], float] | None = None
    settles: str = "states converge to the one point of rest −W⁻¹z"
    has_rate: bool = False


def _modrelu(values: Tensor, threshold: Any) -> Tensor:
    return torch.sign(values) * torch.relu(values.abs() + threshold)


def _tanh_slope(drive: float) -> float:
    return (1 - 1e-14) / math.cosh(min(drive, 300.0)) ** 2


TABLE = {
    "tanh": Activation(torch.tanh, largest_value=1.0, least_slope=_tanh_slope),
    "relu": Activation(torch.relu, settles="the velocity decays at the rate and states converge", has_rate=True),
    "hardtanh": Activation(
        torch.nn.functional.hardtanh, largest_value=1.0, least_slope=lambda drive: float(drive <= 1)
    ),
    "logistic": Activation(
        torch.sigmoid,
        (0.0, 0.25),
        1.0,
        lambda drive: _tanh_slope(drive / 2) / 4,
        "the velocity decays to zero; states may drift ever more slowly",
    ),
    "identity": Activation(
        lambda values: values,
        (1.0, 1.0),
        settles="states converge to the one point of rest −W⁻¹z at the rate",
        has_rate=True,
    ),
    "modrelu": Activation(_modrelu, None),
}
ACTIVATIONS = tuple(TABLE)
"""The place of a name in this list is its code in the compiled kernels."""
SLOPES = {name: entry.slopes for name, entry in TABLE.items() if entry.slopes is not None}
"""Least and largest slope of each activation that has no threshold; a layer with a choice offers these."""


def activate(
    values: Float[Tensor, "*any H"], name: str, threshold: Float[Tensor, " H"] | None = None
) -> Float[Tensor, "*any H"]:
    """Apply the nonlinearity ``name``; modrelu is sign(a)·max(|a| + threshold, 0) (Helfrich et al. 2018, real case).

    >>> activate(torch.tensor([-2.0, 0.5]), "hardtanh").tolist()
    [-1.0, 0.5]
    >>> activate(torch.tensor([-2.0, 0.5]), "modrelu", torch.tensor([-1.0, -1.0])).tolist()
    [-1.0, 0.0]
    """
    if name not in TABLE:
        check_choice("activation", name, ACTIVATIONS)
    return TABLE[name].apply(values) if threshold is None else TABLE[name].apply(values, threshold)


def check_activation(name: str, threshold: Tensor | None) -> None:
    """Refuse an unknown name, modrelu without its threshold, and a threshold for anything else."""
    check_choice("activation", name, ACTIVATIONS)
    if (name == "modrelu") != (threshold is not None):
        got = "none" if threshold is None else "one"
        raise InputError(f"expected a threshold for modrelu and for nothing else, got {got} for {name!r}.")

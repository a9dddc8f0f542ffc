"""Smooth activations with what the theory needs of them: every derivative, and constants that bound all of them."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError


@dataclass(frozen=True)
class Activation:
    """An activation y = σ(u) that solves y′ = r(y) for a polynomial r, so that σ^(m) is a polynomial in y.

    Args:
        name: ``"tanh"``, ``"logistic"`` or ``"identity"``.
        rate: coefficients of r, constant first.
        ceiling: sup |σ|.
        slope: sup |σ′|, the Lipschitz constant.
        ratio: ρ with |σ^(m)| ≤ ρ^m·m! everywhere for every m ≥ 0; NaN where there is none.
    """

    name: str
    rate: tuple[float, ...]
    ceiling: float
    slope: float
    ratio: float

    def __call__(self, u: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Apply σ."""
        return {"tanh": torch.tanh, "logistic": torch.sigmoid, "identity": torch.clone}[self.name](u)

    def derivatives(self, u: Float[Tensor, "*shape"], order: int) -> Float[Tensor, "derivative *shape"]:
        """Return σ, σ′, …, σ^(order) at ``u``: σ^(m) = p_m(y), p_0(y) = y, p_{m+1} = p_m′·r.

        >>> TANH.derivatives(torch.zeros(1), 3).flatten().tolist()
        [0.0, 1.0, 0.0, -2.0]
        """
        y, polynomial, values = self(u), [0.0, 1.0], []
        for _ in range(order + 1):
            values.append(_horner(polynomial, y))
            slope = [power * c for power, c in enumerate(polynomial)][1:] or [0.0]
            polynomial = _product(slope, list(self.rate))
        return torch.stack(values)


TANH = Activation("tanh", (1.0, 0.0, -1.0), 1.0, 1.0, 1.0)
LOGISTIC = Activation("logistic", (0.0, 1.0, -1.0), 1.0, 0.25, 0.5)
IDENTITY = Activation("identity", (1.0,), math.inf, 1.0, math.nan)

SMOOTH = {activation.name: activation for activation in (TANH, LOGISTIC, IDENTITY)}
"""The activations with an expansion, by name."""


def smooth_activation(name: str) -> Activation:
    """Look an activation up; one with corners has no Taylor expansion and is refused.

    >>> smooth_activation("tanh").slope
    1.0
    """
    if name not in SMOOTH:
        listed = ", ".join(SMOOTH)
        raise InputError(f"expected a smooth activation, one of {listed}, got {name!r}: it has no Taylor expansion.")
    return SMOOTH[name]


def _horner(polynomial: list[float], y: Tensor) -> Tensor:
    value = torch.full_like(y, polynomial[-1])
    for coefficient in reversed(polynomial[:-1]):
        value = value * y + coefficient
    return value


def _product(one: list[float], other: list[float]) -> list[float]:
    result = [0.0] * (len(one) + len(other) - 1)
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            result[i + j] += a * b
    return result

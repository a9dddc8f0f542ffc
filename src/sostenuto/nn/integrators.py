"""One step of a differential equation h′ = f(h, s), by the method's name; s ∈ [0, 1] says how far into the step.

A step of duration ``span`` may differ from sequence to sequence. Layers hold their input through a step, so there f
does not depend on s; a caller who knows the input between samples gets the method's full order by using it.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.constraints.linear_algebra import solve

State = Float[Tensor, "*batch state"]
Field = Callable[[State, float], State]
Span = Float[Tensor, "*batch 1"] | float


def euler(field: Field, h: State, span: Span) -> State:
    """Step h + τ f(h, 0): order 1.

    >>> euler(lambda h, s: -h, torch.ones(1), 0.5).item()
    0.5
    """
    return h + span * field(h, 0.0)


def midpoint(field: Field, h: State, span: Span) -> State:
    """Step h + τ f(h + ½τ f(h, 0), ½): order 2.

    >>> midpoint(lambda h, s: -h, torch.ones(1), 0.5).item()
    0.625
    """
    return h + span * field(h + span / 2 * field(h, 0.0), 0.5)


def rk4(field: Field, h: State, span: Span) -> State:
    """Step with the classical Runge-Kutta method: order 4.

    >>> round(rk4(lambda h, s: -h, torch.ones(1), 0.5).item(), 4)
    0.6068
    """
    first = field(h, 0.0)
    second = field(h + span / 2 * first, 0.5)
    third = field(h + span / 2 * second, 0.5)
    fourth = field(h + span * third, 1.0)
    return h + span / 6 * (first + 2 * second + 2 * third + fourth)


def imex(linear: Float[Tensor, "state state"], rest: State, h: State, span: Span, implicitness: float) -> State:
    """Step with the linear part A partly taken at the end: (I − ρτA) h⁺ = h + (1−ρ)τ A h + τ r; order 1.

    ``rest`` is r, the nonlinear part at the start, and ``implicitness`` ρ (erichson2021, eq. (14)). Steps of unequal
    duration have a matrix each. A duration of 0 leaves the state as it is.

    >>> imex(-torch.eye(1), torch.zeros(1, 1), torch.ones(1, 1), 1.0, 1.0).item()
    0.5
    """
    identity = torch.eye(linear.shape[-1], dtype=linear.dtype, device=linear.device)
    right = h + span * ((1 - implicitness) * (h @ linear.mT) + rest)
    scale = span[..., None] if isinstance(span, Tensor) else span
    return solve(identity - implicitness * scale * linear, right[..., None])[..., 0]


EXPLICIT = {"euler": euler, "midpoint": midpoint, "rk4": rk4}
"""The methods that need the vector field alone."""
INTEGRATORS = ("euler", "imex", "midpoint", "rk4")

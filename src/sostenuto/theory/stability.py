"""How much a prediction moves with its input, by the norm in the signature's RKHS (fermanian2021, section 3.2)."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, linalg, nn

from sostenuto.checks import require
from sostenuto.theory.bound import Assumption, Bound, make_bound
from sostenuto.theory.bounds import rkhs_norm_bound
from sostenuto.theory.discretization import discretization_bound
from sostenuto.theory.ode import discretize
from sostenuto.theory.rkhs import as_readout
from sostenuto.theory.signature import signature, time_weight
from sostenuto.theory.tensor_field import tensor_field


def signature_distance_bound(
    path: Float[Tensor, "time channel"],
    other: Float[Tensor, "time channel"],
    *,
    total_variation: float = 0.5,
    level: int = 3,
) -> Bound:
    """Bound ‖S(X̄) − S(X̄′)‖: ``level`` levels are computed, the others are at most k·μ^(k−1)·δ.

    δ is the length of X − X′ and μ the length of the faster of the two at each step, time included. The term
    ``lengths`` is the bound from lengths alone, δ·√((1 + μ²)/(1 − μ²)³). Needs μ < 1.

    >>> line = torch.linspace(0.01, 0.1, 10, dtype=torch.float64)[:, None]
    >>> bound = signature_distance_bound(line, 1.1 * line)
    >>> bound.value <= bound.terms["lengths"] < 0.02
    True
    """
    require(path.shape == other.shape, "expected two paths of one shape", f"got {path.shape} and {other.shape}")
    one, two = path.double(), other.double()
    steps, speed = len(one), time_weight(total_variation)
    moves = [torch.cat([points[:1], points.diff(dim=0)]) for points in (one, two)]
    delta = float((moves[0] - moves[1]).norm(dim=1).sum())
    lengths = [torch.hypot(move.norm(dim=1), torch.tensor(speed / steps, dtype=torch.float64)) for move in moves]
    mu = float(torch.maximum(*lengths).sum())
    known = [signature(points, level, basepoint=True, total_variation=total_variation).flat() for points in (one, two)]
    near = float((known[0] - known[1]).norm())
    assumptions = [Assumption("length of the faster path with time < 1", mu < 1, mu)]
    if mu >= 1:
        return make_bound("‖S(X̄) − S(X̄′)‖", math.nan, {"computed": near}, assumptions)
    every = (1 + mu**2) / (1 - mu**2) ** 3
    later = max(0.0, every - math.fsum(k**2 * mu ** (2 * k - 2) for k in range(1, level + 1)))
    by_lengths = delta * math.sqrt(every)
    value = min(by_lengths, math.hypot(near, delta * math.sqrt(later)))
    return make_bound("‖S(X̄) − S(X̄′)‖", value, {"computed": near, "lengths": by_lengths}, assumptions)


@dataclass(frozen=True)
class PredictionStability:
    """A bound on |z_T − z′_T| beside the difference that was measured."""

    bound: Bound
    measured: float


def prediction_stability(
    rnn: Any,
    readout: Tensor | nn.Linear,
    path: Float[Tensor, "time channel"],
    other: Float[Tensor, "time channel"],
    *,
    total_variation: float = 0.5,
    order: int = 3,
) -> PredictionStability:
    """Bound ‖z_T − z′_T‖ for two inputs of one length: 2‖ψ‖_op·c/T + ‖ξ‖·‖S(X̄) − S(X̄′)‖, and measure it.

    With several outputs ‖ξ‖ is the root of the sum of their squares. Reference: fermanian2021, section 3.2.

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> line = torch.linspace(0.01, 0.1, 10, dtype=torch.float64)[:, None]
    >>> field = rnn_field(torch.eye(2) / 100, torch.ones(2, 1) / 100)
    >>> found = prediction_stability(field, torch.ones(2), line, 1.5 * line)
    >>> found.measured <= found.bound.value
    True
    """
    field = tensor_field(rnn, total_variation=total_variation)
    weights = as_readout(readout, field)[0].detach()
    near = discretization_bound(field, len(path))
    norm = rkhs_norm_bound(field, weights, order=order)
    apart = signature_distance_bound(path, other, total_variation=field.total_variation, level=order)
    longest = max(float(torch.cat([p[:1], p.diff(dim=0)]).double().norm(dim=1).sum()) for p in (path, other))
    inside = Assumption(
        f"total variation ≤ {field.total_variation:g} of both", longest <= field.total_variation * (1 + 1e-6), longest
    )
    size = float(linalg.matrix_norm(weights, 2))
    joint = norm.terms.get("all_outputs", math.nan)
    value = 2 * size * near.value + joint * apart.value
    terms = {"discretization": 2 * size * near.value, "norm": joint, "signatures": apart.value}
    with torch.no_grad():
        states = discretize(field, torch.stack([path, other]))[:, -1]
        measured = float(((states[0] - states[1]) @ weights.mT).norm())
    assumptions = [*near.assumptions, *norm.assumptions, *apart.assumptions, inside]
    return PredictionStability(make_bound("‖z − z′‖", value, terms, assumptions), measured)

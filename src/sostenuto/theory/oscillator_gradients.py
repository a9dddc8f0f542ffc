"""Gradients of UnICORNN: the Hamiltonian of a state's derivative, and a bound on the loss's gradient by each parameter.

A layer moves by z ← z − h[tanh(A) + α y], y ← y + h z with A = w y + V u + b. Proposition 3.1 of rusch2021 is false
(``docs/errata.md``, rusch2021.1); what stands in its place is built from the growth bounds of
`sostenuto.theory.oscillator`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_count, check_positive, require
from sostenuto.theory.oscillator import mean_growth, mean_norm, position_bound


def gradient_hamiltonian(
    y: Float[Tensor, "*batch hidden"],
    z: Float[Tensor, "*batch hidden"],
    weight: Float[Tensor, "*#batch hidden"],
    slope: Float[Tensor, "*batch hidden"],
    forcing: Float[Tensor, "*batch hidden"],
    stiffness: float,
) -> Float[Tensor, "*batch"]:
    """Sum α y_θ²/2 + z_θ²/2 + σ′(A) w y_θ²/2 + σ′(A) C y_θ over units: the Hamiltonian of a state's derivative by θ.

    Its equations are y_θ′ = ∂H/∂z_θ = z_θ and z_θ′ = −∂H/∂y_θ = −σ′(A)(w y_θ + C) − α y_θ. H depends on time through
    σ′(A) and C, so it is not kept; the flow keeps volume. Reference: rusch2021, eqs. (8) and (9).

    Args:
        y: y_θ, the derivative of the positions by a parameter θ.
        z: z_θ, that of the velocities.
        weight: w.
        slope: σ′(A) at the pre-activation A.
        forcing: C = ∂A/∂θ at a fixed state: y_i for w_i, u_j for V_ij, 1 for b_i, and 0 for other units.
        stiffness: α.

    Returns:
        H, summed over units.

    >>> one = torch.ones(1)
    >>> float(gradient_hamiltonian(one, one, one, one / 2, one, 3.0))
    2.75
    """
    return (stiffness / 2 * y**2 + z**2 / 2 + slope * (weight / 2 * y**2 + forcing * y)).sum(-1)


@dataclass(frozen=True, eq=False)
class OscillatorLayer:
    """One layer: ``step`` h = Δt·σ̂(c) and ``weight`` w of each unit, and ``input_map`` V."""

    step: Float[Tensor, "*batch hidden"]
    weight: Float[Tensor, "*batch hidden"]
    input_map: Float[Tensor, "*batch hidden channel"]


@dataclass(frozen=True, eq=False)
class LayerGradientBound:
    """Bounds on |∂E/∂θ| for every entry of w, V and b of one layer; NaN where h√α < 2 fails."""

    weight: Float[Tensor, "*batch hidden"]
    input_map: Float[Tensor, "*batch hidden channel"]
    bias: Float[Tensor, "*batch hidden"]


def loss_gradient_bound(
    layers: list[OscillatorLayer], stiffness: float, count: int, *, largest_input: float, largest_target: float
) -> list[LayerGradientBound]:
    """Bound |∂E/∂θ| of E = 1/N Σ_n ½‖y_n^L − ȳ_n‖² over N = ``count`` steps from rest, for every input and target.

    A change of a pre-activation by ε at step k moves y_n by at most h·ν/s·G^{n−k}·ε: s and ν are the norms of (1, 0)
    and of the kick (h, 1) in the norm of `mean_norm` or of `always_norm`, whichever grows less, and log G is its growth
    in a step. With Y_n from `position_bound`, backwards through time and layers,

        λ^L_k = hν/s Σ_{n≥k} G^{n−k}(Y_n + Ȳ)/N,   λ^ℓ_k = hν/s Σ_{n≥k} G^{n−k} Σ_i |V^{ℓ+1}_i·| λ^{ℓ+1}_{n,i},
        |∂E/∂b| ≤ Σ_k λ_k,   |∂E/∂w| ≤ Σ_k λ_k Y_{k−1},   |∂E/∂V_ij| ≤ Σ_k λ_{k,i} |u_{k,j}|.

    It grows exponentially in time, as the gradient itself can: eq. (12) of rusch2021, which does not, is false
    (``docs/errata.md``, rusch2021.1). The rest of the path through (time, layer) is summed, where eq. (19) keeps one.

    Args:
        layers: from the first to the last, without skip connections; leading axes are systems of their own.
        stiffness: α ≥ 0.
        count: N.
        largest_input: bounds |u_{n,j}|.
        largest_target: Ȳ, bounds |ȳ_{n,i}|.

    Returns:
        One record a layer, infinite where a bound is beyond float64.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> layer = OscillatorLayer(one / 10, one, one[:, None])
    >>> bound = loss_gradient_bound([layer], 1.0, 10, largest_input=1.0, largest_target=1.0)
    >>> round(bound[0].bias.item(), 3)
    0.63
    """
    check_count("count", count)
    check_positive("stiffness", stiffness, zero=True)
    check_positive("largest_input", largest_input, zero=True)
    check_positive("largest_target", largest_target, zero=True)
    require(len(layers) > 0, "expected at least one layer", "got none")
    n = torch.arange(count + 1, dtype=torch.float64)
    positions = [position_bound(layer.step[..., None], stiffness, n) for layer in layers]
    above = (positions[-1][..., 1:] + largest_target) / count
    gradients = []
    for index in reversed(range(len(layers))):
        layer, reach = layers[index], positions[index]
        weights = _summed_back(layer, stiffness, above)
        inputs = positions[index - 1][..., 1:] if index else torch.tensor(largest_input, dtype=torch.float64)
        below = inputs.expand(*weights.shape[:-2], layer.input_map.shape[-1], count)
        by_map = torch.einsum("...in,...jn->...ij", weights, below)
        gradients.append(LayerGradientBound((weights * reach[..., :-1]).sum(-1), by_map, weights.sum(-1)))
        above = layer.input_map.double().abs().mT @ weights
    return gradients[::-1]


def _summed_back(layer: OscillatorLayer, stiffness: float, above: Tensor) -> Tensor:
    """Return hν/s Σ_{n≥k} G^{n−k} a_n of each unit, for every step k."""
    h, w = layer.step.double(), layer.weight.double()
    count = above.shape[-1]
    # A norm q̄y² + z² may have any q̄ from the largest curvature on; at none it grows by e over all steps.
    largest = torch.maximum(torch.maximum(torch.full_like(w, stiffness), (stiffness + w).abs()), (h * count) ** -2.0)
    always, other = 2 * torch.asinh(h * largest.sqrt() / 2), mean_growth(h, w, stiffness)
    norm = mean_norm(h, w, stiffness)
    use = other < always
    growth = torch.where(use, other, always)
    scale, shear = torch.where(use, norm.scale, largest.sqrt()), torch.where(use, norm.shear, 0.0)
    kick = h * torch.hypot(scale * h, 1 - shear * h) / scale
    rows, total = [], torch.zeros_like(h)
    for k in reversed(range(count)):
        total = growth.exp() * total + above[..., k]
        rows.append(kick * total)
    return torch.stack(rows[::-1], -1)

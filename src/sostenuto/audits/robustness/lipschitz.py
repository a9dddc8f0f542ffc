"""Lipschitz constants of certified recurrences: how much a change of the input can change the state at the end."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.nn.certificates import Certificate, discrete, refused
from sostenuto.nn.certificates.system import slope_range
from sostenuto.nn.dense import DenseLayer
from sostenuto.nn.fused import FusedLayer
from sostenuto.nn.indrnn import IndRNN

_EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class StateMap:
    """One layer h ← F h + Q σ(W h + V u + b): its matrices, the size of σ's slopes, and the certificate of the map."""

    linear: Float[Tensor, "state state"]
    weight: Float[Tensor, "unit state"]
    gain: Float[Tensor, "state unit"]
    entering: Float[Tensor, "unit channel"]
    slope: float
    hidden_size: int
    certificate: Certificate

    def norms(self) -> list["ContractedNorm"]:
        """Give the norms in which the map contracts: the certificate's, and the Euclidean one where it does too."""
        found = []
        eye = torch.eye(len(self.linear), dtype=torch.float64)
        if self.certificate.metric:
            root = torch.linalg.cholesky(torch.tensor(self.certificate.metric, dtype=torch.float64)).mT
            found.append(self._norm(root, math.exp(-float(self.certificate.rate or 0.0))))
        euclidean = _size(self.linear) + self.slope * _size(self.gain) * _size(self.weight)
        if euclidean < 1 or not found:
            proved = math.exp(-float(self.certificate.rate or 0.0))
            found.append(self._norm(eye, min(euclidean * (1 + 1e-12), 1.0) if found else proved))
        return found

    def _norm(self, root: Tensor, rate: float) -> "ContractedNorm":
        output = torch.eye(self.hidden_size, len(root), dtype=torch.float64)
        read = torch.linalg.solve_triangular(root, output, upper=True, left=False)
        # R is P's root up to rounding, which moves |Rδ| by a share of cond(P) = cond(R)² units in the last place.
        slack = 1 + 16 * len(root) * _EPS * float(torch.linalg.cond(root)) ** 2
        push = self.slope * _size(root @ self.gain) * _size(self.entering) * slack
        return ContractedNorm(rate, push, read * slack)


@dataclass(frozen=True, eq=False)
class ContractedNorm:
    """|δ|_P = |Rδ|₂ shrinks by ``rate`` a step, one step's input adds at most ``push``·|Δu|₂; ``read`` = [I 0] R⁻¹."""

    rate: float
    push: float
    read: Float[Tensor, "hidden state"]

    def end(self, steps: int) -> float:
        """Bound |δ_T|_P/‖Δu‖_F: push·√(Σ_{k<T} ρ^{2k})."""
        return self.push * math.sqrt(_geometric(self.rate**2, steps))

    def whole(self, steps: int) -> float:
        """Bound √(Σ_t |δ_t|²_P)/‖Δu‖_F: push·Σ_{k<T} ρᵏ, by Young's inequality."""
        return self.push * _geometric(self.rate, steps)


def state_maps(layer: Any) -> list[StateMap] | str:
    """List the maps of a stack from the bottom up, in float64, or say what fails; ``layer`` is in float64 already."""
    name = type(layer).__name__.removeprefix("Parametrized")
    if layer.bidirectional:
        return "not applicable: one direction fails (two)"
    if getattr(layer, "precision", "exact") != "exact":
        return f"not applicable: exact products fails (precision {layer.precision!r})"
    if isinstance(layer, IndRNN) and layer.num_layers > 1 and layer.stacking != "plain":
        return f"not applicable: a plain stack fails ({layer.stacking})"
    found = []
    for level in range(layer.num_layers):
        one = _state_map(layer, level)
        certificate = one.certificate if isinstance(one, StateMap) else one
        if not isinstance(one, StateMap) or not certificate.holds:
            where = f" in layer {level + 1}" if layer.num_layers > 1 else ""
            reason = certificate.reason or f"not applicable: a certificate of {name} fails"
            return f"{reason}{where}"
        found.append(one)
    return found


def _state_map(layer: Any, level: int) -> StateMap | Certificate:
    """Read the matrices of one layer, or give the certificate that refuses it."""
    if isinstance(layer, nn.RNN):
        weight, entering = (getattr(layer, f"{name}_l{level}").detach() for name in ("weight_hh", "weight_ih"))
        activation = str(layer.nonlinearity)
    elif isinstance(layer, IndRNN):
        weight, entering = torch.diag(layer.weight("weight_hh", level, False).detach()), _entering(layer, level)
        activation = layer.activation
    elif (
        isinstance(layer, DenseLayer) and type(layer).drive is FusedLayer.drive and type(layer).emit is FusedLayer.emit
    ):
        certificate = layer.certificate("discrete", layer=level)
        if not certificate.holds:
            return certificate
        linear, weight, gain = (part.detach() for part in layer.discrete_map(level).full())
        entering, slope = layer.weight("weight_ih", level, False).detach(), _slope(layer.activation)
        return StateMap(linear, weight, gain, entering, slope, layer.hidden_size, certificate)
    else:
        name = type(layer).__name__.removeprefix("Parametrized")
        return refused("discrete", "the form h ← Fh + Qσ(Wh + Vu + b)", f"{name} has another form")
    zero, eye = torch.zeros_like(weight), torch.eye(len(weight), dtype=weight.dtype)
    return StateMap(
        zero, weight, eye, entering, _slope(activation), layer.hidden_size, discrete(zero, weight, activation)
    )


def _entering(layer: IndRNN, level: int) -> Tensor:
    """Give V, times the scale of a normalization at rest."""
    entering = layer.weight("weight_ih", level, False).detach()
    if not layer.batch_norm:
        return entering
    scale, variance = (layer.weight(name, level, False).detach() for name in ("norm_scale", "norm_variance"))
    return entering * (scale * torch.rsqrt(variance + 1e-5))[:, None]


def _slope(activation: str) -> float:
    return max(abs(value) for value in slope_range(activation))


def _size(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


def _geometric(ratio: float, steps: int) -> float:
    """Sum ratioᵏ over k < steps."""
    return float(steps) if ratio >= 1 else (1 - ratio**steps) / (1 - ratio)

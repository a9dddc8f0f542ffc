"""A gated unit near its rest at zero: the matrix of its linear equation, its eigenvalues, and why there is none."""

import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.applicability import not_applicable
from sostenuto.checks import check_count, require
from sostenuto.results import Numbers, Record


@dataclass(frozen=True, kw_only=True)
class LinearizedUnit(Record):
    """The matrix M of dh/dt = M h near h = 0, by rows, and its eigenvalues; the unit's own step is near h ← (I + M) h.

    ``abscissa`` is the largest real part, below 0 where the equation is stable; ``radius`` the largest modulus of the
    eigenvalues of I + M, below 1 where the step is. ``candidate`` is the largest |ĥ| at h = 0, which must be 0 there to
    be at rest: where it is not, ``reason`` says so, and nothing else is told.
    """

    matrix: tuple[Numbers, ...]
    eigenvalues_real: Numbers
    eigenvalues_imaginary: Numbers
    abscissa: float
    radius: float
    candidate: float
    reason: str

    def summary(self) -> str:
        """Say whether the rest at zero is stable."""
        if self.reason:
            return f"The linearization at rest is {self.reason}."
        kind = "stable" if self.abscissa < 0 else "not stable"
        step = "stable" if self.radius < 1 else "not stable"
        return (
            f"The rest at zero is {kind} (largest real part {self.abscissa:.4g}), and under the unit's own step {step} "
            f"(largest modulus {self.radius:.4g})."
        )


Unit = TypeVar("Unit", bound=LinearizedUnit)


def at_rest(kind: type[Unit], matrix: Float[Tensor, "state state"], candidate: float) -> Unit:
    """Describe M."""
    values = torch.linalg.eigvals(matrix)
    values = values[values.real.argsort(descending=True, stable=True)]
    return kind(
        matrix=tuple(tuple(row) for row in matrix.tolist()),
        eigenvalues_real=tuple(values.real.tolist()),
        eigenvalues_imaginary=tuple(values.imag.tolist()),
        abscissa=float(values.real.max()),
        radius=float((1 + values).abs().max()),
        candidate=candidate,
        reason="",
    )


def not_at_rest(kind: type[Unit], answer: Float[Tensor, " hidden"], resting: Tensor) -> Unit:
    """Say that zero is no rest, because the candidate there is not 0."""
    return kind(
        matrix=(),
        eigenvalues_real=(),
        eigenvalues_imaginary=(),
        abscissa=math.nan,
        radius=math.nan,
        candidate=float(answer.abs().max()),
        reason=not_applicable("a candidate of 0 at h = 0", answer, resting),
    )


def gate_inputs(
    unit: nn.RNNBase | nn.RNNCellBase, x: Float[Tensor, " channel"] | None, layer: int
) -> tuple[Float[Tensor, " gates"], Float[Tensor, " gates"], Float[Tensor, "gates hidden"]]:
    """Return W x + b_i, b_h and U of one layer in float64, all gates one after the other."""
    check_count("layer", layer, least=0)
    count = getattr(unit, "num_layers", 1)
    require(layer < count, f"expected a layer below {count}", f"got {layer}")
    suffix = "" if isinstance(unit, nn.RNNCellBase) else f"_l{layer}"

    def weight(name: str) -> Tensor:
        return getattr(unit, f"{name}{suffix}").detach().double().cpu()

    entering, recurrent = weight("weight_ih"), weight("weight_hh")
    nothing = recurrent.new_zeros(len(recurrent))
    first, second = (weight(name) if unit.bias else nothing for name in ("bias_ih", "bias_hh"))
    channels = entering.shape[1]
    given = entering.new_zeros(channels) if x is None else x.detach().double().cpu()
    require(given.shape == (channels,), f"expected an input of {channels} channels", f"got shape {tuple(given.shape)}")
    return entering @ given + first, second, recurrent

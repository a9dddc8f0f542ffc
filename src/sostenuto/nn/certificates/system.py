"""The form every dense recurrence takes: a linear part, and slopes between two matrices."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_choice, require
from sostenuto.ops.activation import SLOPES

Slope = float | int | tuple[float, float] | str
"""The activation's name, the least and largest slope (0 and the number if there is one)."""


@dataclass(frozen=True, eq=False)
class SectorSystem:
    """A pair (linear, input, output) = (A, B, C) with slopes in [0, slope], in float64.

    The difference of two states obeys δ′ = Aδ + Bφ (or δ ← Aδ + Bφ) with φᵢ = kᵢ(Cδ)ᵢ and every kᵢ in [0, slope].
    ``rounding`` bounds the Frobenius norm of the error made in forming A.
    """

    linear: Float[np.ndarray, "state state"]
    input: Float[np.ndarray, "state unit"]
    output: Float[np.ndarray, "unit state"]
    slope: float
    rounding: float = 0.0

    @property
    def is_linear(self) -> bool:
        """Return whether the nonlinear part vanishes."""
        return self.slope == 0 or not self.input.any() or not self.output.any()

    def at(self, slopes: Float[np.ndarray, " unit"]) -> Float[np.ndarray, "state state"]:
        """Return the matrix A + B diag(k) C that units with slopes k act by."""
        return self.linear + (self.input * slopes) @ self.output


def bare(system: SectorSystem) -> SectorSystem:
    """Leave out units that do nothing, as in a linear system."""
    if not system.is_linear:
        return system
    count = len(system.linear)
    return SectorSystem(system.linear, np.zeros((count, 0)), np.zeros((0, count)), 0.0, system.rounding)


def sector_system(A: Tensor, W: Tensor, B: Tensor | None, slope: Slope) -> SectorSystem:  # noqa: N803
    """Check the matrices of A h + B σ(W h + z) and move the least slope into the linear part.

    With slopes in [l, s], σ(v) = l·v + σ̃(v) and σ̃ has slopes in [0, s − l]: the linear part becomes A + l·BW. For the
    identity nothing else is left, and every test is the exact one of a linear system.

    >>> import torch
    >>> system = sector_system(torch.zeros(1, 1), torch.full((1, 1), -2.0), None, "identity")
    >>> system.linear, system.slope
    (array([[-2.]]), 0.0)
    """
    low, high = slope_range(slope)
    linear, output = matrix("A", A), matrix("W", W)
    states, units = linear.shape[0], output.shape[0]
    require(linear.shape == (states, states), "expected a square A", f"got shape {linear.shape}")
    require(output.shape[1] == states, f"expected W to have {states} columns, as A has", f"got shape {output.shape}")
    if B is None:
        hint = "pass B, the matrix between the units and the state"
        require(units == states, f"expected W of shape ({states}, {states}) where B is left out", f"got {units}", hint)
    entering = np.eye(states) if B is None else matrix("B", B)
    shape = (states, units)
    require(entering.shape == shape, f"expected B of shape {shape}", f"got {entering.shape}")
    size = np.linalg.norm(linear) + abs(low) * np.linalg.norm(entering) * np.linalg.norm(output)
    rounding = float((units + 2) * np.finfo(np.float64).eps * size) if low else 0.0
    return SectorSystem(linear + low * entering @ output, entering, output, high - low, rounding)


def slope_range(slope: Slope) -> tuple[float, float]:
    """Return the least and largest slope.

    >>> slope_range("logistic"), slope_range(1)
    ((0.0, 0.25), (0.0, 1.0))
    """
    if isinstance(slope, str):
        check_choice("slope", slope, SLOPES)
        return SLOPES[slope]
    low, high = slope if isinstance(slope, tuple) else (0.0, slope)
    good = np.isfinite([low, high]).all() and low <= high
    require(bool(good), "expected a finite least slope and a largest one of at least it", f"got {slope}")
    return float(low), float(high)


def matrix(name: str, values: Tensor) -> np.ndarray:
    """Read a matrix of finite numbers as float64."""
    require(values.ndim == 2, f"expected {name} to be a matrix", f"got {values.ndim} axes")
    array = values.detach().double().cpu().numpy()
    require(bool(np.isfinite(array).all()), f"expected finite numbers in {name}", "got NaN or infinity")
    return array

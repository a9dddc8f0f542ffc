"""The norm tests: contraction in the Euclidean norm, read off two norms."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.certificates.certificate import Certificate, fails
from sostenuto.nn.certificates.system import SectorSystem, Slope, sector_system
from sostenuto.nn.certificates.unit import DenseUnit

CONTINUOUS = "μ₂(A) + s‖B‖₂‖W‖₂ < 0"
DISCRETE = "‖F‖₂ + s‖Q‖₂‖W‖₂ < 1"


def contraction(
    A: Float[Tensor, "state state"],  # noqa: N803
    W: Float[Tensor, "unit state"],  # noqa: N803
    slope: Slope = 1.0,
    *,
    B: Float[Tensor, "state unit"] | None = None,  # noqa: N803
) -> Certificate:
    """Test whether h′ = A h + B σ(W h + z(t)) contracts in the Euclidean norm under every input z.

    It does at the rate −(μ₂(A) + s‖B‖₂‖W‖₂) where that is positive, with μ₂(A) = λ_max((A + Aᵀ)/2) and s the largest
    slope of σ. Negative eigenvalues of A alone prove nothing. Reference: erichson2021, proposition 1, as corrected in
    ``docs/errata.md`` (erichson2021.1).

    Args:
        A: the linear part, ``(state, state)``.
        W: from the state to the units, ``(unit, state)``.
        slope: the activation's name, its largest slope, or its least and largest one.
        B: from the units to the state, ``(state, unit)``; the identity if left out.

    >>> import torch
    >>> contraction(torch.tensor([[-3.0]]), torch.tensor([[1.0]])).rate
    1.99...
    >>> contraction(torch.tensor([[-0.1]]), torch.tensor([[1.0]])).reason
    'not applicable: μ₂(A) + s‖B‖₂‖W‖₂ < 0 fails (0.9)'
    """
    value, slack = growth(sector_system(A, W, B, slope))
    if value + slack >= 0:
        return Certificate("contraction", False, "norm", CONTINUOUS, reason=fails(CONTINUOUS, value))
    return Certificate("contraction", True, "norm", CONTINUOUS, rate=-(value + slack), overshoot=1.0)


def certify_contraction(unit: DenseUnit) -> Certificate:
    """Test a layer's differential equation."""
    return contraction(unit.linear, unit.weight, unit.activation, B=unit.gain)


def growth(system: SectorSystem) -> tuple[float, float]:
    """Return μ₂(A) + s‖B‖₂‖C‖₂ and a bound on the rounding error in it."""
    symmetric = (system.linear + system.linear.T) / 2
    push = system.slope * spectral_norm(system.input) * spectral_norm(system.output)
    return float(np.linalg.eigvalsh(symmetric)[-1]) + push, _slack(system, push)


def expansion(system: SectorSystem) -> tuple[float, float]:
    """Return ‖F‖₂ + s‖Q‖₂‖W‖₂ and a bound on the rounding error in it."""
    push = system.slope * spectral_norm(system.input) * spectral_norm(system.output)
    return spectral_norm(system.linear) + push, _slack(system, push)


def _slack(system: SectorSystem, push: float) -> float:
    """Bound what rounding can do to singular and eigenvalues: a few units in the last place per row."""
    size = float(np.linalg.norm(system.linear)) + push
    return 16 * len(system.linear) * float(np.finfo(np.float64).eps) * size + system.rounding


def spectral_norm(matrix: np.ndarray) -> float:
    """Return ‖M‖₂, which is 0 for a matrix without entries."""
    return float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0

"""What can be proved of a unit without a linear part, h′ = σ(Wh + z): it settles while its input is constant."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import check_choice, check_positive, require
from sostenuto.nn.certificates.certificate import Certificate, fails, over_spans, refused
from sostenuto.nn.certificates.system import matrix
from sostenuto.nn.certificates.unit import DenseUnit
from sostenuto.ops.activation import SLOPES, TABLE

CONTINUOUS = "λ_max(W + Wᵀ) < 0"
DISCRETE = "λ_max(W + Wᵀ + sε WᵀW) < 0"


def settling(
    W: Float[Tensor, "state state"],  # noqa: N803
    activation: str = "tanh",
    *,
    step_size: float | None = None,
    shortest: float | None = None,
) -> Certificate:
    """Test whether h′ = σ(W h + z), or its Euler steps, come to rest while the input z is constant.

    No such unit contracts under *every* input: where units saturate, the slope of σ vanishes and differences stay as
    they are. For a constant z let v = Wh + z and E = Σᵢ∫₀^{vᵢ}σ. Then E′ = σ(v)ᵀWσ(v), which is negative for
    W + Wᵀ ≺ 0, so the velocity σ(v) goes to zero. One Euler step of size ε changes E by at most
    ε σ(v)ᵀ(W + ½sε WᵀW)σ(v), s the largest slope, so W + Wᵀ + sε WᵀW ≺ 0 is what the discrete map needs.

    The rate is of the velocity |h′| and holds for relu (E = ½|σ(v)|²) and the identity; saturating units have none that
    holds for all states. Reference: wang2024, section 3, as corrected in ``docs/errata.md`` (wang2024.4 and
    wang2024.6).

    Args:
        W: the recurrent matrix, ``(state, state)``.
        activation: a name in `ops.activation.SLOPES`.
        step_size: ε of Euler's method, the largest where steps differ; without it the differential equation is tested.
        shortest: the least ε where steps differ: the largest decides for all of them, and the rate is the least one's.

    >>> import torch
    >>> settling(torch.tensor([[-0.1, 5.0], [-5.0, -0.1]])).holds
    True
    >>> settling(torch.tensor([[-0.1, 5.0], [-5.0, -0.1]]), step_size=0.1).reason
    'not applicable: λ_max(W + Wᵀ + sε WᵀW) < 0 fails (2.301)'
    """
    check_choice("activation", activation, SLOPES)
    weights = matrix("W", W)
    require(weights.shape[0] == weights.shape[1], "expected a square W", f"got shape {weights.shape}")
    condition, form, step = CONTINUOUS, weights + weights.T, 0.0
    if step_size is not None:
        check_positive("step_size", step_size)
        condition, step = DISCRETE, SLOPES[activation][1] * step_size
        form = form + step * weights.T @ weights
    largest = float(np.linalg.eigvalsh(form)[-1])
    size = np.linalg.norm(weights)
    slack = float(32 * len(weights) * np.finfo(np.float64).eps * (size + step * size**2))
    if largest + slack >= 0:
        return Certificate(
            "settling", False, "norm", condition, reason=fails(condition, largest), scope="constant input"
        )
    rate = _rate(-(largest + slack) / 2, shortest or step_size) if TABLE[activation].has_rate else None
    return Certificate(
        "settling",
        True,
        "norm",
        f"{condition}: {TABLE[activation].settles}",
        rate=rate,
        scope="constant input",
    )


def certify_settling(unit: DenseUnit) -> Certificate:
    """Test a layer's differential equation."""
    return _with_linear_part("settling", unit) or settling(unit.weight, unit.activation)


def certify_discrete_settling(unit: DenseUnit) -> Certificate:
    """Test a layer's Euler steps: the longest decides for all, and the rate is the shortest one's."""
    kind = "discrete settling"
    if refusal := unit.without_step(kind, euler=True) or _with_linear_part(kind, unit):
        return refusal
    shortest, longest = ((unit.step_size or 0.0) * span for span in unit.spans)
    return over_spans(settling(unit.weight, unit.activation, step_size=longest, shortest=shortest), unit.spans)


def _with_linear_part(kind: str, unit: DenseUnit) -> Certificate | None:
    if bool(unit.linear.any()) or unit.gain is not None:
        return refused(kind, "a unit without a linear part, h′ = σ(Wh + z)", f"{unit.name} has one")
    return None


def _rate(margin: float, step_size: float | None) -> float:
    """Turn E′ ≤ −2·margin·E, or E ← (1 − 2ε·margin)E, into the rate of √E, per unit of time or per step."""
    return margin if step_size is None else -float(np.log1p(-2 * step_size * margin)) / 2

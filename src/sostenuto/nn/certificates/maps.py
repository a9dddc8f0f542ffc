"""The test for the map that is really run: h ← F h + Q σ(W h + z)."""

import math
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from sostenuto.nn.certificates.certificate import Certificate, fails, over_spans, refused
from sostenuto.nn.certificates.norms import DISCRETE, expansion
from sostenuto.nn.certificates.sector import inequality_certificate, linear_certificate
from sostenuto.nn.certificates.slopes import rate_limit
from sostenuto.nn.certificates.spans import over_curve
from sostenuto.nn.certificates.system import Slope, sector_system
from sostenuto.nn.certificates.unit import DenseUnit

SCHUR = "[[FᵀPF − ρ²P, FᵀPQ + sWᵀΛ], [QᵀPF + sΛW, QᵀPQ − 2Λ]] ≺ 0 for some P ≻ 0, diagonal Λ ≻ 0 and ρ = e^{−rate}"
_STABLE = "eigenvalues of F + Q diag(k) W inside the unit circle for all slopes k"


def discrete(
    F: Float[Tensor, "state state"],  # noqa: N803
    W: Float[Tensor, "unit state"],  # noqa: N803
    slope: Slope = 1.0,
    *,
    Q: Float[Tensor, "state unit"] | None = None,  # noqa: N803
) -> Certificate:
    """Test whether the map h ← F h + Q σ(W h + z_t) contracts under every input z.

    Contraction in continuous time does not carry over to the steps of a method. Euler's step of h′ = Ah + σ(Wh + z) is
    F = I + εA, Q = εI; the implicit-explicit one F = (I − ερA)⁻¹(I + ε(1 − ρ)A), Q = ε(I − ερA)⁻¹; a plain recurrent
    unit F = 0, Q = I. Two tests: ‖F‖₂ + s‖Q‖₂‖W‖₂ < 1, and, sharper,

        [[FᵀPF − ρ²P, FᵀPQ + sWᵀΛ], [QᵀPF + sΛW, QᵀPQ − 2Λ]] ≺ 0

    for some P ≻ 0 and diagonal Λ ≻ 0, searched with cvxpy and checked as in `lure`; the larger rate −log ρ per step is
    reported. Reference: erichson2021, proposition 1, as corrected in ``docs/errata.md`` (erichson2021.4).

    Args:
        F: the linear part, ``(state, state)``.
        W: from the state to the units, ``(unit, state)``.
        slope: the activation's name, its largest slope, or its least and largest one.
        Q: from the units to the state, ``(state, unit)``; the identity if left out.

    >>> import torch
    >>> A, eye = torch.tensor([[-0.1, 10.0], [-10.0, -0.1]]), torch.eye(2)
    >>> discrete(eye + 0.03 * A, 0.01 * eye, Q=0.03 * eye).reason
    'not applicable: eigenvalues of F + Q diag(k) W inside the unit circle for all slopes k fails (largest modulus 1...
    """
    system = sector_system(F, W, Q, slope)
    limit = rate_limit(system, discrete=True)
    if limit <= 0:
        value = f"largest modulus {math.exp(-limit):.6g}"
        return Certificate("discrete", False, "linear", _STABLE, reason=fails(_STABLE, value))
    if system.is_linear:
        return linear_certificate("discrete", system, limit, discrete=True)
    value, slack = expansion(system)
    if value + slack < 1:
        start = -math.log(value + slack)
        floor = Certificate("discrete", True, "norm", DISCRETE, rate=start, overshoot=1.0)
    else:
        start, floor = 0.0, Certificate("discrete", False, "norm", DISCRETE, reason=fails(DISCRETE, value))
    return inequality_certificate(floor, system, start, limit, SCHUR, discrete=True)


def certify_discrete(unit: DenseUnit) -> Certificate:
    """Test a layer's map of one time span, or of all between two where one norm serves them all.

    An Euler step moves the difference of two states along a line, δ + τv, and every norm is convex on a line: what
    shrinks by ρ in the longest span τ₊ shrinks by at least 1 − (τ/τ₊)(1 − ρ) in a span τ. An exact step of independent
    units decays in every unit, the least in the shortest span. Other steps move along a curve, which is followed in the
    norm of the longest span.
    """
    if refusal := unit.without_step("discrete"):
        return refusal
    shortest, longest = unit.spans

    def prove(span: float) -> Certificate:
        linear, weight, gain = unit.step(span)
        return discrete(linear, weight, unit.activation, Q=gain)

    certificate = prove(shortest if unit.integrator == "exact" else longest)
    if certificate.rate is None or shortest == longest or unit.integrator == "exact":
        return over_spans(certificate, unit.spans)
    if unit.integrator == "euler":
        share = shortest / longest * -math.expm1(-certificate.rate)
        certificate = replace(certificate, rate=-math.log1p(-share) * (1 - 1e-12))
        return over_spans(certificate, unit.spans)
    certificate = over_curve(unit.curve(), prove)
    if certificate is None:
        return refused("discrete", "one norm for all time spans", f"{shortest:g} to {longest:g}")
    return over_spans(certificate, unit.spans)

"""What a bounded norm in the signature's RKHS guarantees on new data: theorems 2 and 3 of fermanian2021, rederived.

A network is within D = ‖ψ‖·(discretization) of ξ(X) = ⟨α, S(X̄)⟩, ‖α‖ ≤ B, ‖S(X̄)‖ ≤ R. The class of all such ξ has the
Rademacher complexity BR/√n. D enters twice, in the risk and in the empirical risk, and R is 1/√(1 − (1+L)²/4) instead
of 2/(1 − L); ``docs/rnn_as_kernel.md`` derives every term. B and L must be chosen before the data are seen.
"""

import math

from sostenuto.checks import check_count, check_fraction, check_positive
from sostenuto.theory.bound import Assumption, Bound, make_bound
from sostenuto.theory.bounds import signature_norm_bound

LOGISTIC_SLOPE = 1 / math.log(2)
"""The Lipschitz constant of the logistic loss in bits, log₂(1 + e^{−u}), which is at least 1 where u ≤ 0."""


def binary_bound(
    empirical_risk: float,
    norm: float,
    count: int,
    delta: float,
    *,
    total_variation: float = 0.5,
    output_error: float = 0.0,
    lipschitz: float = LOGISTIC_SLOPE,
    loss_range: float | None = None,
) -> Bound:
    """Bound the probability of a wrong sign, with probability 1 − δ over ``count`` = n training sequences.

    R̂ + 2KD + 2KBR/√n + range·√(log(1/δ)/(2n)) for a loss φ(y·z) ≥ 1{y·z ≤ 0} with the Lipschitz constant K.
    ``loss_range`` is how much φ varies on [−BR, BR]: 2KBR unless given. Reference: fermanian2021, theorem 2.

    >>> bound = binary_bound(0.1, 1.0, 10000, 0.05)
    >>> round(bound.value, 4), sorted(bound.terms)
    (0.197, ['complexity', 'confidence', 'discretization', 'empirical_risk'])
    """
    radius = _checked(norm, count, delta, total_variation)
    spread = 2 * lipschitz * norm * radius if loss_range is None else loss_range
    return _sum(
        "probability of an error",
        empirical_risk=empirical_risk,
        discretization=2 * lipschitz * output_error,
        complexity=2 * lipschitz * norm * radius / math.sqrt(count),
        confidence=spread * math.sqrt(math.log(1 / delta) / (2 * count)),
    )


def multiclass_bound(
    empirical_risk: float,
    norm: float,
    classes: int,
    count: int,
    delta: float,
    *,
    total_variation: float = 0.5,
    output_error: float = 0.0,
) -> Bound:
    """Bound the probability of a wrong class from the cross-entropy in bits, whose value is at least 1 at an error.

    With ``norm`` B the root of the sum of the outputs' squared norms and q classes:
    R̂ + 2KD + 2√2·K·BR·√(q/n) + (log₂ q + √2·BR/ln 2)·√(log(1/δ)/(2n)), K = √2/ln 2 (vector contraction, Maurer 2016).

    >>> round(multiclass_bound(0.1, 1.0, 4, 100000, 0.05).value, 4)
    0.1749
    """
    check_count("classes", classes, least=2)
    radius = _checked(norm, count, delta, total_variation)
    slope = math.sqrt(2) * LOGISTIC_SLOPE
    spread = math.log2(classes) + math.sqrt(2) * norm * radius * LOGISTIC_SLOPE
    return _sum(
        "probability of an error",
        empirical_risk=empirical_risk,
        discretization=2 * slope * output_error,
        complexity=2 * math.sqrt(2) * slope * norm * radius * math.sqrt(classes / count),
        confidence=spread * math.sqrt(math.log(1 / delta) / (2 * count)),
    )


def sequence_bound(
    empirical_risk: float,
    norm: float,
    outputs: int,
    target_bound: float,
    count: int,
    delta: float,
    *,
    total_variation: float = 0.5,
    output_error: float = 0.0,
) -> Bound:
    """Bound the expected squared distance, its mean over the steps, of predicted sequences with ‖y_j‖ ≤ K_y.

    With ``norm`` B the largest of the p outputs' norms and G = √p·BR + K_y:
    R̂ + 2(D² + 2DG) + 4p·BR(BR + K_y)/√n + G²·√(log(1/δ)/(2n)). A single number per sequence is the case of one step.
    Reference: fermanian2021, theorem 3.

    >>> round(sequence_bound(0.1, 0.5, 1, 1.0, 10000, 0.05).value, 4)
    0.1908
    """
    check_count("outputs", outputs)
    check_positive("target_bound", target_bound, zero=True)
    radius = _checked(norm, count, delta, total_variation)
    reach = math.sqrt(outputs) * norm * radius + target_bound
    return _sum(
        "expected squared distance",
        empirical_risk=empirical_risk,
        discretization=2 * (output_error**2 + 2 * output_error * reach),
        complexity=4 * outputs * norm * radius * (norm * radius + target_bound) / math.sqrt(count),
        confidence=reach**2 * math.sqrt(math.log(1 / delta) / (2 * count)),
    )


def stratified(norm: float, delta: float) -> tuple[float, float]:
    """Round a norm that was seen after training up to a grid 2^{j/4}, and give the share of δ that this j gets.

    The shares 1/((|j| + 1)²(π²/3 − 1)) add up to 1 over all whole j: a union bound makes the theorems, which ask for B
    in advance, hold for all grid values at once.

    >>> stratified(4.0, 0.05)[0]
    4.0
    """
    j = math.ceil(4 * math.log2(max(norm, 1e-30)))
    return 2 ** (j / 4), delta / ((abs(j) + 1) ** 2 * (math.pi**2 / 3 - 1))


def _checked(norm: float, count: int, delta: float, total_variation: float) -> float:
    """Check the sizes and give R."""
    check_positive("norm", norm, zero=True)
    check_count("count", count)
    check_fraction("delta", delta)
    check_positive("delta", delta)
    return signature_norm_bound(total_variation).value


def _sum(quantity: str, **terms: float) -> Bound:
    finite = math.isfinite(sum(terms.values()))
    return make_bound(quantity, sum(terms.values()), terms, [] if finite else [Assumption("finite terms", False)])

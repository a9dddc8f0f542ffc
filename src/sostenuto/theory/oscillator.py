"""What is true of UnICORNN's oscillators: how far states go, how fast gradients grow, what a free unit propagates.

A unit with step h, weight w and stiffness α moves by z ← z − h·[tanh(A) + α y], y ← y + h z with A = w y + drive. Its
Jacobian depends on the curvature q = α + w·tanh′(A) alone, which lies between α and α + w. The statements here are
rusch2021's as corrected in ``docs/errata.md`` (rusch2021.1 to rusch2021.3); ``docs/unicornn.md`` proves them.

All functions take numbers or tensors that broadcast, one entry per unit, and answer in float64. Where a statement's
condition fails the entry is NaN, never a number that looks like a bound.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError

Values = Tensor | float
Answer = Float[Tensor, "..."]


def step_jacobian(step: Values, curvature: Values) -> Float[Tensor, "... 2 2"]:
    """Return ∂(y, z) after one step by (y, z) before it: [[1 − h²q, h], [−hq, 1]], of determinant 1.

    Reference: rusch2021, eq. (21) of the appendix.

    >>> step_jacobian(0.5, 2.0).tolist()
    [[0.5, 0.5], [-1.0, 1.0]]
    """
    h, q = _together(step, curvature)
    return torch.stack([1 - h**2 * q, h, -h * q, torch.ones_like(h)], dim=-1).unflatten(-1, (2, 2))


def oscillator_propagator(step: Values, stiffness: Values, lag: Values) -> Answer:
    """Return ∂y_n/∂z_k of a free unit (w = 0), ``lag`` = n − k: h·sin((n−k)θ)/sin θ with sin(θ/2) = h√α/2.

    It oscillates and neither grows nor fades; α = 0 gives h·(n−k). Needs h√α < 2. Reference: rusch2021, proposition
    3.2, as corrected in ``docs/errata.md`` (rusch2021.3).

    >>> oscillator_propagator(0.5, 0.0, 6).item(), round(oscillator_propagator(1.0, 1.0, 2).item(), 12)
    (3.0, 1.0)
    """
    h, alpha, count = _together(step, stiffness, lag)
    half = h * alpha.sqrt() / 2
    if not bool((half < 1).all()):
        raise InputError(f"not applicable: h√α < 2 fails ({2 * float(half.max()):.4g}); take a smaller step.")
    angle = 2 * torch.asin(half)
    turning = torch.where(angle > 0, angle, torch.ones_like(angle))
    return h * torch.where(angle > 0, torch.sin(count * turning) / torch.sin(turning), count)


def continuous_propagator(stiffness: Values, elapsed: Values) -> Answer:
    """Return ∂y(t)/∂z(s) of a free unit in continuous time, ``elapsed`` = t − s: sin(√α(t−s))/√α, or t−s at α = 0.

    >>> continuous_propagator(0.0, 3.0).item()
    3.0
    """
    alpha, passed = _together(stiffness, elapsed)
    frequency = torch.where(alpha > 0, alpha, torch.ones_like(alpha)).sqrt()
    return torch.where(alpha > 0, torch.sin(frequency * passed) / frequency, passed)


def velocity_bound(step: Values, stiffness: Values, count: Values) -> Answer:
    """Bound |z_n| after ``count`` = n steps from zero, for every w and every input: t_n/√(1 − h²α/4), t_n = nh.

    NaN where h√α < 2 fails. Reference: ``docs/errata.md``, rusch2021.2.

    >>> velocity_bound(0.1, 0.0, 30).item()
    3.0
    """
    h, alpha, n = _together(step, stiffness, count)
    return n * h / _known(1 - h**2 * alpha / 4).sqrt()


def position_bound(step: Values, stiffness: Values, count: Values) -> Answer:
    """Bound |y_n| after ``count`` = n steps from zero: the lesser of t_n/(√α·√(1 − h²α/4)) and h²n(n+1)/2.

    At α = 0 the second. NaN where h√α < 2 fails. Reference: ``docs/errata.md``, rusch2021.2.

    >>> position_bound(0.5, 0.0, 3).item()
    1.5
    """
    h, alpha, n = _together(step, stiffness, count)
    early = h**2 * n * (n + 1) / 2
    frequency = torch.where(alpha > 0, alpha, torch.ones_like(alpha)).sqrt()
    late = velocity_bound(h, alpha, n) / frequency
    return torch.where(alpha > 0, torch.minimum(late, early), early)


@dataclass(frozen=True)
class WeightedNorm:
    """The norm (scale·y)² + (z − shear·y)² on the states of each unit; NaN where it is none."""

    scale: Answer
    shear: Answer


def always_norm(weight: Values, stiffness: Values) -> WeightedNorm:
    """Return the norm q̄y² + z² with q̄ = max(α, |α + w|); NaN at q̄ = 0."""
    scale = _known(_largest_curvature(weight, stiffness)).sqrt()
    return WeightedNorm(scale, torch.zeros_like(scale))


def always_growth(step: Values, weight: Values, stiffness: Values) -> Answer:
    """Bound the logarithm of a step's growth in `always_norm`, for every input: 2·asinh(h√q̄/2).

    Steps of unequal size may be added up, as the norm does not depend on them. NaN at q̄ = 0. Reference:
    ``docs/errata.md``, rusch2021.1 (i).
    """
    return 2 * torch.asinh(_real(step) * _known(_largest_curvature(weight, stiffness)).sqrt() / 2)


def mean_norm(step: Values, weight: Values, stiffness: Values) -> WeightedNorm:
    """Return the norm q₀y² − hq₀yz + z² with q₀ = α + w/2; NaN where 0 < h²q₀ < 4 fails."""
    h, mean = _together(step, _mean_curvature(weight, stiffness))
    scale = _known(mean * (1 - h**2 * mean / 4)).sqrt()
    return WeightedNorm(scale, torch.where(scale.isnan(), scale, h * mean / 2))


def mean_growth(step: Values, weight: Values, stiffness: Values) -> Answer:
    """Bound the logarithm of a step's growth in `mean_norm`, for every input: asinh(r/2), r = h|w|/(2·scale).

    scale = √(q₀(1 − h²q₀/4)). NaN where 0 < h²q₀ < 4 fails. Reference: ``docs/errata.md``, rusch2021.1 (ii).
    """
    scale = mean_norm(step, weight, stiffness).scale
    return torch.asinh(_real(step) * _real(weight).abs() / (4 * scale))


def curvature_growth(step: Values, weight: Values, stiffness: Values, curvature: Values) -> Answer:
    """Return exactly the logarithm of the growth in `mean_norm` of the one step whose curvature is q.

    It is asinh(r/2) with r = h|q − q₀|/√(q₀(1 − h²q₀/4)). NaN where 0 < h²q₀ < 4 fails. Reference: ``docs/errata.md``,
    rusch2021.1 (iii).
    """
    scale = mean_norm(step, weight, stiffness).scale
    away = (_real(curvature) - _mean_curvature(weight, stiffness)).abs()
    return torch.asinh(_real(step) * away / (2 * scale))


def saddle_growth(step: Values, weight: Values, stiffness: Values) -> Answer:
    """Return the logarithm of the growth per step at rest without drive: 2·asinh(h√(−α−w)/2) if w < −α, else 0.

    >>> saddle_growth(0.1, 1.0, 1.0).item(), round(saddle_growth(0.1, -2.0, 1.0).item(), 5)
    (0.0, 0.09996)
    """
    fall = (-_real(stiffness) - _real(weight)).clamp(min=0)
    return 2 * torch.asinh(_real(step) * fall.sqrt() / 2)


def resonance_growth(step: Values, weight: Values, stiffness: Values, saturation: float = 4.0) -> Answer:
    """Return the logarithm of the growth per step under the worst of some drives that switch to and fro.

    A drive holds the argument of tanh at 0 for p steps (q = α + w) and at ``saturation`` for p′ steps (q near α), again
    and again: Hill's equation, in resonance where that goes with the oscillation. Tried are p, p′ = 1 … 24 and a
    quarter of an oscillation. The growth is acosh(|trace|/2)/(p + p′) of the product over one period, 0 where that is
    not hyperbolic. Other drives can do more: this is a lower bound on what inputs can do, not an upper one. NaN where
    0 < h²q < 4 fails for either q.
    """
    slope = 1 / torch.cosh(_real(saturation)) ** 2
    h, w, alpha = _together(step, weight, stiffness)
    powers, lasting = [], []
    for q in (alpha + w, alpha + slope * w):
        angle = 2 * torch.asin(h * _known(q).sqrt() / 2)
        quarter = (torch.pi / (2 * angle)).round().clamp(min=1)
        few = torch.arange(1, 25, dtype=torch.float64).reshape(-1, *[1] * h.ndim).expand(-1, *h.shape)
        counts = torch.cat([few, quarter[None]])
        powers.append(_free_power(h, q, angle, counts))
        lasting.append(counts)
    trace = torch.einsum("p...ij,r...ji->pr...", *powers).abs() / 2
    rate = torch.acosh(trace.clamp(min=1)) / (lasting[0][:, None] + lasting[1][None])
    # Rounding alone lifts the trace of a rotation above 2 by some 1e-15.
    return torch.where(trace <= 1 + 1e-9, torch.zeros_like(rate), rate).amax((0, 1))


class JacobianProduct:
    """The product of the Jacobians of successive steps, kept in range by a logarithmic scale of its own.

    >>> product = JacobianProduct((1,))
    >>> for _ in range(10000):
    ...     product.multiply(torch.tensor([1.0]), torch.tensor([-1.0]))
    >>> round(product.log_norm(always_norm(-2.0, 1.0)).item() / (2 * 10000 * torch.tensor(0.5).asinh().item()), 3)
    1.0
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        zero, one = torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.float64)
        self._columns = (one, zero, zero, one)
        self._log_scale = zero

    def multiply(self, step: Values, curvature: Values) -> None:
        """Multiply the Jacobian of one more step from the left; a step of 0 changes nothing."""
        h, q = _together(step, curvature)
        yy, yz, zy, zz = self._columns
        zy, zz = zy - h * q * yy, zz - h * q * yz
        yy, yz = yy + h * zy, yz + h * zz
        size = torch.stack([yy, yz, zy, zz]).abs().amax(0)
        self._columns = (yy / size, yz / size, zy / size, zz / size)
        self._log_scale = self._log_scale + size.log()

    def log_norm(self, norm: WeightedNorm) -> Answer:
        """Return the logarithm of the operator norm in ``norm``; NaN where that is none.

        The largest singular value of [[a, b], [c, d]] is taken as half of |(a+d, b−c)| + |(a−d, b+c)|, which keeps its
        digits also when the product is nearly a rotation.
        """
        yy, yz, zy, zz = self._columns
        a, b = yy + norm.shear * yz, norm.scale * yz
        d = zz - norm.shear * yz
        c = (zy - norm.shear * yy + norm.shear * d) / norm.scale
        return self._log_scale + torch.log((torch.hypot(a + d, b - c) + torch.hypot(a - d, b + c)) / 2)


def _free_power(step: Tensor, curvature: Tensor, angle: Tensor, count: Tensor) -> Tensor:
    """Raise a step's Jacobian to a power: J^p = (sin pθ · J − sin (p−1)θ · I)/sin θ, by Cayley and Hamilton."""
    identity = torch.eye(2, dtype=torch.float64)
    first = (torch.sin(count * angle) / torch.sin(angle))[..., None, None]
    second = (torch.sin((count - 1) * angle) / torch.sin(angle))[..., None, None]
    return first * step_jacobian(step, curvature) - second * identity


def _largest_curvature(weight: Values, stiffness: Values) -> Tensor:
    w, alpha = _together(weight, stiffness)
    return torch.maximum(alpha, (alpha + w).abs())


def _mean_curvature(weight: Values, stiffness: Values) -> Tensor:
    return _real(stiffness) + _real(weight) / 2


def _known(value: Tensor) -> Tensor:
    """Keep what is above 0; the rest is NaN."""
    return torch.where(value > 0, value, torch.full_like(value, torch.nan))


def _real(value: Values) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


def _together(*values: Values) -> list[Tensor]:
    return list(torch.broadcast_tensors(*(_real(value) for value in values)))

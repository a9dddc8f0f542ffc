"""How far a stable linear system grows before it decays: what eigenvalues do not tell of non-normal matrices."""

import heapq
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError, check_count, require
from sostenuto.results import Record

SHARPNESS = 1.01
"""The search for the largest norm ends when its bound is within this factor."""


@dataclass(frozen=True)
class TransientGrowth(Record):
    """The largest ‖e^{At}‖₂ over t ≥ 0 (or ‖Fᵏ‖₂ over k ≥ 0), from both sides.

    ``peak`` was found at ``peak_time``; nothing exceeds ``peak_bound``, up to rounding. ``kreiss`` is a lower bound on
    Kreiss' constant sup Re z‖(zI − A)⁻¹‖₂ (sup (|z| − 1)‖(zI − F)⁻¹‖₂), which is itself at most the largest norm; the
    largest norm is at most e·n times the constant. ``abscissa`` is the largest real part (or modulus) of an eigenvalue:
    what happens in the end. ``initial`` is the slope of the norm at t = 0, the numerical abscissa λ_max((A + Aᵀ)/2) (or
    ‖F‖₂): what happens at first.
    """

    discrete: bool
    abscissa: float
    initial: float
    peak: float
    peak_time: float
    peak_bound: float
    kreiss: float


def transient_growth(
    matrix: Float[Tensor, "n n"], *, discrete: bool = False, evaluations: int = 600
) -> TransientGrowth:
    """Find the largest ‖e^{At}‖₂, t ≥ 0, of a Hurwitz matrix, or ‖Fᵏ‖₂ of a Schur one, with a bound on what was missed.

    Between two times ‖e^{A(t+s)}‖ ≤ ‖e^{At}‖e^{ωs} with ω = max(λ_max((A + Aᵀ)/2), 0), and after the first T with
    ‖e^{AT}‖ ≤ 1 nothing new happens: intervals that could still hold a larger norm are halved until none can by more
    than one percent. Reference: wang2024, lemma A.8, as corrected in ``docs/errata.md`` (wang2024.1); Trefethen and
    Embree, *Spectra and Pseudospectra*, chapter 14.

    Args:
        matrix: A, or F for a discrete map.
        discrete: whether powers are meant instead of the exponential.
        evaluations: norms computed at most.

    >>> found = transient_growth(torch.tensor([[-1.0, 10.0], [0.0, -1.0]]))
    >>> round(found.peak, 1), found.peak <= found.peak_bound <= 1.011 * found.peak
    (3.7, True)
    """
    check_count("evaluations", evaluations, least=10)
    values = matrix.detach().double().cpu()
    square = values.ndim == 2 and values.shape[0] == values.shape[1] and len(values) > 0
    require(square, "expected a square matrix", f"got shape {tuple(values.shape)}")
    require(bool(values.isfinite().all()), "expected finite numbers in the matrix", "got NaN or infinity")
    spectrum = torch.linalg.eigvals(values)
    abscissa = float(spectrum.abs().max() if discrete else spectrum.real.max())
    limit, what = (1.0, "spectral radius < 1") if discrete else (0.0, "spectral abscissa < 0")
    if abscissa >= limit:
        raise InputError(f"not applicable: {what} fails ({abscissa:.6g}); norms grow without bound or stay.")
    initial = _norm(values) if discrete else float(torch.linalg.eigvalsh((values + values.T) / 2)[-1])
    peak, when, bound = _largest(values, initial, discrete, evaluations)
    return TransientGrowth(
        discrete, abscissa, initial, peak, when, bound, max(1.0, _kreiss(values, spectrum, discrete))
    )


def norms_over_time(
    matrix: Float[Tensor, "n n"], times: Float[Tensor, " time"], *, discrete: bool = False
) -> Float[Tensor, " time"]:
    """Return ‖e^{At}‖₂ at every time, or ‖Fᵏ‖₂ at every whole one; infinity where it leaves the range of float64.

    >>> norms_over_time(-torch.eye(2), torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.3679], dtype=torch.float64)
    """
    values = matrix.detach().double().cpu()
    if discrete:
        powers = [torch.linalg.matrix_power(values, int(k)) for k in times]
    else:
        powers = [torch.matrix_exp(float(t) * values) for t in times]
    return torch.tensor(
        [_norm(power) if bool(power.isfinite().all()) else torch.inf for power in powers], dtype=torch.float64
    )


def _largest(matrix: Tensor, initial: float, discrete: bool, evaluations: int) -> tuple[float, float, float]:
    """Halve the interval that could hold the largest norm until it cannot by much: peak, its time, and the bound."""
    grow = np.log(max(initial, 1.0)) if discrete else max(initial, 0.0)
    flows = _Flows(matrix, discrete)
    size = 1.0 if discrete else 1.0 / max(_norm(matrix), 1e-300)
    peak, when, begin, state = 1.0, 0.0, 0.0, torch.eye(len(matrix), dtype=torch.float64)
    heap, entry, length = [], 0, size
    while entry < 200:
        norm = _norm(state)
        peak, when = (norm, begin) if norm > peak else (peak, when)
        if begin > 0 and norm <= 1:
            break
        reach = np.log(norm) + grow * (length - 1 if discrete else length)
        heapq.heappush(heap, (-reach, entry, begin, length, state))
        state, entry = state @ flows.over(length), entry + 1
        begin, length = begin + length, 2 * length if begin > 0 else length
        if not bool(state.isfinite().all()):
            raise InputError("not applicable: ‖e^{At}‖ within the range of float64 fails (overflow).")
    for entry_next in range(entry, evaluations):
        bound, _, begin, length, state = heap[0]
        if -bound <= np.log(SHARPNESS * peak) or (discrete and length <= 1):
            break
        heapq.heappop(heap)
        half = float(length // 2) if discrete else length / 2
        later = state @ flows.over(half)
        for start, span, flow in ((begin, half, state), (begin + half, length - half, later)):
            norm = max(_norm(flow), 1e-300)
            peak, when = (norm, start) if norm > peak else (peak, when)
            reach = np.log(norm) + grow * (span - 1 if discrete else span)
            heapq.heappush(heap, (-reach, 2 * entry_next + (start > begin) + 1000, start, span, flow))
    return peak, when, max(peak, float(np.exp(-heap[0][0])) if heap else peak)


class _Flows:
    """e^{As} or Fˢ, computed once for each s."""

    def __init__(self, matrix: Tensor, discrete: bool) -> None:
        self.matrix, self.discrete = matrix, discrete
        self.known: dict[float, Tensor] = {}

    def over(self, span: float) -> Tensor:
        if span not in self.known:
            self.known[span] = (
                torch.linalg.matrix_power(self.matrix, int(span))
                if self.discrete
                else torch.matrix_exp(span * self.matrix)
            )
        return self.known[span]


def _kreiss(matrix: Tensor, spectrum: Tensor, discrete: bool) -> float:
    """Sample Kreiss' quotient beside the eigenvalues nearest to the border; each sample is a lower bound."""
    scale = _norm(matrix)
    distance = 1 - spectrum.abs() if discrete else -spectrum.real
    near = spectrum[distance.argsort()[:8]]
    offsets = torch.logspace(-4, 1, 24, dtype=torch.float64) * (1.0 if discrete else max(scale, 1e-300))
    if discrete:
        unit = torch.polar(torch.ones_like(near.abs()), near.angle())
        points, weights = (unit[:, None] * (1 + offsets)).flatten(), offsets.repeat(len(near))
    else:
        points = (offsets + 1j * near.imag[:, None]).flatten()
        weights = offsets.repeat(len(near))
    eye = torch.eye(len(matrix), dtype=torch.complex128)
    least = torch.linalg.svdvals(points[:, None, None] * eye - matrix).amin(-1)
    return float((weights / least).max())


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))

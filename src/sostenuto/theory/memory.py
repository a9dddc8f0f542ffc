"""Memory along given trajectories, under slow inputs, and of an answer: what follows from the layers' certificates.

`layer.memory_certificate` speaks of every input. Along data the curvatures are known and far more can be proved. Proofs
are in ``docs/memory.md``; numbers are float64, with a margin of 10⁻⁹ that covers its rounding.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, linalg

from sostenuto.checks import check_count, check_positive, require
from sostenuto.nn.certificates import Window, changed
from sostenuto.nn.unicornn import UnICORNN

_MARGIN = 1e-9
_SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.0)


@dataclass(frozen=True, eq=False)
class TrajectoryMemory:
    """What is left of a difference along given trajectories: at least e^{−Σ rate} of it in every unit.

    The norm of step n is that which the map at the curvature ``reference`` p_n keeps, √(py² − hpyz + z²); the last
    reference belongs to the end. ``radius`` is how far, in the first norm, the other state may start.
    """

    rates: Float[Tensor, "batch time unit"]
    reference: Float[Tensor, "batch time_and_end unit"]
    radius: float

    @property
    def half_lives(self) -> Float[Tensor, "batch unit"]:
        """Steps, from the first, that at least half is left for; at most the length of the data."""
        return (self.rates.cumsum(1) <= math.log(2) * (1 - _MARGIN)).sum(1).double()

    def share(self, lag: int, start: int = 0) -> Float[Tensor, "batch unit"]:
        """Return the least share that is left ``lag`` steps after step ``start``."""
        check_count("lag", lag, least=0)
        end = start + lag
        require(end <= self.rates.shape[1], f"expected start + lag of at most {self.rates.shape[1]}", f"got {end}")
        return torch.exp(-self.rates[:, start:end].sum(1)) * (1 - _MARGIN)


def memory_along(
    layer: UnICORNN, input: Float[Tensor, "batch time channel"], *, radius: float = 0.0
) -> TrajectoryMemory:
    """Bound what the lowest layer keeps of a difference while it reads ``input`` from rest.

    The step with pre-activation A = wy + Vu + b has curvature q = α + w·s. Of two states that start at most ``radius``
    apart the secant slope s lies between 1/cosh²(|A| + d) and 1/cosh²(max(|A| − d, 0)), d = |w|·|Δy|, and |Δy| is at
    most the radius times what differences have grown by so far. In the norm of a reference p a step costs at most
    asinh(h|q − p|/(2√(p(1 − h²p/4)))), and going from p to p′ the logarithm in `slow_input_share`. References tried are
    running means of the trajectory's curvatures, from q_n itself to the middle α + w/2; for each unit the best one is
    kept. With ``radius`` 0 it is about states beside the trajectory, to first order.

    Args:
        layer: a UnICORNN, of which the first layer is followed forwards.
        input: sequences, the batch first whatever the layer's layout.
        radius: the largest difference at the start.

    Returns:
        The bounds; rates are infinite where 0 < h²p < 4 fails or the ball grows beyond bounds.

    >>> found = memory_along(UnICORNN(1, 4, step_size=0.5), torch.zeros(2, 30, 1), radius=0.01)
    >>> found.rates.shape, bool((found.share(30) > 0.9).all())
    (torch.Size([2, 30, 4]), True)
    """
    check_positive("radius", radius, zero=True)
    require(isinstance(layer, UnICORNN), "expected a UnICORNN", f"got {type(layer).__name__}")
    still = copy.deepcopy(layer).double()
    with torch.no_grad():
        step, weight, alpha = still.effective_step(), still.weight("weight_hh", 0, False), still.stiffness
        size = _arguments(still, input.double(), step, weight).abs()
        curvature = alpha + weight * torch.cosh(size) ** -2
        middle = (alpha + weight / 2).expand_as(curvature[:, 0])
        references = torch.stack([_running_mean(curvature, middle, share) for share in _SHARES])
        before, after = references[:, :, :-1], references[:, :, 1:]
        scale = torch.sqrt(before * (1 - step**2 * before / 4))
        change = torch.stack([(after / before).log(), ((4 - step**2 * after) / (4 - step**2 * before)).log()]) / 2
        reach, rates = torch.full_like(references[:, :, 0], radius), []
        for n in range(curvature.shape[1]):
            around = weight.abs() * reach / scale[:, :, n]
            slopes = torch.cosh(size[:, n] + around) ** -2, torch.cosh((size[:, n] - around).clamp(min=0)) ** -2
            away = torch.stack([(alpha + weight * slope - before[:, :, n]).abs() for slope in slopes]).amax(0)
            sheared = torch.asinh(step * away / (2 * scale[:, :, n])) * (1 + _MARGIN) + 1e-15
            rates.append((sheared - change[:, :, :, n].amin(0)).nan_to_num(nan=math.inf))
            reach = reach * torch.exp(sheared + change[:, :, :, n].amax(0))
        per_step = torch.stack(rates, 2)
        best = per_step.sum(2, keepdim=True).argmin(0, keepdim=True)
        return TrajectoryMemory(
            per_step.gather(0, best.expand(1, *per_step.shape[1:]))[0],
            references.gather(0, best.expand(1, *references.shape[1:]))[0],
            radius,
        )


def _arguments(layer: UnICORNN, input: Tensor, step: Tensor, weight: Tensor) -> Float[Tensor, "batch time unit"]:
    """Return wy + Vu + b of every step from rest."""
    bias = layer.weight("bias_ih", 0, False) if layer.bias else 0.0
    drive = input @ layer.weight("weight_ih", 0, False).mT + bias
    y = drive.new_zeros(len(drive), len(step))
    z, arguments = torch.zeros_like(y), []
    for n in range(drive.shape[1]):
        arguments.append(weight * y + drive[:, n])
        z = z - step * (torch.tanh(arguments[-1]) + layer.stiffness * y)
        y = y + step * z
    return torch.stack(arguments, 1)


def _running_mean(curvature: Tensor, middle: Tensor, share: float) -> Float[Tensor, "batch time_and_end unit"]:
    """Follow the curvatures with a running mean; with a share of 0 it stays at the middle."""
    means = [middle if share == 0 else curvature[:, 0]]
    for n in range(curvature.shape[1]):
        means.append(means[-1] + share * (curvature[:, min(n + 1, curvature.shape[1] - 1)] - means[-1]))
    return torch.stack(means, 1)


def slow_input_share(
    step: Tensor | float, weight: Tensor | float, stiffness: float, swings: int
) -> Float[Tensor, "..."]:
    """Bound from below what inputs without resonance leave of a difference: those that let curvatures swing C times.

    While q stands still the map keeps N_q = qy² − hqyz + z². From q to q′ the norm of what is there changes by factors
    between q′/q and (4 − h²q′)/(4 − h²q), so a fall costs √(q′/q) and a rise √((4 − h²q′)/(4 − h²q)), however many
    steps either takes. C swings between α and α + w, back and forth, leave at least
    [√(q₋/q₊)·√((4 − h²q₊)/(4 − h²q₋))]^C in N_q, for any number of steps: no input that is slow forgets anything else.

    NaN where 0 < h²q < 4 fails at either end.

    >>> round(float(slow_input_share(0.1, 0.5, 1.0, 3)), 3)
    0.543
    """
    check_count("swings", swings, least=0)
    h, w = torch.as_tensor(step, dtype=torch.float64), torch.as_tensor(weight, dtype=torch.float64)
    low, high = stiffness + w.clamp(max=0), stiffness + w.clamp(min=0)
    known = (low > 0) & (h**2 * high < 4)
    squared = low / high * (4 - h**2 * high) / (4 - h**2 * low)
    return torch.where(known, squared.clamp(min=0).sqrt() ** swings, torch.nan) * (1 - _MARGIN)


def answer_window(
    model: Any, epsilon: float, *, drive: float | None = None, spans: float | tuple[float, float] | None = None
) -> Window:
    """Return the window that a model's answers depend on: older input moves none by more than ``epsilon``.

    Answers are a classifier's probabilities; of another model, the numbers that its head gives.

    A probability of a softmax moves by at most √2/4·|Δscores|₂: its derivative is p_i(e_i − p), and |p_i(e_i − p)·δ| ≤
    p_i(1 − p_i)·(max δ − min δ) ≤ ¼·√2·|δ|₂. Scores are C h_T + d, so `MemoryCertificate.window` is asked with
    √2/4·‖C‖₂; other numbers move by at most ‖C‖₂. A stream may drop what is older, start from the zero state, and
    answer the same within ``epsilon``.

    Args:
        model: one of `models.prediction`, with ``layer`` and a linear ``head`` that reads the last state.
        epsilon: the change of an answer.
        drive: see `memory_certificate`; activations without a bound need it.
        spans: see `memory_certificate`; the answer then has seconds too.

    >>> from sostenuto.models.prediction import SequenceClassifier
    >>> from sostenuto.nn import IndRNN
    >>> model = SequenceClassifier(IndRNN(1, 4, batch_first=True, activation="tanh"), 2)
    >>> with torch.no_grad():
    ...     _ = model.layer.weight_hh_l0.fill_(0.5)
    >>> answer_window(model, 1e-3).steps < 15
    True
    """
    readout = getattr(model, "readout", "last")
    require(readout == "last", "expected a read-out of the last state", f"got {readout!r}", "older input stays in it")
    check_positive("epsilon", epsilon)
    if why := changed(model):
        return Window(epsilon, None, None, why)
    weight = model.head.weight.detach().double()
    if not bool(weight.isfinite().all()):
        return Window(epsilon, None, None, "the weight of the head is not finite")
    scale = (math.sqrt(2) / 4 if model.softmax else 1.0) * float(linalg.matrix_norm(weight, 2)) * (1 + _MARGIN)
    return model.layer.memory_certificate(spans=spans, drive=drive).window(epsilon, readout=scale)

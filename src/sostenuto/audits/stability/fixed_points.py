"""Points of rest: the states a recurrence keeps while its input is constant, and whether it returns to them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.audits.base import AuditResult
from sostenuto.audits.stability.recurrence_trace import Recurrence, RecurrenceTrace, trace_recurrence
from sostenuto.audits.stability.state_map import StateMap
from sostenuto.audits.stability.state_samples import sample_states
from sostenuto.checks import check_count, check_positive, require
from sostenuto.report.numbers import counted, number
from sostenuto.results import Numbers, Record
from sostenuto.training.processes import environment

WIDTHS = (0.0, 0.3, 1.0, 3.0)
"""Least spreads of drawn starts, in turn."""
MOST_POINTS = 50
"""Points kept at most; a continuum of them is sampled, not listed."""


@dataclass(frozen=True)
class FixedPoint(Record):
    """One point of rest: the state, |f(h) − h|₂ there, the Jacobian's eigenvalues and how many starts led to it."""

    state: Numbers
    residual: float
    radius: float
    eigenvalues_real: Numbers
    eigenvalues_imaginary: Numbers
    starts: int

    @property
    def is_stable(self) -> bool:
        """Say whether nearby states return: all eigenvalues of the Jacobian inside the unit circle."""
        return self.radius < 1


@dataclass(frozen=True, kw_only=True)
class FixedPoints(AuditResult):
    """Points of rest under one constant input, those reached from most starts first.

    ``tried`` starts were followed by Newton's method and ``converged`` of them ended at a point of rest. There may be
    more points than were found.
    """

    input: Numbers
    points: tuple[FixedPoint, ...]
    tried: int
    converged: int
    tolerance: float

    @property
    def stable(self) -> int:
        """Count the points that nearby states return to."""
        return sum(point.is_stable for point in self.points)

    def summary(self) -> str:
        """Say how many points of rest were found and how many of them attract."""
        tried = counted(self.tried, "start")
        if not self.points:
            return f"Under a constant input no point of rest was found from {tried} by Newton's method."
        verb = "was" if len(self.points) == 1 else "were"
        said = f"Under a constant input {counted(len(self.points), 'point')} of rest {verb} found"
        radii = [point.radius for point in self.points]
        spread = number(radii[0]) if len(radii) == 1 else f"{number(min(radii))} to {number(max(radii))}"
        return (
            f"{said} from {tried} by Newton's method, {self.stable} of them attracting; the spectral radius of the "
            f"Jacobian there is {spread}."
        )

    def plot(self, ax: Any) -> None:
        """Draw the eigenvalues of the Jacobian at every point, and the unit circle."""
        angle = np.linspace(0, 2 * np.pi, 200)
        ax.plot(np.cos(angle), np.sin(angle), color="gray", linestyle="--")
        for place, point in enumerate(self.points[:10]):
            ax.plot(point.eigenvalues_real, point.eigenvalues_imaginary, ".", label=f"point {place + 1}")
        ax.set_xlabel("real part")
        ax.set_ylabel("imaginary part")
        ax.set_aspect("equal", adjustable="datalim")
        if self.points:
            ax.legend()


def fixed_points(
    model: Recurrence,
    X: Any = None,  # noqa: N803
    *,
    input: Any = None,
    tries: int = 64,
    tolerance: float = 1e-9,
    start: Any = None,
    steps: int | None = None,
    lengths: Any = None,
    seed: int = 0,
    batch_size: int = 32,
) -> FixedPoints:
    """Find states with f(h, x) = h for a constant input x, and the spectrum of ∂f/∂h at each.

    Newton's method, with the least-squares step (BᵀB + μI)δ = −Bᵀr for r = f(h) − h, B = ∂f/∂h − I and μ = |r|² while
    that is small, starts from the zero state, from states visited along the data and from normal draws around them: of
    twice their spread, and of 0.3, 1 and 3, because data may leave a state where it began. A point counts if
    |r|₂ ≤ tolerance · (1 + |h|₂); points closer than 10⁻⁵(1 + |h|₂) are one. Reference: erichson2021, section 3 (local
    stability); Sussillo and Barak 2013.

    Args:
        model: a recurrent layer, a model that calls one once, or a function f(h, x) → h of one state and one input.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``; None for a
            function without input.
        input: the constant input ``(channel,)`` that reaches the layer; the mean over the data if left out.
        tries: starts of Newton's method.
        tolerance: largest residual that counts as rest.
        start: first state of the data, for a function ``(state,)`` or ``(n, state)``.
        steps: how many steps a function without input takes to collect states.
        lengths: true length of each row of a padded array ``X``.
        seed: of the starts, and for a model that draws random numbers.
        batch_size: starts followed at once.

    >>> found = fixed_points(lambda h, x: torch.tanh(2 * h + x), np.zeros((1, 20, 1)), start=[0.1])
    >>> sorted((round(p.state[0], 3), p.is_stable) for p in found.points)
    [(-0.958, True), (0.0, False), (0.958, True)]
    """
    check_count("tries", tries, least=2)
    check_count("batch_size", batch_size)
    check_positive("tolerance", tolerance)
    trace = trace_recurrence(model, X, lengths=lengths, start=start, steps=steps, seed=seed)
    held = _held_input(trace, input)
    first = _first_states(trace, tries, seed)
    ends, rests = [], []
    for part in first.split(batch_size):
        end, rest = _newton(trace.map, part, held)
        ends.append(end)
        rests.append(rest)
    states, residuals = torch.cat(ends), torch.cat(rests)
    converged = residuals <= tolerance * (1 + states.norm(dim=-1))
    groups = _distinct(states[converged], residuals[converged])
    points = [_describe(trace.map, state, held, residual, hits) for state, residual, hits in groups[:MOST_POINTS]]
    return FixedPoints(
        model=trace.model,
        method="Damped Newton iterations on f(h, x) = h in float64, from zero, states along the data and draws.",
        seed=seed,
        settings={"batch_size": batch_size},
        checksum=trace.checksum,
        environment=environment(trace.device),
        input=tuple(held.tolist()),
        points=tuple(points),
        tried=len(first),
        converged=int(converged.sum()),
        tolerance=tolerance,
    )


def _held_input(trace: RecurrenceTrace, given: Any) -> Float[Tensor, " channel"]:
    if given is None:
        return trace.mean_input
    held = torch.as_tensor(np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given)).double()
    shape = (trace.map.input_size,)
    require(tuple(held.shape) == shape, f"expected an input of shape {shape}", f"got {tuple(held.shape)}")
    return held


def _first_states(trace: RecurrenceTrace, tries: int, seed: int) -> Float[Tensor, "start state"]:
    seen = sample_states(trace, max(1, tries // 2)).after.unique(dim=0)
    spread = seen.std(0, correction=0).clamp_min(0.1)
    generator = torch.Generator().manual_seed(seed)
    size = trace.map.state_size
    drawn = torch.randn(max(tries - 1 - len(seen), 0), size, generator=generator, dtype=torch.float64)
    zero = torch.zeros(1, size, dtype=torch.float64)
    widths = torch.tensor(WIDTHS, dtype=torch.float64)[torch.arange(len(drawn)) % len(WIDTHS), None]
    return torch.cat([zero, seen, seen.mean(0) + torch.maximum(2 * spread, widths) * drawn])[:tries]


def _newton(
    map: StateMap,
    h: Float[Tensor, "start state"],
    x: Float[Tensor, " channel"],
    most: int = 60,
) -> tuple[Tensor, Tensor]:
    """Iterate; a step that does not lower |r| is shortened by a larger μ. Return states and residuals."""
    inputs = x.expand(len(h), -1)
    eye = torch.eye(h.shape[1], dtype=torch.float64)
    extra = torch.zeros(len(h), dtype=torch.float64)
    with torch.no_grad():
        rest = map.advance(h, inputs) - h
        for _ in range(most):
            size = rest.norm(dim=-1)
            if float(size.max()) < 1e-14:
                break
            bent = map.jacobian(h, inputs) - eye
            damping = (size.square().clamp(max=1.0) * 1e-3 + extra).clamp_min(1e-18)
            normal = bent.mT @ bent + damping[:, None, None] * eye
            change = -torch.linalg.solve(normal, (bent.mT @ rest[..., None]))[..., 0]
            moved = h + change
            after = map.advance(moved, inputs) - moved
            better = after.norm(dim=-1) < size
            h, rest = torch.where(better[:, None], moved, h), torch.where(better[:, None], after, rest)
            extra = torch.where(better, extra / 10, (extra * 10).clamp_min(1e-4))
            extra = torch.where(extra < 1e-12, 0.0, extra)
    size = rest.norm(dim=-1)
    return h, torch.where(size.isfinite(), size, torch.inf)


def _distinct(states: Tensor, residuals: Tensor) -> list[tuple[Tensor, float, int]]:
    """Merge states that are one point; the one with the least residual stands for it, and most frequent come first."""
    groups: list[list[Any]] = []
    for index in residuals.argsort(stable=True).tolist():
        state = states[index]
        near = next((g for g in groups if float((g[0] - state).norm()) < 1e-5 * (1 + float(state.norm()))), None)
        if near is None:
            groups.append([state, float(residuals[index]), 1])
        else:
            near[2] += 1
    return [(state, residual, hits) for state, residual, hits in sorted(groups, key=lambda group: -group[2])]


def _describe(map: StateMap, state: Tensor, x: Tensor, residual: float, hits: int) -> FixedPoint:
    values = torch.linalg.eigvals(map.jacobian(state[None], x[None])[0])
    order = values.abs().argsort(descending=True)
    return FixedPoint(
        state=tuple(state.tolist()),
        residual=residual,
        radius=float(values.abs().max()),
        eigenvalues_real=tuple(values[order].real.tolist()),
        eigenvalues_imaginary=tuple(values[order].imag.tolist()),
        starts=hits,
    )

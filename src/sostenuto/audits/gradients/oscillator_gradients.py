"""How much the gradient of a UnICORNN can grow from step to step, beside how much it did."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from sostenuto.audits.applicability import factor, not_applicable, thinned
from sostenuto.audits.base import AuditResult
from sostenuto.audits.oscillators import Cell, OscillatorTrace, Reading, Trajectory, cells, trace_oscillators
from sostenuto.checks import check_count, require
from sostenuto.report.numbers import counted
from sostenuto.results import Numbers, Record
from sostenuto.theory.oscillator import (
    JacobianProduct,
    always_growth,
    always_norm,
    curvature_growth,
    mean_growth,
    mean_norm,
)
from sostenuto.training.processes import environment

ROUNDING = 1e-9
"""What float64 may add to a logarithm over thousands of steps."""

NAMES = ("every input", "every input, around the mean stiffness", "these trajectories")
STATEMENTS = (
    "exp(2·Σ asinh(h√q̄/2)), q̄ = max(α, |α+w|), in the norm q̄y² + z²",
    "exp((n−k)·asinh(r/2)), r = h|w|/(2√(q₀(1−h²q₀/4))), q₀ = α + w/2, in the norm q₀y² − hq₀yz + z²",
    "exp(Σ asinh(r_n/2)), r_n = h|q_n−q₀|/√(q₀(1−h²q₀/4)), in the norm q₀y² − hq₀yz + z²",
)


@dataclass(frozen=True)
class GrowthBound(Record):
    """One bound on ‖∂X_n/∂X_k‖ and the measured norm of the same kind, as natural logarithms at each lag n − k.

    Both curves are the largest over sequences and over the ``covered`` units; ``slack`` is the least by which a unit's
    bound exceeds its own norm. ``condition`` is empty where all units are covered, and else says what fails.
    """

    name: str
    statement: str
    covered: int
    condition: str
    measured: Numbers = ()
    bound: Numbers = ()
    slack: float | None = None

    @property
    def holds(self) -> bool:
        """Say whether no norm exceeded its bound, up to rounding; also true where nothing is covered."""
        return self.slack is None or self.slack >= -ROUNDING


@dataclass(frozen=True)
class LayerGrowth(Record):
    """The three bounds of one layer and direction: for every input (two), and along the trajectories seen."""

    name: str
    units: int
    bounds: tuple[GrowthBound, ...]


@dataclass(frozen=True, kw_only=True)
class OscillatorGradients(AuditResult):
    """How the state X_n = (y, z) of each unit depends on X_k, ``start`` = k; ``lags`` are the n − k of the curves."""

    layers: tuple[LayerGrowth, ...]
    lags: tuple[int, ...]
    start: int
    count: int

    def summary(self) -> str:
        """Say how much gradients grew and what bounds it."""
        head = f"Over {counted(self.count, 'sequence')} and {counted(self.lags[-1], 'step')}, "
        return head + "; ".join(_sentence(found) for found in self.layers) + "."

    def plot(self, ax: Any) -> None:
        """Draw the measured norms of every layer and the bounds of the same norm dashed, in powers of ten."""
        scale = 1 / torch.log(torch.tensor(10.0)).item()
        for index, found in enumerate(self.layers):
            always, mean, along = found.bounds
            tightest = along if along.bound else always
            drawn = ((tightest.measured, "-", "measured"), (along.bound, "--", "these trajectories"))
            drawn += ((mean.bound or always.bound, ":", "every input"),)
            for curve, line, label in drawn:
                if curve:
                    values = [scale * value for value in curve]
                    ax.plot(self.lags, values, line, color=f"C{index}", label=f"{found.name}, {label}")
        if ax.lines:
            ax.legend()
        else:
            ax.text(0.5, 0.5, "\n".join(f"{f.name}: {f.bounds[0].condition}" for f in self.layers), ha="center")
        ax.set_xlabel("steps between the two states")
        ax.set_ylabel("log₁₀ of the gradient's norm")


def oscillator_gradient_bounds(
    model: nn.Module,
    X: Any,  # noqa: N803
    *,
    start: int = 0,
    lengths: Any = None,
    timespans: Any = None,
    seed: int = 0,
    batch_size: int = 16,
) -> OscillatorGradients:
    """Bound the growth of a UnICORNN's gradients through time, and measure it on ``X``.

    For each layer, with its input held, ∂X_n/∂X_k is block diagonal: one 2×2 product of Jacobians a unit, computed in
    float64 with a logarithmic scale. Beside its norm stand three bounds, each in its own norm: (i) for every input;
    (ii) for every input, if 0 < h²q₀ < 4; (iii) along the trajectories seen. (ii) and (iii) need one time span within
    each sequence, (i) does not. All three can grow exponentially, as gradients can: proposition 3.1 of rusch2021, which
    promises otherwise, is false. Reference: rusch2021, section 3, as corrected in ``docs/errata.md`` (rusch2021.1).

    Args:
        model: a UnICORNN, or a model that calls one once. It is asked in evaluation mode and left as it was.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``.
        start: k, the number of steps before the state that is varied.
        lengths: true length of each row of a padded array ``X``.
        timespans: ``(n, time)`` durations of the steps, for a bare UnICORNN.
        seed: for a model that draws random numbers.
        batch_size: sequences followed at once.

    >>> from sostenuto.nn import UnICORNN
    >>> result = oscillator_gradient_bounds(UnICORNN(1, 4, step_size=0.2), torch.randn(2, 50, 1))
    >>> [bound.holds for bound in result.layers[0].bounds]
    [True, True, True]
    """
    check_count("start", start, least=0)
    trace = trace_oscillators(model, X, lengths=lengths, timespans=timespans, seed=seed, batch_size=batch_size)
    require(start < trace.num_steps, f"expected start below {trace.num_steps} steps", f"got {start}")
    lags = thinned(trace.num_steps - start)
    growths = [_Growth(cell, _coverage(cell, trace), lags) for cell in cells(trace.layer)]
    for reading in trace.readings:
        for growth, trajectory in zip(growths, trace.trajectories(reading), strict=True):
            growth.take(trajectory, reading, start)
    return OscillatorGradients(
        model=type(model).__name__,
        method="Products of each unit's 2×2 Jacobians in float64 with a logarithmic scale, in the norms of the bounds.",
        seed=seed,
        settings={"start": start, "batch_size": batch_size, "stiffness": trace.layer.stiffness},
        checksum=trace.checksum,
        environment=environment(trace.device),
        layers=tuple(growth.result() for growth in growths),
        lags=lags,
        start=start,
        count=trace.count,
    )


class _Growth:
    """The three bounds of one cell, collected over batches."""

    def __init__(self, cell: Cell, coverage: list[tuple[str, Bool[Tensor, " unit"]]], lags: tuple[int, ...]) -> None:
        self.cell, self.coverage, self.lags = cell, coverage, lags
        self.curves = torch.full((3, 2, len(lags)), -torch.inf, dtype=torch.float64)
        self.slack = torch.full((3,), torch.inf, dtype=torch.float64)
        self.finite = True

    def take(self, trajectory: Trajectory, reading: Reading, start: int) -> None:
        """Follow the products along one batch."""
        mask = trajectory.mask
        self.finite &= bool(trajectory.curvature[mask].isfinite().all())
        step, weight, stiffness = reading.durations() * self.cell.step, self.cell.weight, self.cell.stiffness
        norms = always_norm(weight, stiffness), mean_norm(step, weight, stiffness)
        product = JacobianProduct(tuple(trajectory.position.shape[1:]))
        always, along = torch.zeros_like(step), torch.zeros_like(step)
        per_step, place = mean_growth(step, weight, stiffness), 0
        for n in range(start, len(trajectory.position)):
            moved = trajectory.steps[n if len(trajectory.steps) > 1 else 0]
            product.multiply(moved, trajectory.curvature[n])
            always = always + always_growth(moved, weight, stiffness)
            along = along + curvature_growth(step, weight, stiffness, trajectory.curvature[n])
            lag = n + 1 - start
            if lag == self.lags[place]:
                first, second = product.log_norm(norms[0]), product.log_norm(norms[1])
                for kind, pair in enumerate(((first, always), (second, lag * per_step), (second, along))):
                    self._note(kind, place, mask[n], *pair)
                place += 1

    def _note(self, kind: int, place: int, running: Tensor, measured: Tensor, bound: Tensor) -> None:
        covered = self.coverage[kind][1]
        if not bool(covered.any() and running.any()):
            return
        pair = torch.stack(torch.broadcast_tensors(measured, bound))[:, running][..., covered]
        self.curves[kind, :, place] = torch.maximum(self.curves[kind, :, place], pair.amax((1, 2)))
        self.slack[kind] = torch.minimum(self.slack[kind], (pair[1] - pair[0]).amin())

    def result(self) -> LayerGrowth:
        """Give the record."""
        bounds = [self._bound(kind, *self.coverage[kind]) for kind in range(3)]
        return LayerGrowth(self.cell.name, len(self.cell.step), tuple(bounds))

    def _bound(self, kind: int, condition: str, covered: Tensor) -> GrowthBound:
        name, statement = NAMES[kind], STATEMENTS[kind]
        if not self.finite:
            lost = "not measured: a layer below leaves the range of float64"
            return GrowthBound(name, statement, 0, lost)
        if not bool(covered.any()):
            return GrowthBound(name, statement, 0, condition)
        measured, bound = (tuple(curve.tolist()) for curve in self.curves[kind])
        return GrowthBound(name, statement, int(covered.sum()), condition, measured, bound, float(self.slack[kind]))


def _coverage(cell: Cell, trace: OscillatorTrace) -> list[tuple[str, Bool[Tensor, " unit"]]]:
    """Say, for each of the three bounds, which condition fails and which units are covered."""
    largest = torch.maximum((cell.weight + cell.stiffness).abs(), torch.full_like(cell.weight, cell.stiffness))
    always = (not_applicable("q̄ > 0", largest, largest > 0), largest > 0)
    if trace.uneven:
        return [always, *[(trace.uneven, torch.zeros_like(largest, dtype=torch.bool))] * 2]
    turn = (trace.longest_duration * cell.step) ** 2 * (cell.stiffness + cell.weight / 2)
    fits = (turn > 0) & (turn < 4)
    return [always, *[(not_applicable("0 < h²q₀ < 4", turn, fits), fits)] * 2]


def _sentence(found: LayerGrowth) -> str:
    always, mean, along = found.bounds
    said = f"gradients of {found.name} "
    if always.bound:
        said += (
            f"grew at most {factor(max(always.measured))}-fold in the norm q̄y² + z², with a bound of "
            f"{factor(max(always.bound))} for every input"
        )
    else:
        said += f"have no bound for every input ({always.condition})"
    if along.bound:
        said += (
            f", and {factor(max(along.measured))}-fold in the norm of the mean stiffness, with a bound of "
            f"{factor(max(mean.bound))} for every input and {factor(max(along.bound))} on these trajectories"
        )
    said += f" ({along.condition})" if along.condition else ""
    broken = [bound.name for bound in found.bounds if not bound.holds]
    return said + (f"; EXCEEDED: {', '.join(broken)}" if broken else "")

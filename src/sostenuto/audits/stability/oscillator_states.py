"""How far the states of a UnICORNN can go, beside how far they went."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sostenuto.audits.applicability import not_applicable, thinned
from sostenuto.audits.base import AuditResult
from sostenuto.audits.oscillators import Cell, OscillatorTrace, Reading, Trajectory, cells, trace_oscillators
from sostenuto.report.numbers import counted, number
from sostenuto.results import Numbers, Record
from sostenuto.theory.oscillator import position_bound, velocity_bound
from sostenuto.training.processes import environment

METHOD = (
    "States recomputed in float64 from the weights and from what reaches the layer, beside the bounds "
    "|z| ≤ t/√(1−h²α/4) and |y| ≤ min(t/(√α√(1−h²α/4)), h²n(n+1)/2), which hold for every weight w and every input."
)


@dataclass(frozen=True)
class StateRange(Record):
    """One layer and direction: the largest |y| and |z| of the covered units after each step, and their bounds.

    ``condition`` is empty where the bound covers all units, and else says which condition fails; ``covered`` counts the
    units it does cover, and curves are theirs. A share is the largest quotient of a state and its own unit's bound at
    its own step, so at most 1. ``reach`` is the largest |y| of all units, None if it leaves the range of float64.
    """

    name: str
    units: int
    covered: int
    condition: str
    position: Numbers = ()
    position_bound: Numbers = ()
    velocity: Numbers = ()
    velocity_bound: Numbers = ()
    position_share: float | None = None
    velocity_share: float | None = None
    reach: float | None = None


@dataclass(frozen=True, kw_only=True)
class OscillatorStates(AuditResult):
    """The states of every layer beside their bounds; ``steps`` are the step numbers of the curves."""

    layers: tuple[StateRange, ...]
    steps: tuple[int, ...]
    count: int

    def summary(self) -> str:
        """Say how far states went and how far they could have gone."""
        said = [_sentence(found) for found in self.layers]
        return f"Over {counted(self.count, 'sequence')} of up to {counted(self.steps[-1], 'step')}: {'; '.join(said)}."

    def plot(self, ax: Any) -> None:
        """Draw the largest |y| of every layer over time, and its bound dashed."""
        for index, found in enumerate(self.layers):
            if found.position:
                color = f"C{index}"
                ax.plot(self.steps, found.position, color=color, label=f"{found.name}, measured")
                ax.plot(self.steps, found.position_bound, color=color, linestyle="--", label=f"{found.name}, bound")
        if not any(found.position for found in self.layers):
            ax.text(0.5, 0.5, "\n".join(f"{f.name}: {f.condition}" for f in self.layers), ha="center", va="center")
        ax.set_xlabel("step")
        ax.set_ylabel("largest position |y|")
        if any(found.position for found in self.layers):
            ax.set_yscale("symlog", linthresh=1e-3)
            ax.legend()


def oscillator_state_bound(
    model: nn.Module,
    X: Any,  # noqa: N803
    *,
    lengths: Any = None,
    timespans: Any = None,
    seed: int = 0,
    batch_size: int = 16,
) -> OscillatorStates:
    """Bound how far the units of a UnICORNN can go from rest, and measure how far they go on ``X``.

    With a unit's step h = Δt·σ̂(c) and t_n = nh: |z_n| ≤ t_n/√(1−h²α/4), |y_n| ≤ min(t_n/(√α√(1−h²α/4)), h²n(n+1)/2)
    for every w and every input, if h√α < 2 and the start is zero; at α = 0 the second bound. Time spans that differ
    within a sequence are covered at α = 0 alone: there |z_n| ≤ t_n = Σh and |y_n| ≤ Σ h_k t_k. Reference: rusch2021,
    appendix C.1, as corrected in ``docs/errata.md`` (rusch2021.2).

    Args:
        model: a UnICORNN, or a model that calls one once. It is asked in evaluation mode and left as it was.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``.
        lengths: true length of each row of a padded array ``X``.
        timespans: ``(n, time)`` durations of the steps, for a bare UnICORNN.
        seed: for a model that draws random numbers.
        batch_size: sequences followed at once.

    >>> from sostenuto.nn import UnICORNN
    >>> result = oscillator_state_bound(UnICORNN(1, 4, step_size=0.2), torch.randn(2, 50, 1))
    >>> result.layers[0].condition, result.layers[0].position_share < 1
    ('', True)
    """
    trace = trace_oscillators(model, X, lengths=lengths, timespans=timespans, seed=seed, batch_size=batch_size)
    parts = cells(trace.layer)
    coverage = [_coverage(cell, trace) for cell in parts]
    shape = (len(parts), 4, trace.num_steps)
    curves = torch.full(shape, -torch.inf, dtype=torch.float64)
    shares, reach = torch.zeros(len(parts), 2).double(), torch.zeros(len(parts)).double()
    for reading in trace.readings:
        for index, trajectory in enumerate(trace.trajectories(reading)):
            reach[index] = torch.maximum(reach[index], _masked(trajectory.position.abs(), trajectory).amax())
            if bool(coverage[index][1].any()):
                found, share = _measure(trajectory, reading, coverage[index][1])
                length = found.shape[1]
                curves[index, :, :length] = torch.maximum(curves[index, :, :length], found)
                shares[index] = torch.maximum(shares[index], share)
    steps = thinned(trace.num_steps)
    chosen = torch.tensor(steps) - 1
    ranges = [
        _range(cell, *coverage[index], curves[index][:, chosen], shares[index], reach[index])
        for index, cell in enumerate(parts)
    ]
    return OscillatorStates(
        model=type(model).__name__,
        method=METHOD,
        seed=seed,
        settings={"batch_size": batch_size, "stiffness": trace.layer.stiffness},
        checksum=trace.checksum,
        environment=environment(trace.device),
        layers=tuple(ranges),
        steps=steps,
        count=trace.count,
    )


def _coverage(cell: Cell, trace: OscillatorTrace) -> tuple[str, Bool[Tensor, " unit"]]:
    """Say which condition fails, and which units the bound covers."""
    none = torch.zeros(len(cell.step), dtype=torch.bool)
    if not all(reading.starts_at_zero for reading in trace.readings):
        largest = max(float(p.abs().max()) for r in trace.readings for p in r.start or () if p.numel())
        return f"not applicable: a zero start fails (largest entry {number(largest)})", none
    if cell.stiffness == 0:
        return "", ~none
    if trace.uneven:
        return trace.uneven, none
    turn = trace.longest_duration * cell.step * cell.stiffness**0.5
    return not_applicable("h√α < 2", turn, turn < 2), turn < 2


def _measure(
    trajectory: Trajectory, reading: Reading, covered: Bool[Tensor, " unit"]
) -> tuple[Float[Tensor, "4 time"], Float[Tensor, " 2"]]:
    """Give the curves of |y|, its bound, |z| and its bound, and the largest share of each bound that was used."""
    cell, length = trajectory.cell, len(trajectory.position)
    if reading.constant_spans:
        step = (reading.durations() * cell.step)[None]
        count = torch.arange(1, length + 1, dtype=torch.float64)[:, None, None]
        far, fast = position_bound(step, cell.stiffness, count), velocity_bound(step, cell.stiffness, count)
    else:
        fast = trajectory.steps.cumsum(0)
        far = (trajectory.steps * fast).cumsum(0)
    curves, shares = [], []
    for states, bound in ((trajectory.position, far), (trajectory.velocity, fast)):
        states, bound = states.abs()[..., covered], bound.expand_as(states)[..., covered]
        curves += [_masked(states, trajectory).amax((1, 2)), _masked(bound, trajectory).amax((1, 2))]
        shares.append(_masked(states / bound, trajectory).amax())
    return torch.stack(curves), torch.stack(shares)


def _masked(values: Tensor, trajectory: Trajectory) -> Tensor:
    return values.masked_fill(~trajectory.mask[:, :, None], -torch.inf)


def _range(cell: Cell, condition: str, covered: Tensor, curves: Tensor, shares: Tensor, reach: Tensor) -> StateRange:
    reached = float(reach) if bool(reach.isfinite()) else None
    bare = StateRange(cell.name, len(covered), int(covered.sum()), condition, reach=reached)
    if bare.covered == 0:
        return bare
    if not bool(curves.isfinite().all() and shares.isfinite().all()):
        return replace(bare, covered=0, condition="not measured: a layer below leaves the range of float64")
    position, far, velocity, fast = (tuple(curve.tolist()) for curve in curves)
    return replace(
        bare,
        position=position,
        position_bound=far,
        velocity=velocity,
        velocity_bound=fast,
        position_share=float(shares[0]),
        velocity_share=float(shares[1]),
    )


def _sentence(found: StateRange) -> str:
    if not found.position:
        went = "left the range of float64" if found.reach is None else f"reached {number(found.reach)}"
        return f"positions of {found.name} {went}, and the bound is {found.condition}"
    said = (
        f"positions of {found.name} reached {number(max(found.position))} and cannot exceed "
        f"{number(max(found.position_bound))}, velocities {number(max(found.velocity))} and "
        f"{number(max(found.velocity_bound))}"
    )
    return said + (f" ({found.condition})" if found.condition else "")

"""Lyapunov exponents along data: how fast small changes of the state grow or fade, in every direction."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sostenuto.audits.applicability import factor, thinned
from sostenuto.audits.base import UNDECIDED, AuditResult, Check, Judged
from sostenuto.audits.clock import clock_of
from sostenuto.audits.context import AuditContext, seconds_of
from sostenuto.audits.stability.recurrence_trace import Recurrence, RecurrenceTrace, trace_recurrence
from sostenuto.audits.stability.state_map import find_recurrence, map_of_layer
from sostenuto.checks import InputError, check_count, check_positive, require
from sostenuto.report.numbers import counted, duration, number
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

LEAST_STRETCH = 1e-300
"""A direction that is lost within one step, as with units switched off, counts as shrunk by this factor."""
LEAST_STEPS = 20
"""Fewer steps along the data are not worth a measurement."""
FOLLOWED = 1024
"""A check follows the state over so many steps, one sequence after the other, where time allows."""
FADED, GROWN, KEPT = math.log(1e3), math.log(20.0), math.log(10.0)
"""Small changes have faded for certain where so much of them is gone, grown for certain where they are so much larger,
and are kept where they never left these bounds, as natural logarithms: a lower or shorter change may be a passing one.
"""
NEUTRAL = 1e-3
"""Exponents per step within this of zero leave the size of a change alone."""
PARTS = 4
"""Parts of the time followed, whose exponents must agree."""
METHOD = (
    "An orthonormal frame is carried along by the Jacobian of the step map and made orthonormal again by QR after "
    "every step; exponents are the mean logarithms of the diagonal of R, in float64."
)


@dataclass(frozen=True, kw_only=True)
class LyapunovSpectrum(AuditResult):
    """Exponents per unit of time, largest first, averaged over all counted steps of all sequences.

    ``standard_error`` is that of the exponents over sequences, empty for a single one. ``kaplan_yorke`` is the
    Kaplan–Yorke dimension, None where too few exponents were asked for to know it. ``history`` is the largest
    exponent found so far after each of ``steps``. ``parts`` are the least and the greatest mean of the largest exponent
    in any quarter of the time after the first, ``slowest`` and ``fastest`` those of any one sequence, all in the second
    half. ``growth`` holds, as natural logarithms, the factor by which small changes have grown at the end of the
    sequence where they grew most, and where they grew least, and the largest such factor of either sign met on the way.
    """

    exponents: Numbers
    standard_error: Numbers
    kaplan_yorke: float | None
    state_size: int
    count: int
    counted_steps: int
    step_time: float
    steps: tuple[int, ...]
    history: Numbers
    parts: Numbers = ()
    slowest: float = 0.0
    fastest: float = 0.0
    growth: Numbers = ()

    @property
    def largest(self) -> float:
        """The largest exponent: small changes of the state behave like exp(largest · t)."""
        return self.exponents[0]

    @property
    def ends(self) -> tuple[float, float]:
        """Give the least and the greatest that the largest exponent may be: its interval, parts and sequences."""
        half = 2.4 * self.standard_error[0] if self.standard_error else 0.0  # Student's t of 8 sequences
        seen = (*self.parts, self.slowest, self.fastest) if self.parts else ()
        return min(self.largest - half, *seen), max(self.largest + half, *seen)

    @property
    def verdict(self) -> str:
        """``"contracting"``, ``"chaotic"`` or, within two standard errors of zero, ``"neutral"``."""
        doubt = 2 * self.standard_error[0] if self.standard_error else 0.0
        doubt = max(doubt, 1e-6 * abs(self.exponents[-1]), 1e-9)
        if self.largest < -doubt:
            return "contracting"
        return "chaotic" if self.largest > doubt else "neutral"

    @property
    def course(self) -> str:
        """Say what small changes do; one that needs over a thousand steps to grow or fade by e does hardly either."""
        if self.verdict == "neutral":
            doubtful = abs(self.largest) * self.step_time > NEUTRAL
            return "they may grow or fade" if doubtful else "they neither grow nor fade"
        hardly = "hardly " if abs(self.largest) * self.step_time <= NEUTRAL else ""
        return f"they {hardly}{'fade' if self.verdict == 'contracting' else 'grow'}"

    def summary(self) -> str:
        """Say whether nearby states part or meet, and how fast."""
        spread = f" ± {number(self.standard_error[0], digits=2)}" if self.standard_error else ""
        unit = "step" if self.step_time == 1 else "unit of time"
        said = (
            f"Along the data small changes of the state {self.course.removeprefix('they ')}: the largest of "
            f"{len(self.exponents)} Lyapunov exponents (the mean logarithm of their growth) is "
            f"{number(self.largest)}{spread} per {unit}, over {counted(self.count, 'sequence')} and "
            f"{counted(self.counted_steps, 'step')}"
        )
        if self.kaplan_yorke:
            said += f"; the Kaplan–Yorke dimension is {number(self.kaplan_yorke)} of {self.state_size}"
        return f"{said}."

    def plot(self, ax: Any) -> None:
        """Draw the exponents, largest first, and the line between growth and decay."""
        places = np.arange(1, len(self.exponents) + 1)
        ax.plot(places, self.exponents, marker="o", markersize=3)
        ax.set_xticks(places if len(places) <= 8 else places[:: len(places) // 8])
        ax.axhline(0.0, color="gray", linestyle="--")
        ax.set_xlabel("number of the exponent")
        ax.set_ylabel("Lyapunov exponent, per step" if self.step_time == 1 else "Lyapunov exponent, per unit of time")


def lyapunov_spectrum(
    model: Recurrence,
    X: Any = None,  # noqa: N803
    *,
    count: int | None = None,
    washout: int = 0,
    step_time: float = 1.0,
    start: Any = None,
    steps: int | None = None,
    lengths: Any = None,
    followed: int = 0,
    seed: int = 0,
    batch_size: int = 16,
) -> LyapunovSpectrum:
    """Measure the Lyapunov exponents λ₁ ≥ λ₂ ≥ … of a recurrence while it reads ``X``.

    With J_n the Jacobian of the step map at step n and Q₀ orthonormal, J_n Q_{n−1} = Q_n R_n and
    λᵢ = mean of log|(R_n)ᵢᵢ| / step_time (Benettin, Galgani, Giorgilli, Strelcyn 1980). The Kaplan–Yorke dimension is
    j + (λ₁ + … + λ_j)/|λ_{j+1}| with the largest j for which the sum is not negative. For a linear recurrence the
    exponents are log|eigenvalues|.

    Args:
        model: a recurrent layer, a model that calls one once, or a function f(h, x) → h of one state and one input.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``; None for a
            function without input.
        count: how many of the largest exponents; all of them if left out.
        washout: steps at the beginning that are not counted, for the frame and the state to settle.
        step_time: duration of a step.
        start: first state ``(state,)`` or ``(n, state)``; zero for a layer if left out.
        steps: how many steps a function without input takes.
        lengths: true length of each row of a padded array ``X``.
        followed: where sequences are shorter, others of ``X`` follow each of them, until so many steps are taken.
        seed: of the first frame, and for a model that draws random numbers.
        batch_size: sequences followed at once.

    >>> matrix = torch.tensor([[0.9, 1.0], [0.0, 0.5]]).double()
    >>> found = lyapunov_spectrum(lambda h, x: matrix @ h, start=[1.0, 1.0], steps=2000, washout=50)
    >>> [round(value, 3) for value in found.exponents]  # log .9, log .5
    [-0.105, -0.693]
    """
    check_count("washout", washout, least=0)
    check_count("followed", followed, least=0)
    check_count("batch_size", batch_size)
    check_positive("step_time", step_time)
    trace = trace_recurrence(model, X, lengths=lengths, start=start, steps=steps, seed=seed)
    trace = _followed(trace, followed)
    size = trace.map.state_size
    columns = size if count is None else count
    check_count("count", columns)
    require(columns <= size, f"expected at most {size} exponents, one per dimension of the state", f"got {columns}")
    long_enough = int(trace.lengths.min())
    require(washout < long_enough, f"expected washout below {long_enough}, the shortest length", f"got {washout}")
    sums, first = _carry(trace, columns, washout, seed, batch_size)
    lengths_counted = (trace.lengths - washout).double()
    each = sums / lengths_counted[:, None] / step_time
    total = float(lengths_counted.sum())
    mean, order = (sums.sum(0) / total / step_time).sort(descending=True)
    error = each[:, order].std(0) / len(each) ** 0.5 if len(each) > 1 else each.new_zeros(0)
    chosen = thinned(trace.num_steps - washout)
    alive = (torch.arange(trace.num_steps) < trace.lengths[:, None])[:, washout:]
    history = first.sum(0).cumsum(0) / alive.sum(0).cumsum(0)
    return LyapunovSpectrum(
        model=trace.model,
        method=METHOD,
        seed=seed,
        settings={"washout": washout, "followed": followed, "batch_size": batch_size},
        checksum=trace.checksum,
        environment=environment(trace.device),
        exponents=tuple(mean.tolist()),
        standard_error=tuple(error.tolist()),
        kaplan_yorke=kaplan_yorke(tuple(mean.tolist()), size),
        state_size=size,
        count=len(each),
        counted_steps=int(total),
        step_time=step_time,
        steps=tuple(washout + step for step in chosen),
        history=tuple((history[torch.tensor(chosen) - 1] / step_time).tolist()),
        **_course(first, alive, step_time),
    )


def _followed(trace: RecurrenceTrace, steps: int) -> RecurrenceTrace:
    """Let each sequence be followed by others, as they reach the recurrence, until so many steps are there."""
    lengths = trace.lengths.tolist()
    if steps <= min(lengths):
        return trace
    rows, count = [], len(lengths)
    for row in range(count):
        taken = [trace.inputs[row, : lengths[row]]]
        place = row
        while sum(len(part) for part in taken) < steps:
            place = (place + 1) % count
            taken.append(trace.inputs[place, : lengths[place]])
        rows.append(torch.cat(taken)[: max(steps, lengths[row])])
    known = torch.tensor([len(row) for row in rows])
    return replace(trace, inputs=torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), lengths=known)


def _course(first: Float[Tensor, "batch time"], alive: Bool[Tensor, "batch time"], step_time: float) -> dict[str, Any]:
    """Say how the growth along the largest exponent is spread over sequences and over time."""
    steps = first.shape[1]
    late = first[:, steps // 2 :].sum(1) / alive[:, steps // 2 :].sum(1).clamp(min=1) / step_time
    late = late[alive[:, steps // 2 :].any(1)]
    parts = []
    for part, taken in zip(first.tensor_split(PARTS, 1)[1:], alive.tensor_split(PARTS, 1)[1:], strict=True):
        if bool(taken.any()):
            parts.append(float(part.sum() / taken.sum() / step_time))
    course = first.cumsum(1)
    ends = course[:, -1]
    return {
        "parts": (min(parts), max(parts)) if parts else (),
        "slowest": float(late.min()) if len(late) else 0.0,
        "fastest": float(late.max()) if len(late) else 0.0,
        "growth": (float(ends.max()), float(ends.min()), float(course.abs().max())),
    }


def kaplan_yorke(exponents: Numbers, state_size: int) -> float | None:
    """Give the Kaplan–Yorke dimension; None where the sum never turns negative among the exponents known.

    >>> kaplan_yorke((1.0, 0.0, -2.0), 3), kaplan_yorke((-1.0, -2.0), 2), kaplan_yorke((1.0, 0.5), 3)
    (2.5, 0.0, None)
    """
    total = 0.0
    for place, exponent in enumerate(exponents):
        if total + exponent < 0:
            return place + total / abs(exponent)
        total += exponent
    return float(state_size) if len(exponents) == state_size else None


def _carry(
    trace: RecurrenceTrace, columns: int, washout: int, seed: int, batch_size: int
) -> tuple[Float[Tensor, "batch column"], Float[Tensor, "batch time"]]:
    """Sum the logarithms of every sequence's frame over its counted steps, and keep those of its first direction."""
    size, longest = trace.map.state_size, trace.num_steps
    generator = torch.Generator().manual_seed(seed)
    start = torch.linalg.qr(torch.randn(size, columns, generator=generator, dtype=torch.float64)).Q
    sums = torch.zeros(len(trace.inputs), columns, dtype=torch.float64)
    first = torch.zeros(len(sums), longest, dtype=torch.float64)
    with torch.no_grad():
        for begin in range(0, len(sums), batch_size):
            rows = slice(begin, begin + batch_size)
            h, inputs, lengths = trace.starts[rows], trace.inputs[rows], trace.lengths[rows]
            frame = start.expand(len(h), -1, -1)
            for step in range(int(lengths.max())):
                h, frame, logs = _advance(trace, h, frame, inputs[:, step], lengths > step)
                if step >= washout:
                    sums[rows] += logs
                    first[rows, step] = logs[:, 0]
    return sums, first[:, washout:]


def _advance(
    trace: RecurrenceTrace, h: Tensor, frame: Tensor, x: Tensor, alive: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take one step of states and frames; sequences that have ended stay where they are and add nothing."""
    turned, stretch = torch.linalg.qr(trace.map.carry(h, x, frame))
    moved = trace.map.advance(h, x)
    if not bool(moved[alive].isfinite().all() and turned[alive].isfinite().all()):
        raise InputError(
            "expected finite states along the data, got overflow; use a smaller step or shorter sequences."
        )
    logs = stretch.diagonal(dim1=1, dim2=2).abs().clamp_min(LEAST_STRETCH).log()
    kept = alive[:, None]
    return torch.where(kept, moved, h), torch.where(kept[..., None], turned, frame), torch.where(kept, logs, 0.0)


def _run(context: AuditContext) -> LyapunovSpectrum:
    steps = None if context.lengths is not None else context.data.values.shape[1]
    step_map = map_of_layer(find_recurrence(context.model), steps)
    count = min(context.budget.exponents, step_map.state_size)
    few = context.few(8)
    h = torch.zeros(len(few["X"]), step_map.state_size, dtype=torch.float64)
    frame = torch.eye(step_map.state_size, count, dtype=torch.float64).expand(len(h), -1, -1)

    def step() -> None:
        step_map.carry(h, h.new_zeros(len(h), step_map.input_size), frame)

    step()  # the first call may compile
    each = min(seconds_of(step, clock_of(context.model)) for _ in range(3))
    most = int(context.share / each)
    require(
        most >= min(LEAST_STEPS, few["X"].shape[1]),
        f"expected {LEAST_STEPS} steps to take at most {duration(context.share)}",
        f"got an estimate of {duration(LEAST_STEPS * each)}",
        "allow more with max_seconds",
    )
    few = {"X": few["X"][:, :most], "lengths": None if few["lengths"] is None else few["lengths"].clamp(max=most)}
    # A layer whose step is a share of the sequence's length has no further steps.
    followed = 0 if getattr(step_map.layer, "step_size", 0) is None else min(FOLLOWED, int(0.7 * most))
    try:
        return lyapunov_spectrum(context.model, **few, count=count, followed=followed, seed=context.seed)
    except InputError:
        # What overflows later may be followed along its own sequences.
        return lyapunov_spectrum(context.model, **few, count=count, seed=context.seed)


def _judge(result: LyapunovSpectrum, limits: Mapping[str, float]) -> Judged:
    """Ask whether changes faded or grew for good: on the whole, in every part of the time and in every sequence."""
    near = limits["neutral"]
    basis = f"{result.summary()} {_course_words(result)} Neutral within ± {number(near)} of zero."
    if not result.standard_error or not result.parts:
        return Judged("unknown", UNDECIDED, f"{basis} One sequence, or a few steps, give no interval.")
    most, least, furthest = result.growth
    low, high = result.ends
    if high < -near and most < -FADED:
        return Judged("good", "Settles", basis)
    if low > near and least > GROWN:
        return Judged("caution", "Sensitive", basis)
    if -near <= low and high <= near and furthest < KEPT:
        return Judged("good", "Neutral", basis)
    return Judged("unknown", UNDECIDED, basis)


def _course_words(result: LyapunovSpectrum) -> str:
    """Say by how much changes have grown or faded at the end."""
    if not result.growth:
        return ""
    most, least, _ = result.growth
    ends = factor(least) if factor(least) == factor(most) else f"{factor(least)} to {factor(most)}"
    return f"After {counted(result.steps[-1], 'step')}, one sequence after the other, they are {ends} times as large."


CHECK = Check(
    name="lyapunov",
    title="Is its state stable?",
    caption="How fast small changes of the state grow or fade along the data.",
    order=20,
    result=LyapunovSpectrum,
    run=_run,
    judge=_judge,
    needs=("module", "state"),
    thresholds={"neutral": NEUTRAL},
    number=lambda result: result.largest,
)

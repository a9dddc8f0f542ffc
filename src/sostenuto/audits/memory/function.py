"""The memory function of any model: how much the answer still owes to an input t steps ago."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.memory.responses import PROBES, Answers, Prober
from sostenuto.audits.memory.tail import Tail, fit_tail, lost_half
from sostenuto.audits.model import audited, place_of, widened
from sostenuto.checks import check_choice, check_count, check_positive, require
from sostenuto.report.numbers import number, percent
from sostenuto.results import Numbers, Record
from sostenuto.training.processes import environment

MOST_DIRECTIONS = 32
MOST_SERIES = 24
LEAST_HORIZON = 4


@dataclass(frozen=True, kw_only=True)
class AmplitudeMemory(Record):
    """The memory function for inputs of one size, the law of its tail, and the lag at which half of it is lost."""

    amplitude: float
    memory: Numbers
    tail: Tail
    half_life: float | None


@dataclass(frozen=True, kw_only=True)
class MemoryFunction(AuditResult):
    """M(t) at each lag, largest over the amplitudes, and the law by which it dies out.

    ``kind`` is exponential, stretched, polynomial, non-decaying, periodic, finite or no law, as `Tail` says; ``rate``
    is β per step or the power p; ``half_life`` the lag, in steps, after which M stays below half of its largest value
    (None: not within the horizon); ``half_time`` the same in ``time_unit``; ``linear`` whether responses were linear,
    so that the supremum
    is exact; ``causal`` whether answers are untouched by later input.
    """

    probe: str
    horizon: int
    lags: tuple[int, ...]
    memory: Numbers
    kind: str
    rate: float | None
    confidence: float
    half_life: float | None
    half_time: float | None
    time_unit: str
    linear: bool
    causal: bool
    by_amplitude: tuple[AmplitudeMemory, ...]

    @property
    def agrees(self) -> bool:
        """Whether inputs of all sizes are forgotten by the same law, at rates within a fifth."""
        rates = [one.tail.rate for one in self.by_amplitude if one.tail.rate is not None]
        alike = not rates or max(rates) <= 1.2 * min(rates)
        return alike and len({one.tail.kind for one in self.by_amplitude}) == 1

    @property
    def remaining(self) -> float:
        """The largest memory in the last quarter of the lags, as a share of the largest of all."""
        largest = max(self.memory)
        late = [value for lag, value in zip(self.lags, self.memory, strict=True) if lag > 0.75 * self.horizon]
        return max(late) / largest if largest > 0 else 0.0

    def summary(self) -> str:
        """Say how the memory dies out, and how soon half of it is gone."""
        if not self.agrees:
            parts = [
                f"{_law(one.tail)} for inputs of size {number(one.amplitude, digits=2)}" for one in self.by_amplitude
            ]
            said = f"How the memory dies out depends on the size of the input: {'; '.join(parts)}"
        else:
            said = f"The memory is {_law(_dominant(self.by_amplitude).tail)}"
        if self.half_time is not None:
            said += f"; half of it is gone after {number(self.half_time, digits=3)} {self.time_unit}"
        else:
            said += f"; {percent(self.remaining)} of it is still there {self.horizon} steps later, as far as was looked"
        if not self.causal:
            said += "; the model also looks ahead, so the lag is counted back from the last step"
        return said + "."

    def plot(self, ax: Any) -> None:
        """Draw M(t) on logarithmic axes, a line an amplitude."""
        lags = np.asarray(self.lags) + 1
        for one in self.by_amplitude:
            memory = np.asarray(one.memory)
            shown = memory > 0
            label = f"inputs of size {number(one.amplitude, digits=2)}: {one.tail.kind}"
            ax.plot(lags[shown], memory[shown], label=label)
        if any(value > 0 for value in self.memory):
            ax.set_yscale("log")
            ax.set_xscale("log")
        ax.set_xlabel("steps since the input + 1")
        ax.set_ylabel("memory")
        ax.legend()


def memory_function(
    model: nn.Module,
    horizon: int,
    *,
    input_size: int,
    probe: str = "heaviside",
    amplitudes: Sequence[float] = (0.1, 1.0, 10.0),
    time_step: float = 1.0,
    time_unit: str = "steps",
    lead: int = 0,
    search_steps: int = 8,
    batch_size: int = 64,
    baseline: Float[Tensor, "time channel"] | None = None,
    seed: int = 0,
) -> MemoryFunction:
    r"""Measure M(t) = sup over \|x\|_∞ = a of \|d/dt H_t(u^x)\|_∞ / a, and decide the law of its tail.

    u^x is x from step 0 on (or one of the other probes), and H is taken less its answer to silence. Where the responses
    are linear in x the supremum is exact, max over outputs of Σ over channels of \|ρ(t)\|; elsewhere it is the largest
    of many directions: corners of the cube, those that a linear model would choose at each lag, random ones, and
    ``search_steps`` rounds of improving the best at several lags; a lower bound, exact for one channel.

    Reference: wang2024, Definition 3.1, appendices F to H; docs/errata.md.

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, time, out)`` or ``(batch, out)``. It is asked in evaluation
            mode, on its own device and in its own number format, and left as it was; of a model in half precision,
            whose rounding would pass for forgetting, a float32 copy is asked.
        horizon: the largest lag.
        input_size: channels of the input.
        probe: ``"heaviside"``, ``"impulse"`` or ``"reversed"``.
        amplitudes: sizes a of the input; a verdict each.
        time_step: time between two steps, in ``time_unit``.
        time_unit: its name, in the plural.
        lead: steps of silence before anything happens, in which a model with biases comes to rest.
        search_steps: rounds of improvement for models that are not linear.
        batch_size: sequences asked about at once.
        baseline: ``(lead + horizon + 1, input_size)``: what the probes are added to, such as a sequence of the data;
            silence (zeros) if left out, as the theory has it.
        seed: of the random directions.

    >>> class Leak(nn.Module):
    ...     def forward(self, x):
    ...         steps = torch.arange(x.shape[1])
    ...         return torch.einsum("st,btc->bsc", torch.tril(0.9 ** (steps[:, None] - steps)), x)
    >>> found = memory_function(Leak(), 100, input_size=1)
    >>> found.kind, round(found.rate or 0, 3), found.linear, round(found.half_life, 2)
    ('exponential', 0.105, True, 6.59)
    """
    check_count("horizon", horizon, least=LEAST_HORIZON)
    check_count("input_size", input_size)
    check_choice("probe", probe, PROBES)
    check_positive("time_step", time_step)
    for name, count in (("lead", lead), ("search_steps", search_steps), ("seed", seed)):
        check_count(name, count, least=0)
    check_count("batch_size", batch_size)
    sizes = tuple(float(amplitude) for amplitude in amplitudes)
    require(len(sizes) > 0, "expected at least one amplitude", "got none")
    for size in sizes:
        check_positive("amplitude", size)
    shape = (lead + horizon + 1, input_size)
    silence = torch.zeros(shape) if baseline is None else baseline
    require(tuple(silence.shape) == shape, f"expected a baseline of shape {shape}", f"got {tuple(silence.shape)}")
    asked, model = type(model).__name__, widened(model)
    with audited(model, seed):
        prober = Prober.prepare(model, probe, horizon, silence, lead=lead, batch_size=batch_size)
        linear = _is_linear(prober, input_size, sizes, seed)
        if linear:  # one law for all sizes; the largest is farthest above rounding
            one = _measure(prober, input_size, max(sizes), linear, search_steps, seed)
            found = [replace(one, amplitude=size) for size in sizes]
        else:
            found = [_measure(prober, input_size, size, linear, search_steps, seed) for size in sizes]
    dominant = _dominant(found)
    memory = np.max([one.memory for one in found], axis=0)
    half_life = lost_half(prober.lags, memory, dominant.tail)
    device, dtype = place_of(model)
    how = "along one sequence" if prober.streams else "one lag at a time, at the end of a sequence"
    quiet = "silence" if baseline is None else "the baseline"
    supremum = "exact for a linear response" if linear else "the largest of many directions, a lower bound"
    return MemoryFunction(
        model=asked,
        method=f"The {probe} probe, less the answer to {quiet}, {how}; the supremum over directions is {supremum}.",
        seed=seed,
        settings={
            "lead": lead,
            "search_steps": search_steps,
            "batch_size": batch_size,
            "precision": str(dtype).removeprefix("torch."),
        },
        environment=environment(str(device)),
        probe=probe,
        horizon=horizon,
        lags=tuple(prober.lags.tolist()),
        memory=tuple(memory.tolist()),
        kind=dominant.tail.kind,
        rate=dominant.tail.rate,
        confidence=dominant.tail.confidence,
        half_life=half_life,
        half_time=None if half_life is None else half_life * time_step,
        time_unit=time_unit,
        linear=linear,
        causal=prober.causal,
        by_amplitude=tuple(found),
    )


def _is_linear(prober: Prober, channels: int, sizes: Sequence[float], seed: int) -> bool:
    """Compare the answer to a sum of directions with the sum of the answers, at the smallest and largest size."""
    device, dtype = place_of(prober.model)
    drawn = np.random.default_rng((seed, 1)).uniform(-1, 1, (2, channels))
    pair = torch.tensor(drawn, device=device, dtype=dtype)
    asked = torch.cat([pair, pair.sum(0, keepdim=True), -pair[:1]])
    small, large = min(sizes), max(sizes)
    answers, largest = prober.run(asked * large)
    faint, faintest = prober.run(asked * small)
    room = 4 * prober.noise(largest)
    added = np.abs(answers[0] + answers[1] - answers[2]).max() <= room
    mirrored = np.abs(answers[0] + answers[3]).max() <= room
    scaled = np.abs(answers / large - faint / small).max() <= room / large + 4 * prober.noise(faintest) / small
    return bool(added and mirrored and scaled)


def _measure(prober: Prober, channels: int, size: float, linear: bool, search_steps: int, seed: int) -> AmplitudeMemory:
    device, dtype = place_of(prober.model)
    axes = torch.eye(channels, device=device, dtype=dtype) * size
    answers, largest = prober.run(axes)
    if linear:
        memory = np.abs(answers).sum(0).max(-1) / size
        signed = answers
    else:
        corners = _corners(answers, np.random.default_rng((seed, 2))) * size
        signed, largest = prober.run(torch.tensor(corners, device=device, dtype=dtype))
        if channels > 1:
            signed, largest = _improved(prober, corners, signed, largest, size, search_steps, seed)
        memory = np.abs(signed).max((0, -1)) / size
    tail = fit_tail(prober.lags.astype(float), _series(signed) / size, noise=prober.noise(largest) / size)
    return AmplitudeMemory(
        amplitude=size, memory=tuple(memory.tolist()), tail=tail, half_life=lost_half(prober.lags, memory, tail)
    )


def _corners(answers: Answers, generator: np.random.Generator) -> Float[np.ndarray, "corner channel"]:
    """List corners of the cube: all of few channels; else those a linear model would choose most often, and others.

    A corner and its mirror image are both asked: a model that is not linear may answer differently.
    """
    channels = len(answers)
    if 2**channels <= MOST_DIRECTIONS:
        return np.stack(np.meshgrid(*[[-1.0, 1.0]] * channels), -1).reshape(-1, channels)
    best = np.sign(answers.transpose(1, 2, 0).reshape(-1, channels))
    best[best == 0] = 1
    best, counts = np.unique(best, axis=0, return_counts=True)
    best = best[np.argsort(-counts, kind="stable")][: MOST_DIRECTIONS // 4]
    others = generator.choice([-1.0, 1.0], (MOST_DIRECTIONS // 2 - len(best), channels))
    return np.concatenate([best, -best, others, -others])


def _improved(
    prober: Prober, corners: np.ndarray, signed: np.ndarray, largest: float, size: float, steps: int, seed: int
) -> tuple[Answers, float]:
    """Move the best direction at several lags by chance, within the cube, and keep what is larger there."""
    device, dtype = place_of(prober.model)
    generator = np.random.default_rng((seed, 3))
    kept = [signed]
    pool, heights = corners, np.abs(signed).max(-1)
    targets = np.unique(np.geomspace(1, len(prober.lags), 5).round().astype(int) - 1)
    for step in range(steps):
        leaders = pool[heights[:, targets].argmax(0)]
        moves = generator.normal(0, size * 0.7**step, (4, *leaders.shape))
        tried = np.clip(leaders + moves, -size, size).reshape(-1, leaders.shape[1])
        tried *= size / np.abs(tried).max(1, keepdims=True)
        answers, high = prober.run(torch.tensor(tried, device=device, dtype=dtype))
        largest = max(largest, high)
        kept.append(answers)
        pool = np.concatenate([pool, tried])
        heights = np.concatenate([heights, np.abs(answers).max(-1)])
    return np.concatenate(kept), largest


def _series(signed: Answers) -> Float[np.ndarray, "lag series"]:
    """Take the responses that weigh most in the second half of the lags, one per direction and output."""
    flat = signed.transpose(1, 0, 2).reshape(signed.shape[1], -1)
    late = np.abs(flat[len(flat) // 2 :]).max(0)
    return flat[:, np.argsort(-late, kind="stable")[:MOST_SERIES]]


def _dominant(found: Sequence[AmplitudeMemory]) -> AmplitudeMemory:
    """Choose the amplitude whose memory is largest in the end, which the supremum over all of them follows."""
    late = [max(one.memory[-max(len(one.memory) // 8, 1) :]) for one in found]
    return found[int(np.argmax(late))]


def _law(tail: Tail) -> str:
    """Put a law into words.

    >>> _law(Tail(kind="polynomial", rate=1.5, confidence=0.9, error=0.01, period=None, last_lag=9))
    'polynomial, falling as t^−1.5 (error 1.0\u202f%, confidence 90.0\u202f%)'
    """
    if tail.kind == "finite":
        return f"finite: nothing above rounding is left after {tail.last_lag} steps"
    if tail.kind == "periodic" and tail.period is not None:
        return f"periodic, coming back every {number(tail.period, digits=3)} steps"
    if tail.kind == "non-decaying":
        if tail.floor >= 0.5:
            return "not decaying within the horizon"
        return f"{percent(tail.floor)} of the largest after the first steps, and not decaying from there"
    if tail.rate is None:
        return "of no law that is known here"
    said = {
        "exponential": f"exponential, losing a factor e in {number(1 / tail.rate, digits=3)} steps",
        "stretched": f"a {'stretched' if (tail.exponent or 0) < 1 else 'compressed'} exponential, "
        f"e^−(t / {number(1 / tail.rate, digits=3)})^{number(tail.exponent or 0, digits=3)}",
        "polynomial": f"polynomial, falling as t^{number(-tail.rate, digits=3)}",
    }[tail.kind]
    if tail.period is not None:
        said += f" in waves of {number(tail.period, digits=3)} steps"
    if tail.floor > 0:
        said += f", down to a floor of {percent(tail.floor)}"
    return f"{said} (error {percent(tail.error)}, confidence {percent(tail.confidence)})"

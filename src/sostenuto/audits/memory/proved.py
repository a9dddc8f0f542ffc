"""What is proved of a recurrence's memory, beside what is measured of its state and of the model's answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sostenuto.audits.memory.replacement import ReplacedInput
from sostenuto.audits.model import still_copy
from sostenuto.audits.stability.carried import LEAST, share_carried
from sostenuto.audits.stability.layer_fields import own_places
from sostenuto.audits.stability.recurrence_trace import RecurrenceTrace, trace_recurrence
from sostenuto.checks import InputError
from sostenuto.nn.certificates.memory import EVER, MemoryCertificate, rounded
from sostenuto.nn.certified import Certified
from sostenuto.report.numbers import counted, number, percent
from sostenuto.results import Numbers, Record

FOLLOWED, LONGEST = 8, 2048
"""Sequences whose states are followed, and the steps they are followed for at most."""


@dataclass(frozen=True, kw_only=True)
class StateMemory(Record):
    """What is left of a difference of two states after so many steps of the same input, in the Euclidean norm.

    Two sequences of the data lead to two states, and both go on with what follows in the first one. ``measured`` is the
    median over pairs, ``least`` and ``most`` are the ends of their range, all for the first layer. Every pair lies
    between ``proved_least`` and ``proved_most``; a side that is not proved is empty.
    """

    lags: tuple[int, ...]
    measured: Numbers
    least: Numbers
    most: Numbers
    proved_least: Numbers
    proved_most: Numbers

    def summary(self) -> str:
        """Say what is left at the end, and between which bounds."""
        sides = [
            f"{word} {percent(values[-1])}"
            for word, values in (("at least", self.proved_least), ("at most", self.proved_most))
            if values
        ]
        said = f"After {counted(self.lags[-1], 'step')} {percent(self.measured[-1])} of what the state held is left"
        return f"{said}; proved: {' and '.join(sides)}." if sides else f"{said}."

    def plot(self, ax: Any) -> None:
        """Draw what is left between what is proved to be left at least and at most."""
        lags = np.asarray(self.lags)
        seen = max(1.0, *self.most)
        top = 1.05 * min(max(seen, *self.proved_most), 2 * seen)  # a bound that grows leaves the figure
        sides = ((self.proved_most, "proved: never more"), (self.proved_least, "proved: never less"))
        for values, label in sides:
            if values:
                ax.plot(lags, 100 * np.minimum(values, 2 * top), linestyle="--", label=label)
        ax.plot(lags, 100 * np.asarray(self.measured), label="measured on the data")
        ax.fill_between(lags, 100 * np.asarray(self.least), 100 * np.asarray(self.most), alpha=0.25)
        ax.axhline(50, linestyle=":", linewidth=1)
        ax.set_ylim(0, 100 * top)
        ax.set_xlabel("steps later")
        ax.set_ylabel("left of what the state held, %")
        ax.legend()


@dataclass(frozen=True, kw_only=True)
class ProvedMemory(Record):
    """The least and the largest share of a difference of two states that is left at each lag, for every input.

    A side that is not proved is empty. ``told`` says it in a sentence, ``conditions`` what it assumes; ``state`` is the
    measurement that must lie between, of the first layer.
    """

    lags: tuple[int, ...]
    remembers_at_least: Numbers
    forgets_at_most: Numbers
    told: str
    norm: str
    conditions: tuple[str, ...]
    state: StateMemory | None = None


def proved_memory(
    model: nn.Module, lags: Sequence[int], subject: ReplacedInput | None = None, seed: int = 0
) -> ProvedMemory | None:
    """Ask the model's recurrent layer for its certificate, and measure its state on the data of ``subject``.

    None where there is no such layer, or several, or nothing is proved, or the answers do not go through the layer.
    """
    every = [module for module in model.modules() if isinstance(module, Certified)]
    inside = {part for module in every for part in module.modules() if part is not module}
    layers = [module for module in every if module not in inside]
    if len(layers) != 1:
        return None
    certificate = still_copy(layers[0]).memory_certificate()
    heard = subject is None or layers[0] is model or share_carried(layers[0], subject.run, subject.values) >= LEAST
    if not (certificate.holds and heard):
        return None
    low, high = certificate.curves(lags)
    forgets = certificate.forgets_at_most is not None and bool(np.isfinite(high).all())
    parts = []
    if certificate.remembers_at_least > 0:
        least = certificate.remembers_at_least
        later = "for ever" if least >= EVER else f"for at least {number(rounded(least, up=False))} steps"
        parts.append(f"half of what its state holds is kept {later}")
    if certificate.forgets_at_most is not None:
        most = rounded(certificate.forgets_at_most, up=True)
        parts.append(f"half of what its state holds is gone after {number(most)} steps at most")
    return ProvedMemory(
        lags=tuple(int(lag) for lag in lags),
        remembers_at_least=tuple(low.tolist()) if certificate.remembers_at_least > 0 else (),
        forgets_at_most=tuple(high.tolist()) if forgets else (),
        told=f"Proved for every input: {' and '.join(parts)}",
        norm=certificate.norm,
        conditions=certificate.conditions,
        state=None if subject is None else _state_memory(model, layers[0], certificate, lags, subject, seed),
    )


def _state_memory(
    model: nn.Module,
    layer: nn.Module,
    certificate: MemoryCertificate,
    lags: Sequence[int],
    subject: ReplacedInput,
    seed: int,
) -> StateMemory | None:
    """Follow pairs of states of the first layer; None for a layer whose states cannot be followed."""
    rows = subject.lengths.argsort(descending=True, stable=True)[:FOLLOWED]
    known = subject.lengths[rows].clamp(max=LONGEST)
    values = subject.values[rows, : int(known.max())]
    ragged = bool((known != known.max()).any())
    try:
        trace = trace_recurrence(model, values, lengths=known if ragged else None, seed=seed)
    except InputError:
        return None
    asked = [lag for lag in lags if lag < int(trace.lengths.min())]
    shares = _shares_left(trace, asked, own_places(layer, 0))
    if shares is None:
        return None
    low, high = replace(certificate, levels=certificate.levels[:1]).curves(asked, euclidean=True)
    return StateMemory(
        lags=tuple(asked),
        measured=tuple(shares.median(1).values.tolist()),
        least=tuple(shares.amin(1).tolist()),
        most=tuple(shares.amax(1).tolist()),
        proved_least=tuple(low.tolist()) if bool((low > 0).all()) else (),
        proved_most=tuple(high.tolist()) if bool(np.isfinite(high).all()) else (),
    )


@torch.no_grad()
def _shares_left(trace: RecurrenceTrace, lags: Sequence[int], own: Tensor) -> Tensor | None:
    """Give |Δ_n|/|Δ_0| by (lag, pair): at each lag before the end, every state is put beside that of another sequence.

    None where two states are the same.
    """
    steps, count = int(trace.lengths.min()), len(trace.inputs)
    states = trace.starts  # those of the sequences themselves, and below them one block for each lag that has begun
    begun: list[int] = []
    first = []
    for step in range(steps + 1):
        if steps - step in lags:
            other = states[:count].roll(1, 0)
            states = torch.cat([states, other])
            first.append((other - states[:count])[:, own].norm(dim=1))
            begun.append(steps - step)
        if step < steps:
            states = trace.map.advance(states, trace.inputs[:, step].repeat(len(states) // count, 1))
    last = (states[count:].unflatten(0, (len(begun), count)) - states[:count])[:, :, own].norm(dim=2)
    start = torch.stack(first)
    return (last / start).flip(0) if bool((start > 0).all()) else None

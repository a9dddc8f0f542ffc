"""Impulses on top of real sequences: the law by which one change is forgotten, asked of several sequences apart."""

from dataclasses import dataclass

import numpy as np
import torch

from sostenuto.audits.memory.replacement import ReplacedInput
from sostenuto.audits.memory.responses import Prober
from sostenuto.audits.memory.tail import fit_tail, lost_half
from sostenuto.results import Record

SEQUENCES = 3
DIRECTIONS = 2
MOST_LAGS = 96
LONGEST = 2048
"""Lags beyond this are not asked about one impulse."""


@dataclass(frozen=True, kw_only=True)
class ImpulseLaw(Record):
    """How one impulse of the data's own size on top of one sequence is forgotten."""

    kind: str
    rate: float | None
    error: float
    half_life: float | None


def impulse_laws(subject: ReplacedInput, seed: int) -> tuple[ImpulseLaw, ...]:
    """Ask about impulses of random direction and the data's own size, on top of the longest sequences."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(subject.values), generator=generator)
    longest = order[subject.lengths[order].argsort(descending=True, stable=True)][:SEQUENCES]
    spread = subject.true_steps.std(0, correction=0).to(subject.values)
    found = []
    for row in longest.tolist():
        steps = int(subject.lengths[row])
        horizon = min(steps - 1, LONGEST)
        signs = torch.randint(0, 2, (DIRECTIONS, len(spread)), generator=generator) * 2 - 1
        baseline = subject.values[row, steps - horizon - 1 : steps]
        found.append(_law(subject, baseline, signs * spread, horizon))
    return tuple(found)


def _law(subject: ReplacedInput, baseline: torch.Tensor, directions: torch.Tensor, horizon: int) -> ImpulseLaw:
    prober = Prober.prepare(
        subject.model, "impulse", horizon, baseline, lead=0, batch_size=subject.batch_size, most_lags=MOST_LAGS
    )
    answers, largest = prober.ask(directions.to(prober.baseline))
    if subject.classes:
        answers = answers - answers.mean(-1, keepdims=True)
    series = answers.transpose(1, 0, 2).reshape(len(prober.lags), -1)
    noise = prober.noise(largest)
    tail = fit_tail(prober.lags.astype(float), series, noise=noise)
    memory = np.abs(series).max(1)
    half = lost_half(prober.lags, np.where(memory > noise, memory, 0.0), tail)
    return ImpulseLaw(kind=tail.kind, rate=tail.rate, error=tail.error, half_life=half)

"""Impulses on top of real sequences: the law by which one change is forgotten, asked of several sequences apart."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sostenuto.audits.memory.replacement import ReplacedInput
from sostenuto.audits.memory.responses import Prober
from sostenuto.audits.memory.tail import fit_tail, lost_half
from sostenuto.results import Record

GROUPS, SEQUENCES = 3, 4
"""Groups of sequences that must agree, and sequences in each."""
MOST_LAGS = 96
LONGEST = 2048
"""Lags beyond this are not asked about one impulse."""


@dataclass(frozen=True, kw_only=True)
class ImpulseLaw(Record):
    """How impulses of the data's own size on top of a few sequences are forgotten.

    ``kind``, ``rate`` and ``error`` are the law on top of the first; ``half_life`` is the lag at which half of the root
    mean square over all of them is lost for good.
    """

    kind: str
    rate: float | None
    error: float
    half_life: float | None


def impulse_laws(subject: ReplacedInput, seed: int) -> tuple[ImpulseLaw, ...]:
    """Ask about impulses of random direction and the data's own size, on top of three groups of long sequences."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(subject.values), generator=generator)
    wanted = min(GROUPS * SEQUENCES, len(order))
    longest = order[subject.lengths[order].argsort(descending=True, stable=True)][:wanted]
    horizon = min(int(subject.lengths[longest].min()) - 1, LONGEST)
    spread = subject.true_steps.std(0, correction=0).to(subject.values)
    signs = torch.randint(0, 2, (wanted, len(spread)), generator=generator) * 2 - 1
    found = [
        _responses(subject, row, sign * spread, horizon) for row, sign in zip(longest.tolist(), signs, strict=True)
    ]
    return tuple(_law(found[group::GROUPS] or found[:1]) for group in range(GROUPS))


def _responses(
    subject: ReplacedInput, row: int, direction: Tensor, horizon: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Give lags, the responses (lag, out) to one impulse, and their rounding."""
    steps = int(subject.lengths[row])
    baseline = subject.values[row, steps - horizon - 1 : steps]
    prober = Prober.prepare(
        subject.model, "impulse", horizon, baseline, lead=0, batch_size=subject.batch_size, most_lags=MOST_LAGS
    )
    answers, largest = prober.run(direction[None].to(prober.baseline))
    if subject.classes:
        answers = answers - answers.mean(-1, keepdims=True)
    return prober.lags, answers[0], prober.noise(largest)


def _law(found: list[tuple[np.ndarray, np.ndarray, float]]) -> ImpulseLaw:
    lags, first, noise = found[0]
    tail = fit_tail(lags.astype(float), first, noise=noise)
    memory = np.sqrt(np.mean([np.square(responses).mean(-1) for _, responses, _ in found], axis=0))
    half = lost_half(lags, np.where(memory > max(one[2] for one in found), memory, 0.0), tail)
    return ImpulseLaw(kind=tail.kind, rate=tail.rate, error=tail.error, half_life=half)

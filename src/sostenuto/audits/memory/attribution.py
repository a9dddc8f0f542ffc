"""What the answers rest on: which steps and which channels change them when they are those of another sequence."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult, Check, Judged
from sostenuto.audits.batches import RegressionBatch, read_sequences
from sostenuto.audits.context import AuditContext
from sostenuto.audits.memory.replacement import ReplacedInput, drawn_donors
from sostenuto.audits.model import audited, place_of, widened
from sostenuto.checks import check_count, require
from sostenuto.report.numbers import percent
from sostenuto.results import Record
from sostenuto.training.processes import environment

RESAMPLES = 200
MOST_PARTS = 12
"""Parts that the time, or the channels, are cut into at most."""
METHOD = (
    "The steps of one part of the time, or one channel throughout, were replaced by those of other sequences; the "
    "root mean square change of the answers beyond the model's own noise, as a share of what replacing everything "
    "changes, with 95 % intervals over sequences."
)


@dataclass(frozen=True, kw_only=True)
class Share(Record):
    """A part of the input and its share: what replacing it changes over what replacing everything changes.

    ``low`` and ``high`` are the ends of its interval, ``turned`` the share of decisions it turns (None for numbers).
    """

    name: str
    share: float
    low: float
    high: float
    turned: float | None


@dataclass(frozen=True, kw_only=True)
class Attribution(AuditResult):
    """The shares of the steps, in order of time, and of the channels; shares need not add up to 1.

    ``whole`` is what replacing everything changes, ``noise`` the change between calls with the same input, and
    ``hidden`` says that the first does not stand out from the second. Where lengths differ, parts count back from the
    end.
    """

    steps: tuple[Share, ...]
    channels: tuple[Share, ...]
    whole: float
    noise: float
    hidden: bool
    num_sequences: int

    def summary(self) -> str:
        """Name the steps and the channels that count most."""
        if self.hidden:
            return "What the answers rest on is not told: replacing all of the input changes them no more than noise."
        said = f"Replacing {_most(self.steps)} as much as replacing all of the input"
        said += _turned_words(self.steps)
        if len(self.channels) > 1:
            said += f" Replacing {_most(self.channels)}{_turned_words(self.channels)}"
        return said

    def plot(self, ax: Any) -> None:
        """Draw the shares of the steps, and beside them those of the channels."""
        gap = 1 if len(self.channels) > 1 else 0
        names: list[str] = []
        places: list[float] = []
        groups = [(self.steps, "steps", "o-")] + ([(self.channels, "channels", "s")] if gap else [])
        for parts, label, style in groups:
            own = np.arange(len(parts)) + len(names) + (gap if names else 0)
            shares = 100 * np.array([[one.share, one.share - one.low, one.high - one.share] for one in parts])
            ax.errorbar(own, shares[:, 0], yerr=np.maximum(shares[:, 1:].T, 0), fmt=style, capsize=3, label=label)
            names += [one.name for one in parts]
            places += own.tolist()
        ax.set_xticks(places, [name.split(" ", 1)[1] for name in names], rotation=60, ha="right")
        ax.set_ylim(bottom=0)
        ax.set_xlabel("what is replaced")
        ax.set_ylabel("of the change by all of the input, %")
        ax.legend()


def attribution(
    model: nn.Module,
    X: Any,  # noqa: N803
    *,
    lengths: Tensor | None = None,
    classes: bool = True,
    scale: float | Float[np.ndarray, " out"] = 1.0,
    donors: int = 2,
    batch_size: int = 128,
    seed: int = 0,
) -> Attribution:
    r"""Measure which steps and channels of real sequences a model's answers rest on.

    A part P of the input, a stretch of time or a channel, is replaced by the same part of another sequence, and

    $$A(P)^2 = \frac{1}{NK} \sum_{i,k} \frac{1}{m} \|f(x_i^{P,k}) - f(x_i)\|^2 - \text{noise}^2$$

    over sequences i, donors k and m outputs is compared with that of all the input. Values that occur in the data are
    put in, so that nothing outside them is asked about; steps that say the same thing share the credit.

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``; of the latter the last
            true step is judged. It is asked in evaluation mode and left as it was.
        X: padded sequences ``(n, time, channel)``.
        lengths: the true length of each; all steps if left out.
        classes: whether answers of more than one number are scores of classes; otherwise they are numbers.
        scale: what one unit of each number is worth.
        donors: other sequences that replace each.
        batch_size: sequences asked about at once.
        seed: of the choice of donors and resamples.

    >>> class Third(nn.Module):
    ...     def forward(self, x):
    ...         return torch.cat([-x[:, 2, :1], x[:, 2, :1]], 1)
    >>> X = torch.randn(40, 6, 2, generator=torch.Generator().manual_seed(0))
    >>> found = attribution(Third(), X)
    >>> [round(one.share, 2) for one in found.steps], [round(one.share, 2) for one in found.channels]
    ([0.0, 0.0, 1.0, 0.0, 0.0, 0.0], [1.0, 0.0])
    """
    check_count("donors", donors)
    check_count("batch_size", batch_size)
    check_count("seed", seed, least=0)
    asked, model = type(model).__name__, widened(model)
    values, told = read_sequences(model, X, lengths)
    known = torch.full((len(values),), values.shape[1]) if told is None else told
    drawn = drawn_donors(len(values), donors, seed)
    factors = np.atleast_1d(np.asarray(scale, float))
    subject = ReplacedInput(model, values, known, drawn, False, factors, batch_size)
    with audited(model, seed):
        several = subject.run(values[:1]).shape[-1] > 1
        subject = ReplacedInput(model, values, known, drawn, classes and several, factors, batch_size)
        answers = subject.run(values)
        noise = float(np.sqrt(np.mean([np.square(subject.run(values) - answers).mean() for _ in range(2)])))
        noise = max(noise, subject.precision() * float(np.abs(answers).max()))
        everything = subject.changes(subject.older(0), answers)[0]
        require(not np.isnan(everything).all(), "expected sequences that differ from each other", "got equal ones")
        parts = [(name, where, None) for name, where in _stretches(subject)]
        parts += [(name, subject.older(0), own) for name, own in _channels(values.shape[2])]
        found = [(name, own, *_changes(subject, where, own, answers)) for name, where, own in parts]
    shares = [
        (own, _share(name, squares, turned if subject.classes else None, everything, noise, seed))
        for name, own, squares, turned in found
    ]
    whole = float(np.sqrt(max(np.nanmean(everything) - noise**2, 0.0)))
    device, dtype = place_of(model)
    return Attribution(
        model=asked,
        method=METHOD,
        seed=seed,
        settings={"donors": donors, "precision": str(dtype).removeprefix("torch.")},
        checksum=hashlib.sha256(values.double().numpy().tobytes()).hexdigest()[:16],
        environment=environment(str(device)),
        steps=tuple(one for own, one in shares if own is None),
        channels=tuple(one for own, one in shares if own is not None),
        whole=whole,
        noise=noise,
        hidden=whole <= 2 * noise,
        num_sequences=len(values),
    )


def _stretches(subject: ReplacedInput) -> list[tuple[str, Bool[Tensor, "batch time"]]]:
    """Cut the time into parts of about equal length: from the start, or back from the end where lengths differ."""
    longest, true = subject.values.shape[1], subject.older(0)
    equal = bool((subject.lengths == longest).all())
    edges = np.linspace(0, longest, min(MOST_PARTS, longest) + 1).round().astype(int).tolist()
    found = []
    for first, last in pairwise(edges):
        if equal:
            where = (subject.steps >= first) & (subject.steps < last) & true
            name = f"{first + 1}" if last == first + 1 else f"{first + 1}–{last}"
            found.append((f"step {name}" if last == first + 1 else f"steps {name}", where))
        else:
            ages = subject.lengths[:, None] - 1 - subject.steps
            where = (ages >= first) & (ages < last) & true
            name = f"−{first}" if last == first + 1 else f"−{last - 1}–−{first}"
            found.append((f"steps {name}", where))
    return found if equal else found[::-1]


def _channels(count: int) -> list[tuple[str, slice]]:
    """Name each channel, or groups of neighbors where there are many."""
    edges = np.linspace(0, count, min(MOST_PARTS, count) + 1).round().astype(int).tolist()
    return [
        (f"channel {first + 1}" if last == first + 1 else f"channels {first + 1}–{last}", slice(first, last))
        for first, last in pairwise(edges)
    ]


def _changes(
    subject: ReplacedInput, where: Bool[Tensor, "batch time"], own: slice | None, answers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give the squared change of each answer and whether the decision changes, by (batch, round)."""
    squares, turned = [], []
    for number in range(len(subject.donors)):
        mixture, _ = subject.mixed(where, number)
        if own is not None:
            kept = subject.values.clone()
            kept[:, :, own] = mixture[:, :, own]
            mixture = kept
        asked = subject.run(mixture)
        squares.append(np.square(asked - answers).mean(-1))
        turned.append(asked.argmax(-1) != answers.argmax(-1))
    return np.stack(squares, 1), np.stack(turned, 1)


def _share(
    name: str, squares: np.ndarray, turned: np.ndarray | None, everything: np.ndarray, noise: float, seed: int
) -> Share:
    """Compare a part's change with that of everything, with an interval over sequences."""
    pairs = np.stack([squares.mean(1), np.nan_to_num(np.nanmean(everything, axis=1))])
    rows = np.random.default_rng((seed, 11)).integers(0, len(squares), (RESAMPLES, len(squares)))
    drawn = pairs[:, rows].mean(2)
    mean, drawn = (np.sqrt(np.maximum(one - noise**2, 0.0)) for one in (pairs.mean(1), drawn))
    low, high = np.quantile(drawn[0] / np.maximum(drawn[1], 1e-300), [0.025, 0.975])
    share = float(mean[0] / max(mean[1], 1e-300))
    return Share(
        name=name,
        share=share,
        low=float(low),
        high=float(high),
        turned=None if turned is None else float(turned.mean()),
    )


def _most(parts: tuple[Share, ...]) -> str:
    """Name the part with the largest share."""
    best = max(parts, key=lambda one: one.share)
    interval = f"{percent(best.share)} ({percent(best.low)} to {percent(best.high)})"
    return f"{best.name} alone changes the answers {interval}"


def _turned_words(parts: tuple[Share, ...]) -> str:
    """Say how many decisions that part turns, and which others cannot be told from it."""
    best = max(parts, key=lambda one: one.share)
    rivals = [one.name for one in parts if one is not best and one.high >= best.low]
    said = "." if best.turned is None else f", and turns {percent(best.turned)} of decisions."
    if not rivals:
        return said
    names = f"{len(rivals)} other parts" if len(rivals) > 3 else " and ".join(rivals)
    return f"{said} {names[:1].upper()}{names[1:]} may count as much."


def _run(context: AuditContext) -> Attribution:
    channels, steps = context.data.values.shape[2], context.data.values.shape[1]
    calls = 2 * (min(MOST_PARTS, channels) + min(MOST_PARTS, steps)) + 6
    data = context.affordable(forward=calls)
    numbers = isinstance(data, RegressionBatch)
    return attribution(
        context.model,
        data.values,
        lengths=data.lengths,
        classes=not numbers,
        scale=data.scale.numpy() if numbers else 1.0,
        seed=context.seed,
    )


def _judge(result: Attribution, limits: Mapping[str, float]) -> Judged:  # noqa: ARG001 (a description has none)
    return Judged("unknown", "Not told" if result.hidden else "Described")


CHECK = Check(
    name="attribution",
    title="What does it look at?",
    caption="How much of the answers' dependence on the input each part of the time, and each channel, carries.",
    order=15,
    result=Attribution,
    run=_run,
    judge=_judge,
    describes=True,
)

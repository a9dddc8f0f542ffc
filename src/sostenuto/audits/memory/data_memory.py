"""Memory on the data: how much an answer changes where older input is that of another sequence."""

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.base import UNDECIDED, AuditResult, Check, Judged
from sostenuto.audits.batches import RegressionBatch
from sostenuto.audits.context import AuditContext
from sostenuto.audits.memory.impulses import ImpulseLaw, impulse_laws
from sostenuto.audits.memory.proved import ProvedMemory, proved_memory
from sostenuto.audits.memory.replacement import ReplacedInput, drawn_donors
from sostenuto.audits.model import audited, place_of, widened
from sostenuto.checks import check_count, check_positive, require
from sostenuto.report.numbers import counted, number, percent, with_unit
from sostenuto.results import Numbers, Record
from sostenuto.training.processes import environment

SENSITIVE, AMPLIFIED = 0.01, 100.0
"""A change of the input at rounding size that changes answers by this share of all there is, or so many times more than
its size explains: chaos, not memory."""
NOISY = 0.5
"""A model whose own noise is this share of the effect of all input answers by chance rather than by its input."""
SHAKEN = 4
"""The size of that change, in units of the number format."""
SHAKE = 1e-3
"""Share of the input's size by which it is changed in float64, too: chaos has grown beyond it, where a decision that
flips at a threshold has not."""
ROUNDING = 64
"""Rounding errors of an answer, in units of the number format and of the largest answer."""
RESAMPLES = 200
LEAST_ROWS = 4
"""A lag that fewer sequences reach is not measured."""
LONG, SHORT = 0.25, 0.05
"""Shares of the sequences' length from which a half-life is long, and below which next to nothing is kept."""
GROWING = 2.0
"""A block of old input that changes the answers so many times more than a recent one, half of that growth by the middle
of the sequence: what chaos and growth do to every change."""
LEAST_STEPS = 8
"""Shorter sequences do not show how long a model remembers."""
PASSES = 60
"""About so many calls does the measurement take per sequence."""

Reason = Literal["", "brief", "constant", "random", "sensitive", "disagree", "close"]
REASONS: dict[str, str] = {
    "brief": f"the sequences are shorter than {LEAST_STEPS} steps",
    "constant": "the answers do not depend on the input",
    "random": "the model's own noise hides what older input changes",
    "sensitive": "a change of the input at rounding size changes the answers too, so that it cannot be told what they "
    "remember",
    "disagree": "the data and single impulses do not agree",
    "close": "the interval holds both long and short half-lives",
}


@dataclass(frozen=True, kw_only=True)
class MemoryCurve(Record):
    """The change of the answer at each lag, its 95 % interval, and the share of decisions that change."""

    lags: tuple[int, ...]
    change: Numbers
    low: Numbers
    high: Numbers
    turned: Numbers


@dataclass(frozen=True, kw_only=True)
class DataMemory(AuditResult):
    """What older input changes in the answers on the data, beyond the model's own noise.

    ``older`` replaces all input before the last n steps, as a share of what replacing everything changes; ``step`` only
    ``width`` steps at that lag, in ``unit``. ``half_life`` is the lag at which half of the first is gone (None: not
    within the data), ``half_time`` the same in ``time_unit``. ``depends_on`` is the n beyond which no replacement
    changed any answer by more than ``tolerance`` (None: none such), its lower end from resampling; for at most a share
    of ``exceptions`` of sequences it is longer, at 95 % confidence. ``noise`` is the change between calls with the same
    input, ``rounding`` that by a change of the input at rounding size. ``kind`` and ``rate`` are the law of impulses on
    top of the data, where all ``impulses`` agree. ``hidden`` says why there is nothing to judge, if so.
    """

    unit: str
    tolerance: float
    num_sequences: int
    donors: int
    num_steps: int
    horizon: int
    width: int
    whole: float
    noise: float
    rounding: float
    older: MemoryCurve
    step: MemoryCurve
    half_life: float | None
    half_life_low: float
    half_life_high: float | None
    half_time: float | None
    time_unit: str
    depends_on: int | None
    depends_on_low: int
    exceptions: float
    looks_ahead: bool | None
    kind: str
    rate: float | None
    impulses: tuple[ImpulseLaw, ...]
    hidden: Reason
    proved: ProvedMemory | None = None

    def longer_than(self, share: float) -> tuple[bool | None, Reason]:
        """Say whether the half-life is that share of the sequences' length, or why it is not decided.

        Both the interval of the data and all impulses must lie on one side.
        """
        if self.hidden:
            return None, self.hidden
        least = share * self.num_steps
        high = inf if self.half_life_high is None else self.half_life_high
        single = [inf if law.half_life is None else law.half_life for law in self.impulses]
        if self.half_life_low >= least:
            return (True, "") if min(single) >= least else (None, "disagree")
        if high < least:
            return (False, "") if max(single) < least else (None, "disagree")
        return None, "close"

    @property
    def is_growing(self) -> bool:
        """Whether one block of input counts for more the older it is, from a sixth of the steps to five sixths."""
        ages = np.array([1, 3, 5]) / 6 * self.num_steps
        recent, middle, old = np.interp(ages, self.step.lags, self.step.change)
        return bool(recent > 0 and old >= GROWING * recent and middle >= np.sqrt(GROWING) * recent)

    @property
    def is_long(self) -> bool | None:
        """Whether the half-life is a quarter of the sequences' length; None where that is not decided."""
        return self.longer_than(LONG)[0]

    @property
    def turned(self) -> float:
        """The share of decisions that change where all but the last half-life is replaced."""
        lags, turned = self.older.lags, self.older.turned
        return float(np.interp(self.half_life if self.half_life is not None else self.horizon, lags, turned))

    def summary(self) -> str:
        """Say how far back the answers reach, in a sentence or two."""
        if self.hidden:
            said = f"How long it remembers is undecided: {REASONS[self.hidden]}"
        else:
            turned = f", and turns {percent(self.turned)} of decisions" if self.older.turned else ""
            said = f"{self._half()}{turned}. {self._depends()}"
        if self.proved is not None:
            said += f". {self.proved.told}"
        if self.looks_ahead:
            said += ". The model also looks ahead: its answers at a step change with later input"
        return f"{said}."

    def plainly(self) -> str:
        """Say it in a sentence for a reader who decides and does not compute."""
        if self.hidden:
            return f"How long this model remembers cannot be told: {REASONS[self.hidden]}."
        if self.half_life is None:
            return (
                f"What came first still counts: after {counted(self.horizon, 'step')} more than half of its effect on "
                "the answers is left."
            )
        steps = counted(max(round(self.half_life), 1), "step")
        return (
            f"The last {steps} count most: changing everything before them moves the answers half as much as changing "
            "everything."
        )

    def _half(self) -> str:
        if self.half_life is None:
            return (
                f"Replacing all input older than {self.horizon} steps still changes the answers "
                f"{percent(self.older.change[-1])} as much as replacing all of it"
            )
        high = "more" if self.half_life_high is None else number(self.half_life_high, digits=3)
        low = number(self.half_life_low, digits=3)
        return (
            f"Replacing all input older than {number(self.half_life, digits=3)} steps ({low} to {high}) changes the "
            "answers half as much as replacing all of it"
        )

    def _depends(self) -> str:
        size = with_unit(self.tolerance, self.unit) + (" in a score" if self.older.turned else "")
        if self.depends_on is None:
            if self.noise > self.tolerance:
                return f"The model's own noise is larger than {size}, so how far back answers depend is not told"
            return f"Answers depend on all of the input: even the oldest changes some by more than {size}"
        last = "last step" if self.depends_on == 1 else f"last {self.depends_on} steps"
        return f"Answers depend on the {last}: older input changes none by more than {size}"

    def plot(self, ax: Any) -> None:
        """Draw what is left of the input's effect by its age, with its interval."""
        lags = np.asarray(self.older.lags) + 1
        floor = 1e-4
        high = [min(value, 10.0) if isfinite(value) else 10.0 for value in self.older.high]
        ax.fill_between(lags, np.maximum(self.older.low, floor), np.maximum(high, floor), alpha=0.25)
        ax.plot(lags, np.maximum(self.older.change, floor), label="all older input replaced")
        if self.whole > 0:
            single = np.maximum(np.asarray(self.step.change) / self.whole, floor)
            steps = f"{self.width} steps" if self.width > 1 else "one step"
            ax.plot(np.asarray(self.step.lags) + 1, single, linestyle="--", label=f"{steps} replaced")
        ax.axhline(0.5, linestyle=":", linewidth=1)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("age of the replaced input in steps + 1")
        ax.set_ylabel("share of the effect of all input")
        ax.legend()


def data_memory(
    model: nn.Module,
    X: Any,  # noqa: N803
    *,
    lengths: Tensor | None = None,
    classes: bool = True,
    tolerance: float | None = None,
    scale: float | Float[np.ndarray, " out"] = 1.0,
    unit: str = "",
    lags: int = 14,
    donors: int = 2,
    budget: int = 2_400_000,
    time_step: float = 1.0,
    time_unit: str = "steps",
    batch_size: int = 128,
    seed: int = 0,
) -> DataMemory:
    r"""Measure what older input changes in a model's answers on real sequences.

    At lag n the input before the last n steps is replaced by that of another sequence, and

    $$C(n)^2 = \frac{1}{NK} \sum_{i,k} \frac{1}{m} \|f(x_i^{n,k}) - f(x_i)\|^2 - \text{noise}^2$$

    over sequences i, donors k and m outputs is compared with C(0) of the same sequences. Scores of classes are taken
    less their mean over the classes, as log-probabilities are. Intervals resample sequences and donors.

    Args:
        model: maps ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``; of the latter the last
            true step is judged. It is asked in evaluation mode and left as it was.
        X: padded sequences ``(n, time, channel)``.
        lengths: the true length of each; all steps if left out.
        classes: whether answers of more than one number are scores of classes; otherwise they are numbers.
        tolerance: the change of an answer that is too small to matter: 0.01 for classes (of a log-probability less the
            mean over the classes), a hundredth of the answers' standard deviation for numbers, if left out.
        scale: what one unit of each number is worth in ``unit``.
        unit: the unit of the answers, for the sentences.
        lags: lags of the first, logarithmic grid; later ones refine it where half is lost and where dependence ends.
        donors: other sequences that replace each.
        budget: how many steps may be asked about in all; fewer sequences are used where it does not suffice.
        time_step: time between two steps, in ``time_unit``.
        time_unit: its name, in the plural.
        batch_size: sequences asked about at once.
        seed: of the choice of sequences, donors and resamples.

    >>> class Leak(nn.Module):
    ...     def forward(self, x):
    ...         steps = torch.arange(x.shape[1])
    ...         return torch.einsum("st,btc->bsc", torch.tril(0.9 ** (steps[:, None] - steps)), x)
    >>> X = torch.randn(40, 100, 1, generator=torch.Generator().manual_seed(0))
    >>> found = data_memory(Leak(), X, classes=False)
    >>> found.half_life_low < 6.6 < found.half_life_high, found.kind, round(found.rate, 3), found.is_long
    (True, 'exponential', 0.105, False)
    """
    for name, count in (("lags", lags), ("donors", donors), ("batch_size", batch_size), ("budget", budget)):
        check_count(name, count)
    check_count("seed", seed, least=0)
    for name, value in (("time_step", time_step), ("tolerance", tolerance or 1.0)):
        check_positive(name, value)
    asked, model = type(model).__name__, widened(model)
    values = torch.as_tensor(X, dtype=torch.float64 if place_of(model)[1] == torch.float64 else torch.float32)
    known = torch.full((len(values),), values.shape[1]) if lengths is None else lengths
    rows = _affordable(known, budget // ((lags + REFINED) * donors + lags + 4), seed)
    values, known = values[rows][:, : int(known[rows].max())], known[rows]
    factors = np.atleast_1d(np.asarray(scale, float))
    drawn = drawn_donors(len(values), donors, seed)
    subject = ReplacedInput(model, values, known, drawn, False, factors, batch_size)
    with audited(model, seed):
        several = subject.run(values[:1]).shape[-1] > 1
        subject = replace(subject, classes=classes and several)
        found = _Measurement.run(subject, lags, tolerance, seed)
        laws = impulse_laws(subject, seed)
        ahead = _looks_ahead(subject)
        proved = proved_memory(model, found.lags, subject, seed)
    half, low, high = found.half_life()
    kinds = {law.kind for law in laws}
    rates = [law.rate for law in laws if law.rate is not None]
    span = int(known.max())
    depends, depends_low = found.depends_on()
    device, dtype = place_of(model)
    return DataMemory(
        model=asked,
        method=METHOD,
        seed=seed,
        settings={
            "lags": lags,
            "donors": donors,
            "budget": budget,
            "precision": str(dtype).removeprefix("torch."),
        },
        checksum=hashlib.sha256(values.double().numpy().tobytes()).hexdigest()[:16],
        environment=environment(str(device)),
        unit=unit,
        tolerance=found.tolerance,
        num_sequences=len(values),
        donors=len(drawn),
        num_steps=span,
        horizon=found.lags[-1],
        width=found.width,
        whole=found.whole,
        noise=found.noise,
        rounding=found.rounding,
        older=found.older_curve(),
        step=found.step_curve(),
        half_life=_finite(half),
        half_life_low=low if isfinite(low) else float(found.lags[-1]),
        half_life_high=_finite(high),
        half_time=half * time_step if isfinite(half) else None,
        time_unit=time_unit,
        depends_on=depends,
        depends_on_low=depends_low,
        exceptions=1 - 0.05 ** (1 / len(values)),
        looks_ahead=ahead,
        kind=laws[0].kind if len(kinds) == 1 else "no law",
        rate=float(np.median(rates)) if rates and len(kinds) == 1 else None,
        impulses=laws,
        hidden="brief" if span < LEAST_STEPS else found.hidden(),
        proved=proved,
    )


METHOD = (
    "All input older than so many steps, and in turn a short block of that age, was replaced by that of other "
    "sequences; shown is the change of the answers beyond the model's own noise, with 95 % intervals. Single impulses "
    "on top of three groups of sequences were asked about too, and must agree."
)
REFINED = 8
"""Lags asked about besides the first grid, at most."""


def _affordable(lengths: Tensor, steps: int, seed: int) -> Tensor:
    """Draw as many sequences as a number of steps allows, at least 12 where there are so many."""
    count = max(min(len(lengths), steps // int(lengths.max())), min(12, len(lengths)))
    return torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed))[:count].sort().values


@dataclass(eq=False)
class _Measurement:
    """Squared changes by (sequence, donor) at each lag, and the noise they stand out from."""

    subject: ReplacedInput
    answers: np.ndarray
    tolerance: float
    width: int
    noise: float
    largest_noise: float
    rounding: float
    amplified: float
    precision: float
    seed: int
    squares: dict[int, np.ndarray]
    turns: dict[int, np.ndarray]
    blocks: dict[int, np.ndarray]

    @classmethod
    def run(cls, subject: ReplacedInput, count: int, tolerance: float | None, seed: int) -> "_Measurement":
        """Measure the noise, the grid, and where it has to be finer."""
        answers = subject.run(subject.values)
        again = [np.square(subject.run(subject.values) - answers).mean(-1) for _ in range(2)]
        turned = subject.run(subject.values.flip(0), None) if len(subject.lengths.unique()) == 1 else answers[::-1]
        again.append(np.square(turned[::-1] - answers).mean(-1))
        precision = subject.precision()
        floor = (ROUNDING * precision * np.abs(answers).max()) ** 2
        noise = np.stack(again)
        shaken = subject.run(_shaken(subject, SHAKEN * precision, seed))
        if tolerance is None:
            tolerance = 0.01 if subject.classes else 0.01 * float(answers.std(0).mean())
        found = cls(
            subject,
            answers,
            tolerance,
            max(1, subject.values.shape[1] // 64),
            float(np.sqrt(max(noise.mean(), floor / ROUNDING**2))),
            float(np.sqrt(max(noise.max(), floor))),
            float(np.sqrt(max(np.square(shaken - answers).mean() - noise.mean(), 0.0))),
            _amplified(subject, seed),
            precision,
            seed,
            {},
            {},
            {},
        )
        reached = torch.sort(subject.lengths, descending=True).values[min(LEAST_ROWS, len(answers)) - 1]
        horizon = max(int(reached) - 1, 1)
        for lag in _grid(horizon, count):
            found._measure(lag)
        require(
            not np.isnan(found.squares[0]).all(), "expected sequences that differ from each other", "got equal ones"
        )
        found._refine()
        for lag in _grid(horizon - found.width, count) if horizon > found.width else [0]:
            found.blocks[lag] = subject.changes(subject.block(lag, found.width), answers)[0]
        return found

    @property
    def lags(self) -> list[int]:
        """Every lag at which some replacement has something to change, in order."""
        return [lag for lag in sorted(self.squares) if not np.isnan(self.squares[lag]).all()]

    @property
    def whole(self) -> float:
        """What replacing all input changes, beyond noise."""
        return self._root(self.squares[0])

    def _measure(self, lag: int) -> None:
        self.squares[lag], self.turns[lag] = self.subject.changes(self.subject.older(lag), self.answers)

    def _refine(self) -> None:
        """Ask about lags between those where half is lost, and between those where dependence ends."""
        for crossing in (self._half_bracket, self._end_bracket):
            for _ in range(REFINED // 2):
                low, high = crossing()
                if high - low <= 1:
                    break
                self._measure(round(np.sqrt(low * high)) if low > 1 else (low + high) // 2)

    def _half_bracket(self) -> tuple[int, int]:
        return self._bracket(self._shares(self._all_rows())[0] > 0.5)

    def _end_bracket(self) -> tuple[int, int]:
        return self._bracket(np.array([np.nanmax(self.squares[lag]) > self._limit for lag in self.lags]))

    def _bracket(self, above: np.ndarray) -> tuple[int, int]:
        """Bracket where a curve falls below its limit: beyond the last lag where input that is older is all alike.

        The first pixels of every digit are black, and nothing changes where they alone are replaced.
        """
        low, high = _bracket(self.lags, above)
        alike = [lag for lag in self.squares if lag > low]
        return low, min(alike) if low == self.lags[-1] and alike else high

    @property
    def _limit(self) -> float:
        return max(self.tolerance, self.largest_noise) ** 2

    def _all_rows(self) -> np.ndarray:
        return np.arange(len(self.answers))[None]

    def _root(self, squares: np.ndarray) -> float:
        return float(np.sqrt(max(np.nanmean(squares) - self.noise**2, 0.0)))

    def _shares(self, rows: np.ndarray) -> np.ndarray:
        """Give C(n)/C(0) of the sequences that n replaces something of, by (resample, lag)."""
        generator = np.random.default_rng((self.seed, 7))
        count = self.squares[0].shape[1]
        chosen = None if len(rows) == 1 else generator.integers(0, count, (*rows.shape, count))
        shares = []
        for lag in self.lags:
            pairs = []
            for squares in (self.squares[lag], np.where(np.isnan(self.squares[lag]), np.nan, self.squares[0])):
                taken = squares[rows] if chosen is None else np.take_along_axis(squares[rows], chosen, 2)
                filled = np.nan_to_num(taken).sum((1, 2)) / np.maximum((~np.isnan(taken)).sum((1, 2)), 1)
                pairs.append(np.sqrt(np.maximum(filled - self.noise**2, 0.0)))
            shares.append(np.divide(pairs[0], pairs[1], out=np.zeros_like(pairs[0]), where=pairs[1] > 0))
        return np.stack(shares, 1)

    def _resampled(self) -> np.ndarray:
        count = len(self.answers)
        return self._shares(np.random.default_rng((self.seed, 8)).integers(0, count, (RESAMPLES, count)))

    def older_curve(self) -> MemoryCurve:
        """Give the shares at each lag with their interval."""
        resampled = self._resampled()
        low, high = np.quantile(resampled, [0.025, 0.975], axis=0)
        return MemoryCurve(
            lags=tuple(self.lags),
            change=tuple(self._shares(self._all_rows())[0].tolist()),
            low=tuple(low.tolist()),
            high=tuple(high.tolist()),
            turned=tuple(float(np.nanmean(self.turns[lag])) for lag in self.lags) if self.subject.classes else (),
        )

    def step_curve(self) -> MemoryCurve:
        """Give what one block changes at each lag, with its interval over sequences."""
        generator = np.random.default_rng((self.seed, 9))
        lags = [lag for lag in sorted(self.blocks) if not np.isnan(self.blocks[lag]).all()]
        ends = []
        for lag in lags:
            blocks = self.blocks[lag]
            means = np.nanmean(blocks[~np.isnan(blocks).all(1)], axis=1)
            drawn = means[generator.integers(0, len(means), (RESAMPLES, len(means)))].mean(1)
            ends.append(np.sqrt(np.maximum(np.quantile(drawn, [0.025, 0.975]) - self.noise**2, 0.0)))
        return MemoryCurve(
            lags=tuple(lags),
            change=tuple(self._root(self.blocks[lag]) for lag in lags),
            low=tuple(float(end[0]) for end in ends),
            high=tuple(float(end[1]) for end in ends),
            turned=(),
        )

    def half_life(self) -> tuple[float, float, float]:
        """Give the lag at which half is lost for good, and its interval; infinite where it is not within the data."""
        lags = np.asarray(self.lags, float)
        drawn = np.array([_half_crossing(lags, shares) for shares in self._resampled()])
        low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
        return _half_crossing(lags, self._shares(self._all_rows())[0]), float(low), float(high)

    def hidden(self) -> Reason:
        """Say why the effect of the input cannot be told from chance or rounding, if so."""
        if self.whole <= 2 * self.noise:
            return "random" if self.noise > self.tolerance else "constant"
        explained = max(AMPLIFIED * SHAKEN * self.precision * self.whole, self.largest_noise)
        if self.rounding > min(explained, SENSITIVE * self.whole):
            return "sensitive"
        if self.amplified > AMPLIFIED * self.whole and self.noise < SENSITIVE * self.whole:
            return "sensitive"
        return "random" if self.noise > NOISY * self.whole else ""

    def depends_on(self) -> tuple[int | None, int]:
        """Give the smallest lag from which on nothing changes an answer beyond tolerance, and its lower end."""
        if self.largest_noise > self.tolerance:
            return None, 0
        lags = np.asarray(self.lags)
        beyond = np.stack([np.nanmax(np.nan_to_num(self.squares[lag]), axis=1) > self._limit for lag in self.lags], 1)
        ends = [int(lags[np.flatnonzero(row)[-1]]) + 1 if row.any() else 0 for row in beyond]
        drawn = np.random.default_rng((self.seed, 10)).choice(ends, (RESAMPLES, len(ends))).max(1)
        end = _bracket(self.lags, np.any(beyond, axis=0))[1] if beyond.any() else 0
        open_end = bool(beyond[:, -1].any())
        return None if open_end else end, int(np.quantile(drawn, 0.025, method="inverted_cdf"))


def _looks_ahead(subject: ReplacedInput) -> bool | None:
    """Say whether later input changes earlier answers beyond rounding; None where there are no earlier answers.

    A change in float32 that could be rounding is judged in float64, where rounding is a billion times smaller.
    """
    few = slice(0, min(8, len(subject.values)))
    values = subject.values[few]
    middle = int(subject.lengths[few].min()) // 2
    if middle < 1:
        return None
    changed = values.clone()
    changed[:, middle:] = subject.values[subject.donors[0][few]][:, middle:]
    for model, dtype in ((subject.model, place_of(subject.model)[1]), (None, torch.float64)):
        if model is None:
            model = copy.deepcopy(subject.model).double()
        rows = {"values": values, "lengths": subject.lengths[few], "donors": subject.donors[:, few]}
        view = replace(subject, model=model, **rows)
        before, again, after = (view.every_step(one.to(dtype)) for one in (values, values, changed))
        if before is None or again is None or after is None:
            return None
        noise = 8 * np.abs(again - before).max()
        scale = max(np.abs(before).max(), np.abs(after).max())
        moved = float(np.abs(after - before)[:, :middle].max())
        if moved <= max(noise, ROUNDING * torch.finfo(dtype).eps * scale):
            return False
        if dtype == torch.float64 or moved > 1e-2 * scale:
            return True
    return None


def _amplified(subject: ReplacedInput, seed: int) -> float:
    """Change the input by a small share of its size, in float64; give the change of a usual answer per share.

    The median over the sequences is taken, since a decision that flips at a threshold does so in few of them. A model
    that cannot be widened is not asked.
    """
    few = slice(0, min(24, len(subject.values)))
    rows = {"values": subject.values[few].double(), "lengths": subject.lengths[few], "donors": subject.donors[:, few]}
    try:
        view = replace(subject, model=copy.deepcopy(subject.model).double(), **rows)
        before = view.run(view.values)
        moved = np.abs(view.run(_shaken(view, SHAKE, seed)) - before).max(-1) / SHAKE
    except Exception:
        return 0.0
    return float(np.median(moved))


def _shaken(subject: ReplacedInput, size: float, seed: int) -> Tensor:
    """Change every true value by a share of it and of what is usual, up or down by chance."""
    signs = torch.randint(0, 2, subject.values.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    shaken = subject.values * (1 + size * signs) + size * subject.true_steps.abs().mean(0).to(subject.values) * signs
    return torch.where(subject.older(0)[:, :, None], shaken, subject.values)


def _grid(horizon: int, count: int) -> list[int]:
    return np.unique(np.concatenate([[0], np.geomspace(1, max(horizon, 1), count)]).round().astype(int)).tolist()


def _bracket(lags: list[int], above: Any) -> tuple[int, int]:
    """Give the last lag where a curve is above its limit and the next one, where it is below for good."""
    if not above.any():
        return lags[0], lags[0]
    index = int(np.flatnonzero(above)[-1])
    return lags[index], lags[min(index + 1, len(lags) - 1)]


def _half_crossing(lags: np.ndarray, shares: np.ndarray) -> float:
    """Find where a curve falls below a half for good, between two lags in the logarithm of lag + 1."""
    envelope = np.maximum.accumulate(shares[::-1])[::-1]
    below = np.flatnonzero(envelope <= 0.5)
    if len(below) == 0:
        return inf
    index = int(below[0])
    if index == 0:
        return 0.0
    high, low = envelope[index - 1], envelope[index]
    part = (high - 0.5) / (high - low)
    ends = np.log(lags[index - 1 : index + 1] + 1)
    return float(np.exp(ends[0] + part * (ends[1] - ends[0])) - 1)


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _run(context: AuditContext) -> DataMemory:
    data = context.affordable(forward=PASSES)
    numbers = isinstance(data, RegressionBatch)
    quick = context.budget.steps <= 256
    return data_memory(
        context.model,
        data.values,
        lengths=data.lengths,
        classes=not numbers,
        tolerance=0.01 * data.guess if numbers and data.guess > 0 else None,
        scale=data.scale.numpy() if numbers else 1.0,
        unit=context.target_unit if numbers else "",
        lags=14 if quick else 28,
        donors=2 if quick else 4,
        budget=2_400_000 if quick else 20_000_000,
        time_step=context.time_step,
        time_unit=context.time_unit,
        seed=context.seed,
    )


def _judge(result: DataMemory, limits: Mapping[str, float]) -> Judged:
    is_long, reason = result.longer_than(limits["long"])
    if is_long:
        return Judged("good", "Long memory" if result.half_life is not None else "Remembers throughout")
    if is_long is None:
        return Judged("unknown", UNDECIDED, "" if result.hidden else f"Not judged, as {REASONS[reason]}.")
    at_once = result.longer_than(limits["short"])[0] is False
    return Judged("caution", "Forgets at once" if at_once else "Short memory")


def _number(result: DataMemory) -> float | None:
    if result.hidden:
        return None
    return float(result.horizon) if result.half_life is None else result.half_life


CHECK = Check(
    name="memory",
    title="How long does it remember?",
    caption="What is left of the input's effect on the answers, by its age.",
    order=10,
    result=DataMemory,
    run=_run,
    judge=_judge,
    thresholds={"long": LONG, "short": SHORT},
    number=_number,
)

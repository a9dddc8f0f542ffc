"""`OscillatorFeatures`: states of random damped oscillators, pooled over time."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float32
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sostenuto.checks import InputError, check_choice, check_count, check_positive, require
from sostenuto.data.batch import as_timespans, interpolate
from sostenuto.data.scaling import channel_scale
from sostenuto.estimators.inputs import read_sequences
from sostenuto.estimators.settings import draw_seed
from sostenuto.estimators.stored import load_kernel_estimator, save_kernel_estimator
from sostenuto.kernels.gram.packed import PackedSequences
from sostenuto.ops.oscillator_bank import (
    KINDS,
    LANES,
    THRESHOLDS,
    BankStream,
    OscillatorBank,
    bank_outputs,
    bank_shares,
)
from sostenuto.types import PathLike

MOST_CHANNELS = 6
"""Channels that a unit mixes at the most."""
_SECOND = 1.2
"""A second oscillator's frequency lies within e^±1.2 of the first one's in a cascade."""
_SAMPLE_SEQUENCES, _SAMPLE_STEPS = 32, 32
_GOLDEN = (5**0.5 - 1) / 2


def draw_bank(
    n_units: int, length: float, channels: int, quality: tuple[float, float], generator: np.random.Generator
) -> OscillatorBank:
    """Draw oscillators, with thresholds of 0 as yet.

    Frequencies are log-uniform from one period in ``length`` steps to one in 2, quality factors Q = ω/2a log-uniform
    in ``quality``, phases of the read-out uniform. Blocks of units take turns in kind (single, cascade, envelope) and
    in the order of differences they read (0, 1, 2). A block reads up to `MOST_CHANNELS` channels at random; its units
    mix them with normal weights of unit norm.

    >>> bank = draw_bank(100, 50, 1, (0.3, 8.0), np.random.default_rng(0))
    >>> bank.n_units, bank.kind.tolist(), bank.order.tolist()
    (100, [0, 1, 2, 0, 1, 2, 0], [0, 0, 0, 1, 1, 1, 2])
    """
    blocks = -(-n_units // LANES)
    slowest, fastest = 2 * np.pi / max(length, 4.0), np.pi
    frequency = slowest * (fastest / slowest) ** generator.uniform(size=n_units)
    first, second = quality[0] * (quality[1] / quality[0]) ** generator.uniform(size=(2, n_units))
    kind = np.arange(blocks) % len(KINDS)
    beside = np.clip(frequency * np.exp(generator.uniform(-_SECOND, _SECOND, n_units)), slowest, fastest)
    below = slowest * (frequency / slowest) ** generator.uniform(size=n_units)
    follows = np.repeat(kind, LANES)[:n_units] == KINDS.index("envelope")
    second_frequency = np.where(follows, below, beside)
    used = min(channels, MOST_CHANNELS)
    picked = np.stack([generator.permutation(channels)[:used] for _ in range(blocks)])
    mix = generator.normal(size=(n_units, used))
    counts = np.floor(np.exp(generator.uniform(0, np.log(used + 1), blocks))).astype(int)
    mix *= np.arange(used) < np.repeat(counts, LANES)[:n_units, None]
    mix = mix / np.linalg.norm(mix, axis=1, keepdims=True)
    return OscillatorBank(
        rate=_rates(frequency, first),
        second_rate=_rates(second_frequency, second),
        phase=torch.from_numpy(generator.uniform(0, 2 * np.pi, n_units)),
        mix=torch.from_numpy(mix),
        kind=torch.from_numpy(kind),
        order=torch.from_numpy(np.arange(blocks) // len(KINDS) % 3),
        channels=torch.from_numpy(picked),
        thresholds=torch.zeros(n_units, THRESHOLDS, dtype=torch.float64),
    )


def sample_thresholds(
    bank: OscillatorBank, sequences: PackedSequences, spans: np.ndarray | None, generator: np.random.Generator
) -> torch.Tensor:
    """Set each unit's thresholds to quantiles of its outputs on some of the sequences.

    The quantiles of all units together fill (0, 1) evenly (multiples of the golden section), so that units differ.
    """
    chosen = np.sort(generator.permutation(len(sequences))[:_SAMPLE_SEQUENCES])
    lengths = np.diff(sequences.borders)[chosen]
    rows = np.concatenate([np.arange(*sequences.borders[i : i + 2]) for i in chosen])
    borders = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
    own = None if spans is None else torch.from_numpy(spans[rows])
    picked = np.sort(generator.permutation(len(rows))[: _SAMPLE_SEQUENCES * _SAMPLE_STEPS])
    values = torch.from_numpy(sequences.values[rows]).float()
    outputs = bank_outputs(values, borders, bank, spans=own, picked=torch.from_numpy(picked))
    ordered = torch.from_numpy(np.sort(outputs.T.numpy(), axis=1)).double()
    shares = (np.arange(1, bank.n_units * THRESHOLDS + 1) * _GOLDEN) % 1
    places = np.sort(shares.reshape(bank.n_units, THRESHOLDS), 1) * (len(picked) - 1)
    return ordered.gather(1, torch.from_numpy(np.round(places).astype(np.int64)))


def _rates(frequency: np.ndarray, quality: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack([-frequency / (2 * quality), frequency], 1))


_PIECES = 8
"""Pieces that a span is cut into at the most."""
_CELLS = 1 << 27
"""Numbers of features that are made at a time."""
_STEPS = 64
"""Steps of a stream that are walked through together."""


class OscillatorEstimator(BaseEstimator):
    """What the oscillator estimators share: reading sequences, the bank, features; `OscillatorFeatures` explains."""

    pieces: ClassVar[int] = _PIECES
    center_: np.ndarray
    scale_: np.ndarray
    seed_: int
    n_units: Any
    quality: Any
    longest_period: Any
    scaling: Any
    layout: Any
    random_state: Any

    def save(self, path: PathLike) -> None:
        """Write the fitted estimator into one safetensors file: bank, scales, coefficients; no pickle."""
        check_is_fitted(self)
        save_kernel_estimator(self, path)

    @classmethod
    def load(cls, path: PathLike) -> Any:
        """Read what `save` wrote, without unpickling."""
        return load_kernel_estimator({cls.__name__: cls}, path)[0]

    @property
    def bank_(self) -> OscillatorBank:
        """The oscillators, as the op `sostenuto.ops.oscillator_bank` takes them."""
        arrays = {name: torch.from_numpy(getattr(self, f"bank_{name}_")) for name in OscillatorBank.__annotations__}
        return OscillatorBank(**arrays)

    def _draw(self, raw: Any, timespans: Any) -> "Rows":
        """Read the sequences of `fit`, learn scales, draw the bank and set its thresholds; return the sequences."""
        check_count("n_units", self.n_units, least=1)
        check_choice("scaling", self.scaling, ("standard", "minmax", "none"))
        low, high = self.quality
        require(0 < low <= high, "expected quality to be two rising numbers above 0", f"got {self.quality!r}")
        check_positive("longest_period", self.longest_period)
        self.seed_ = draw_seed(self.random_state)
        generator = np.random.default_rng(self.seed_)
        sequences = read_sequences(self, raw, layout=self.layout, allow_nan=True, reset=True)
        center, scale = channel_scale(sequences, self.scaling)
        self.center_, self.scale_ = np.asarray(center), np.asarray(scale)
        self.span_unit_ = 0.0
        if timespans is not None:
            spans = as_timespans(timespans, [len(sequence) for sequence in sequences])
            self.span_unit_ = float(np.median(np.concatenate(spans)))
        rows = self._rows(sequences, timespans)
        longest = self.longest_period * rows.median_duration()
        bank = draw_bank(int(self.n_units), longest, len(self.center_), (low, high), generator)
        for name in OscillatorBank.__annotations__:
            setattr(self, f"bank_{name}_", getattr(bank, name).numpy())
        self.bank_thresholds_ = sample_thresholds(bank, rows.packed, rows.spans, generator).numpy()
        return rows

    def _read(self, raw: Any, timespans: Any) -> "Rows":
        """Read the sequences of a prediction."""
        check_is_fitted(self)
        sequences = read_sequences(self, raw, layout=self.layout, allow_nan=True, reset=False)
        ours, theirs = len(self.center_), sequences[0].shape[1]
        require(ours == theirs, f"expected {ours} channels, as in fit", f"got {theirs}")
        return self._rows(sequences, timespans)

    def _rows(self, sequences: list[np.ndarray], timespans: Any) -> "Rows":
        """Fill in what is missing, scale, and lay sequences out one below the other; spans in units of their median."""
        require(
            (timespans is not None) == (self.span_unit_ > 0),
            f"expected {'timespans' if self.span_unit_ else 'no timespans'}, as in fit",
            "got none" if timespans is None else "got some",
            "pass timespans= to both or to none",
        )
        spans = None if timespans is None else as_timespans(timespans, [len(sequence) for sequence in sequences])
        filled = [
            interpolate(sequence, None if spans is None else spans[i]) if np.isnan(sequence).any() else sequence
            for i, sequence in enumerate(sequences)
        ]
        packed = PackedSequences.pack(filled)
        packed = PackedSequences((packed.values - self.center_) / self.scale_, packed.borders)
        if spans is None:
            return Rows(packed, None)
        return Rows(packed, np.concatenate(spans) / self.span_unit_).cut_spans(self.pieces)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags


def count_pieces(spans: Any, most: int) -> Any:
    """Return the steps that each span is worth, in units of the median: at least 1.

    >>> count_pieces([0.1, 1.4, 2.0, 100.0], 8)
    array([1, 1, 2, 8])
    """
    return np.clip(np.rint(spans), 1, most).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Rows:
    """Scaled sequences one below the other, and the spans before their steps, in units of the bank's time."""

    packed: PackedSequences
    spans: np.ndarray | None

    def __len__(self) -> int:
        """Count the sequences."""
        return len(self.packed)

    def cut_spans(self, most: int) -> "Rows":
        """Draw straight lines through spans longer than the median, with a step for each median, ``most`` per span."""
        assert self.spans is not None
        values, borders = self.packed.values, self.packed.borders
        pieces = count_pieces(self.spans, most)
        pieces[borders[:-1]] = 1
        step, ends = np.repeat(np.arange(len(values)), pieces), np.cumsum(pieces)
        ahead = (ends[step] - 1 - np.arange(len(step))) / pieces[step]
        drawn = values[step] + ahead[:, None] * (values[np.maximum(step - 1, 0)] - values[step])
        starts = np.concatenate([[0], ends])[borders]
        return Rows(PackedSequences(drawn, starts), self.spans[step] / pieces[step])

    def part(self, low: int, high: int) -> "Rows":
        """Take the sequences from ``low`` to ``high``."""
        borders = self.packed.borders[low : high + 1]
        steps = slice(int(borders[0]), int(borders[-1]))
        spans = None if self.spans is None else self.spans[steps]
        return Rows(PackedSequences(self.packed.values[steps], borders - borders[0]), spans)

    def pick(self, chosen: np.ndarray) -> "Rows":
        """Take some sequences, one below the other."""
        borders = self.packed.borders
        steps = np.concatenate([np.arange(*borders[i : i + 2]) for i in chosen])
        ends = np.concatenate([[0], np.cumsum(np.diff(borders)[chosen])])
        return Rows(PackedSequences(self.packed.values[steps], ends), None if self.spans is None else self.spans[steps])

    def window(self, low: float, high: float) -> "Rows":
        """Take the steps of every sequence between two shares of its length, at least one."""
        borders = self.packed.borders
        lengths = np.diff(borders)
        first = np.minimum((low * lengths).astype(np.int64), lengths - 1)
        last = np.maximum(np.ceil(high * lengths).astype(np.int64), first + 1)
        steps = np.concatenate([np.arange(s + a, s + b) for s, a, b in zip(borders, first, last, strict=False)])
        ends = np.concatenate([[0], np.cumsum(last - first)])
        return Rows(PackedSequences(self.packed.values[steps], ends), None if self.spans is None else self.spans[steps])

    def parts(self, bank: OscillatorBank) -> "Iterator[Rows]":
        """Cut into parts whose features fit into memory together."""
        most = max(1, _CELLS // (bank.n_units * THRESHOLDS))
        for low in range(0, len(self), most):
            yield self.part(low, min(low + most, len(self)))

    def features(self, bank: OscillatorBank) -> Float32[np.ndarray, "n feature"]:
        """Return the shares of time above thresholds, the units of the first threshold first."""
        values, borders = torch.from_numpy(self.packed.values).float(), torch.from_numpy(self.packed.borders)
        spans = None if self.spans is None else torch.from_numpy(self.spans)
        return bank_shares(values, borders, bank, spans=spans).flatten(1).numpy()

    def median_duration(self) -> float:
        """Return the median time that a sequence takes."""
        if self.spans is None:
            return float(np.median(np.diff(self.packed.borders)))
        return float(np.median(np.add.reduceat(self.spans, self.packed.borders[:-1])))


class OscillatorFeatures(TransformerMixin, OscillatorEstimator):
    """Turn sequences of any lengths into fixed features by random damped oscillators.

    Each unit is a damped oscillator s ← λs + u that reads a mix of channels, or of their first or second differences,
    alone, or followed by a second oscillator that is driven by s (a cascade) or by |s| (an envelope). A feature is the
    share of the time that a unit's output y = Re(p s) is above one of its 16 thresholds, quantiles of its outputs on
    the training sequences. Every feature is a running number in [0, 1]: `stream` gives them after each step.

    ``X`` is ``(n, time)`` with one channel, ``(n, time, channel)`` as ``layout`` says, or a list of ``(time, channel)``
    or ``(time,)`` arrays of any lengths. NaN is filled by a straight line in time. With ``timespans`` (the time before
    each step) states advance exactly by λ^δ, for a value held over its span; through a span of several medians a
    straight line is drawn in up to 8 pieces.

    Args:
        n_units: oscillators; 16 features each.
        quality: range of the quality factors Q = ω/2a: how many radians an oscillator rings before it is damped to
            e^−½.
        longest_period: of the oscillators, in median lengths of the training sequences; the shortest is 2 steps.
        scaling: ``"standard"``, ``"minmax"`` or ``"none"``, per channel, learned in `fit`.
        layout: ``"btc"`` or ``"bct"``: which axis of a 3-D array (and of the items of a list) is time.
        random_state: of the draw. A whole number makes `fit` repeatable.

    Fitted attributes: ``bank_`` (a `sostenuto.ops.oscillator_bank.OscillatorBank`), ``center_`` and ``scale_`` of the
    channels, ``span_unit_`` (the median of the training timespans, 0 where there were none), ``seed_``, and
    ``n_features_in_`` where ``X`` had 2 axes.

    >>> X = np.random.default_rng(0).normal(size=(10, 50))
    >>> features = OscillatorFeatures(n_units=32, random_state=0).fit(X)
    >>> features.transform(X).shape
    (10, 512)
    """

    # No annotations: scikit-learn wants any value taken here without a word and judged in `fit`.
    def __init__(
        self,
        n_units=700,
        *,
        quality=(0.3, 8.0),
        longest_period=1.0,
        scaling="standard",
        layout="btc",
        random_state=None,
    ) -> None:
        self.n_units = n_units
        self.quality = quality
        self.longest_period = longest_period
        self.scaling = scaling
        self.layout = layout
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, timespans: Any = None) -> "OscillatorFeatures":  # noqa: ARG002, N803
        """Learn scales, draw the oscillators and set their thresholds."""
        self._draw(X, timespans)
        return self

    def fit_transform(self, X: Any, y: Any = None, *, timespans: Any = None, **_: Any) -> Any:  # noqa: ARG002, N803
        """Do `fit`, and return the features of ``X``, in one pass."""
        return self._draw(X, timespans).features(self.bank_)

    def transform(self, X: Any, *, timespans: Any = None) -> Float32[np.ndarray, "n feature"]:  # noqa: N803
        """Return the features of every sequence, the units of the first threshold first."""
        return self._read(X, timespans).features(self.bank_)

    def stream(self) -> "FeatureStream":
        """Begin a sequence that is read step by step."""
        check_is_fitted(self)
        return FeatureStream(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def get_feature_names_out(self, input_features: Any = None) -> Any:  # noqa: ARG002
        """Name the features by unit and threshold, such as ``envelope3_above7``."""
        check_is_fitted(self)
        kinds = [KINDS[k] for k in self.bank_.kind.repeat_interleave(LANES).tolist()]
        units = range(int(self.n_units))
        names = [f"{kinds[unit]}{unit}_above{level}" for level in range(THRESHOLDS) for unit in units]
        return np.asarray(names, dtype=object)


def check_timespan(timespan: float | None, unit: float) -> None:
    """Refuse the timespan of a step that `fit` did not see the like of; ``unit`` is their median there, or 0."""
    if (timespan is not None) != (unit > 0):
        wanted = "a timespan" if unit else "no timespan"
        raise InputError(f"expected {wanted}, as in fit, got {timespan}.")
    require(timespan is None or bool(0 < timespan < math.inf), "expected a timespan above 0", f"got {timespan}")


class FeatureStream:
    """Features of one sequence while it arrives: memory of the order of the units, whatever its length.

    >>> features = OscillatorFeatures(n_units=20, random_state=0).fit(np.random.default_rng(0).normal(size=(9, 40)))
    >>> stream = features.stream()
    >>> for value in [0.1, 0.5, -0.2]:
    ...     stream.push(value)
    >>> stream.features().shape
    (320,)
    """

    def __init__(self, estimator: OscillatorEstimator) -> None:
        self._bank = BankStream(estimator.bank_)
        self._center, self._scale = (part.astype(np.float64) for part in (estimator.center_, estimator.scale_))
        self._unit, self._channels = estimator.span_unit_, len(estimator.center_)
        self._waiting, self._count = np.empty((_STEPS, self._channels)), 0
        self._spans: list[float] = []
        self._before: np.ndarray | None = None
        self._pieces = estimator.pieces

    def push(self, values: Any, timespan: float | None = None) -> None:
        """Read one more step, a value for every channel; a missing step is left out by the span of the next one.

        Steps are walked through a few at a time, so that a step costs what it costs in a long sequence.
        """
        row = np.asarray(values, dtype=np.float64).reshape(-1)
        if len(row) != self._channels or not math.isfinite(row.dot(row)):
            raise InputError(f"expected {self._channels} finite values, got {row.tolist()}; leave a missing step out.")
        check_timespan(timespan, self._unit)
        if timespan is None:
            self._take(row)
            return
        before = row if self._before is None else self._before
        pieces = 1 if self._before is None else int(count_pieces(timespan / self._unit, self._pieces))
        for left in range(pieces - 1, -1, -1):
            self._spans.append(timespan / self._unit / pieces)
            self._take(row + left / pieces * (before - row))
        self._before = row

    def _take(self, row: np.ndarray) -> None:
        self._waiting[self._count] = row
        self._count += 1
        if self._count == _STEPS:
            self._walk()

    def _walk(self) -> None:
        """Let the oscillators read the steps that wait."""
        if self._count:
            rows = ((self._waiting[: self._count] - self._center) / self._scale).astype(np.float32)
            self._bank.push(rows, torch.tensor(self._spans) if self._spans else None)
            self._count, self._spans = 0, []

    def features(self) -> Float32[np.ndarray, " feature"]:
        """Return the features of what has been read so far: those `transform` gives for it."""
        self._walk()
        return self._bank.shares().flatten().numpy()

"""Ridge regression on oscillators' features: what both estimators share, numbers, and the record of a fit."""

from collections.abc import Iterator
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from sklearn.base import RegressorMixin, is_classifier
from sklearn.metrics import r2_score
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted, validate_data

from sostenuto.checks import InputError, require
from sostenuto.estimators.oscillators.features import FeatureStream, OscillatorEstimator, Rows
from sostenuto.models.ridge import LeaveOneOutRidge, RidgeStatistics
from sostenuto.ops.oscillator_bank import KINDS, LANES, THRESHOLDS, OscillatorBank
from sostenuto.results import OscillatorSummary
from sostenuto.types import PathLike

MOST_ROWS = 4000
"""More sequences than these are summed up (`RidgeStatistics`) instead of being compared with each other."""
SAMPLE_ROWS = 2000
"""Sequences on which leave-one-out then chooses the penalty."""
_SLACK = 0.05
"""Share by which the squared error of a classifier may exceed the least, for a weaker penalty."""
_ANSWERED = 32
"""Sequences whose features are brought to float64 at a time: they stay in the cache."""
_WINDOW, _WITHIN, _WINDOWED = 0.8, 3.0, 64
"""How much of a sequence is cut out at either end to see what its features vary by, how much this counts, and for how
many sequences it is averaged."""


class HeldOut(NamedTuple):
    """Answers for sequences that the ridge had not seen, and which sequences they are."""

    rows: np.ndarray
    answers: Float64[np.ndarray, "n output"]


class OscillatorRidge(OscillatorEstimator):
    """An oscillator estimator whose features are read by a ridge; ``coef_`` and ``intercept_`` are its line.

    ``importance_`` (unit, output) is the norm of each unit's weights on standardized features.
    """

    penalty_: float
    coef_: np.ndarray
    intercept_: np.ndarray
    importance_: np.ndarray

    def _fit_ridge(
        self, rows: Rows, targets: np.ndarray, weight: np.ndarray, judged: np.ndarray, client: Any = None
    ) -> HeldOut:
        """Fit all rows: compared with each other, or, where they are many or a cluster is given, summed up in parts."""
        for sums in ("_origin", "_statistics"):
            vars(self).pop(sums, None)
        if len(rows) <= MOST_ROWS and client is None:
            ridge, held_out = self._leave_one_out(rows, targets, weight, judged)
            self.coef_, self.intercept_ = (part.numpy() for part in ridge.line())
            return held_out
        held_out = self._begin(rows, targets, weight, judged)
        bank = self.bank_
        parts = (
            (part, targets[low:high], weight[low:high], bank, self._origin)
            for part, low, high in _numbered(rows.parts(bank))
        )
        if client is None:
            for part in parts:
                self._add(_sum_up(part))
        else:
            self._add(_added_on(client, parts))
        self._solve()
        return held_out

    def _fit_part(self, rows: Rows, targets: np.ndarray, weight: np.ndarray, judged: np.ndarray) -> HeldOut | None:
        """Add some rows to those fitted before; the first ones choose the penalty, and are held out for it."""
        held_out = self._begin(rows, targets, weight, judged) if not hasattr(self, "_origin") else None
        bank = self.bank_
        for part, low, high in _numbered(rows.parts(bank)):
            self._add(_sum_up((part, targets[low:high], weight[low:high], bank, self._origin)))
        self._is_stale = True
        return held_out

    def _answers(self, rows: Rows) -> Float64[np.ndarray, "n output"]:
        """Return the ridge's answers for sequences."""
        self._solve()
        bank = self.bank_
        answers = [
            features[low : low + _ANSWERED] @ self.coef_ + self.intercept_
            for features in (part.features(bank) for part in rows.parts(bank))
            for low in range(0, len(features), _ANSWERED)
        ]
        return np.concatenate(answers)

    def _begin(self, rows: Rows, targets: np.ndarray, weight: np.ndarray, judged: np.ndarray) -> HeldOut:
        """Choose the penalty on some of the rows, and start sums over rows from zero, around their middle."""
        chosen = np.random.default_rng(self.seed_).permutation(len(rows))[:SAMPLE_ROWS]
        chosen.sort()
        picked = rows.pick(chosen)
        ridge, held_out = self._leave_one_out(picked, targets[chosen], weight[chosen], judged[chosen])
        self._origin, self._statistics = ridge.center, None
        return HeldOut(chosen, held_out.answers)

    def _leave_one_out(
        self, rows: Rows, targets: np.ndarray, weight: np.ndarray, judged: np.ndarray
    ) -> tuple[LeaveOneOutRidge, HeldOut]:
        features = rows.features(self.bank_)
        self._within = self._variance_within(rows, features)
        ridge = LeaveOneOutRidge.fit(
            torch.from_numpy(features),
            torch.from_numpy(targets),
            sample_weight=torch.from_numpy(weight),
            judged=torch.from_numpy(judged),
            slack=_SLACK if is_classifier(self) else 0.0,
            within=self._within,
        )
        self.penalty_, self._is_stale = ridge.penalty, False
        by_threshold = ridge.weights.double().unflatten(0, (THRESHOLDS, -1))
        self.importance_ = by_threshold.square().sum(0).sqrt().numpy()
        return ridge, HeldOut(np.arange(len(rows)), ridge.held_out.numpy())

    def _variance_within(self, rows: Rows, features: np.ndarray) -> torch.Tensor:
        """Say what each feature varies by within a sequence: how its two ends differ from the whole.

        With few sequences of a class this is seen better than what varies between them.
        """
        picked = np.random.default_rng(self.seed_).permutation(len(rows))[:_WINDOWED]
        chosen, bank, whole = rows.pick(picked), self.bank_, features[picked]
        ends = (chosen.window(0.0, _WINDOW), chosen.window(1 - _WINDOW, 1.0))
        return torch.from_numpy(_WITHIN * np.mean([np.square(end.features(bank) - whole).mean(0) for end in ends], 0))

    def _add(self, statistics: RidgeStatistics) -> None:
        known = self._statistics
        self._statistics = statistics if known is None else known + statistics
        self._is_stale = True

    def _solve(self) -> None:
        """Bring ``coef_`` and ``intercept_`` up to date with the sums."""
        check_is_fitted(self)
        if getattr(self, "_is_stale", False) and self._statistics is not None:
            slope, offset = self._statistics.solve(self.penalty_, self._within)
            self.coef_, self.intercept_, self._is_stale = slope.numpy(), offset.numpy(), False

    def _check_goes_on(self) -> bool:
        """Return whether rows were added before; what was fitted at once, or loaded, keeps no sums to add to."""
        if hasattr(self, "_origin"):
            return True
        if hasattr(self, "coef_"):
            raise InputError(
                "expected an estimator that is new or was fitted by partial_fit, got one whose sums were not kept; "
                "start a new one and pass all parts to partial_fit."
            )
        return False

    def save(self, path: PathLike) -> None:
        """Write the fitted estimator into one safetensors file; sums over rows (`partial_fit`) are not in it."""
        self._solve()
        super().save(path)


class AnswerStream(FeatureStream):
    """The ridge's answers while a sequence arrives."""

    def __init__(self, estimator: OscillatorRidge) -> None:
        super().__init__(estimator)
        self._estimator = estimator

    def answers(self) -> Float64[np.ndarray, " output"]:
        """Return the ridge's answers after what has been read so far."""
        return self.features() @ self._estimator.coef_ + self._estimator.intercept_


_Part = tuple[Rows, np.ndarray, np.ndarray, OscillatorBank, torch.Tensor]


def _numbered(parts: Iterator[Rows]) -> Iterator[tuple[Rows, int, int]]:
    """Say of each part which rows it holds."""
    low = 0
    for part in parts:
        yield part, low, low + len(part)
        low += len(part)


def _sum_up(part: _Part) -> RidgeStatistics:
    """Sum up one part; runs on a worker too."""
    rows, targets, weight, bank, origin = part
    features = torch.from_numpy(rows.features(bank))
    return RidgeStatistics.of(features, torch.from_numpy(targets), origin, torch.from_numpy(weight))


def _added_on(client: Any, parts: Iterator[_Part]) -> RidgeStatistics:
    """Sum parts up on the workers of a dask cluster, pair by pair in a fixed order: the workers do not matter."""
    waiting = [client.submit(_sum_up, part, pure=False) for part in parts]
    require(len(waiting) > 0, "expected at least one part", "got none")
    while len(waiting) > 1:
        pairs = [waiting[i : i + 2] for i in range(0, len(waiting), 2)]
        waiting = [client.submit(add, *pair, pure=False) if len(pair) == 2 else pair[0] for pair in pairs]
    return waiting[0].result()


_GROSS, _RARE = 20.0, 0.1
"""Interquartile ranges beyond the quartiles at which a target is a gross error, if fewer than this share are."""
_ROUNDS, _BEND = 10, 3.0
"""Fits with weights from the errors before, and the robust deviations beyond which an error counts linearly."""


def _has_gross_errors(columns: Float64[np.ndarray, "n target"]) -> bool:
    """Return whether a few targets are so far out that they can only be errors.

    >>> numbers = np.arange(50.0)[:, None]
    >>> _has_gross_errors(numbers), _has_gross_errors(np.concatenate([numbers, [[5e4]]]))
    (False, True)
    """
    low, high = np.quantile(columns, [0.25, 0.75], axis=0)
    beyond = np.maximum(low - columns, columns - high) > _GROSS * np.where(high > low, high - low, np.inf)
    return bool(0 < beyond.any(1).mean() < _RARE)


def _huber(errors: Float64[np.ndarray, "n target"]) -> Float64[np.ndarray, " n"]:
    """Return the weights with which squares make Huber's loss, from unseen errors: 1, and less for a large error."""
    size = np.abs(errors)
    deviation = 1.4826 * np.maximum(np.median(size, axis=0), np.finfo(float).tiny)
    return 1 / np.maximum(size / (_BEND * deviation), 1).max(1)


class OscillatorRegressor(RegressorMixin, OscillatorRidge):
    """Predict numbers from sequences of any lengths by random damped oscillators and a ridge.

    Parameters are those of `OscillatorClassifier` without the class weights. Targets are ``(n,)`` or ``(n, targets)``,
    standardized inside, and share one penalty, chosen by leave-one-out errors. Where a few targets (under a tenth of at
    most 4000) lie more than 20 interquartile ranges beyond the quartiles, `fit` takes them for errors: large errors
    then count linearly and not as squares (Huber, 1964). ``best_score_`` counts all as squares.

    Fitted attributes: ``penalty_``, ``best_score_`` (leave-one-out R², the mean over targets), ``coef_``,
    ``intercept_`` (of standardized targets), and those of `OscillatorFeatures`.

    >>> X = np.random.default_rng(0).normal(size=(40, 50)) + np.arange(40)[:, None] / 10
    >>> regressor = OscillatorRegressor(n_units=50, random_state=0).fit(X, np.arange(40))
    >>> bool(regressor.best_score_ > 0.9)
    True
    """

    penalty_: float
    best_score_: float

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

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any = None,
        *,
        timespans: Any = None,
        client: Any = None,
    ) -> "OscillatorRegressor":
        """Learn to predict ``y``, ``(n,)`` or ``(n, targets)``, from ``X``.

        With a ``client`` of dask.distributed the sums that the ridge needs are made on its workers.
        """
        columns = self._columns(X, y)
        rows = self._draw(X, timespans)
        targets, weight = self._targets(columns, sample_weight, reset=True)
        every = np.ones(len(rows), bool)
        held_out = self._fit_ridge(rows, targets, weight, every, client)
        for _ in range(_ROUNDS if len(held_out.rows) == len(rows) and _has_gross_errors(columns) else 0):
            held_out = self._fit_ridge(rows, targets, weight * _huber(held_out.answers - targets), every, client)
        self._judge(held_out, targets)
        return self

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None  # noqa: N803
    ) -> "OscillatorRegressor":  # fmt: skip
        """Learn from some more sequences; only sums over them are kept, so that all together need not fit in memory.

        The first call sets scales and thresholds, and chooses the penalty.
        """
        columns = self._columns(X, y)
        every = np.ones(len(columns), bool)
        if self._check_goes_on():
            self._fit_part(self._read(X, timespans), *self._targets(columns, sample_weight, reset=False), every)
            return self
        rows = self._draw(X, timespans)
        targets, weight = self._targets(columns, sample_weight, reset=True)
        held_out = self._fit_part(rows, targets, weight, every)
        assert held_out is not None
        self._judge(held_out, targets)
        return self

    def predict(self, X: Any, *, timespans: Any = None) -> np.ndarray:  # noqa: N803
        """Return the predicted numbers in the shape of the ``y`` of `fit`."""
        return self._numbers(self._answers(self._read(X, timespans)))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> float:  # noqa: N803
        """Return R², the mean over targets."""
        return float(r2_score(y, self.predict(X, timespans=timespans), sample_weight=sample_weight))

    def stream(self) -> "NumberStream":
        """Begin a sequence that is read step by step, with the predicted numbers after each step."""
        self._solve()
        return NumberStream(self)

    def _numbers(self, answers: Float64[np.ndarray, "n output"]) -> np.ndarray:
        """Bring standardized answers to the unit and the shape of the ``y`` of `fit`."""
        numbers = answers * self.target_scale_ + self.target_center_
        return numbers if self.has_columns_ else numbers[:, 0]

    def _columns(self, raw: Any, y: Any) -> np.ndarray:
        """Check targets, and give them a column each."""
        numbers = np.asarray(validate_data(self, y=y, multi_output=True, y_numeric=True), dtype=np.float64)
        check_consistent_length(raw, numbers)
        require(len(numbers) > 1, "expected at least 2 sequences to fit", "got 1 sample", "bring more")
        self.has_columns_ = numbers.ndim > 1
        return numbers.reshape(len(numbers), -1)

    def _targets(self, columns: np.ndarray, sample_weight: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return standardized targets and the weight of each row."""
        if reset:
            spread = columns.std(axis=0)
            self.target_center_, self.target_scale_ = columns.mean(axis=0), np.where(spread > 0, spread, 1.0)
        weight = _check_sample_weight(sample_weight, columns, dtype=np.float64)
        return (columns - self.target_center_) / self.target_scale_, weight

    def _judge(self, held_out: HeldOut, targets: np.ndarray) -> None:
        self.best_score_ = float(1 - np.mean((held_out.answers - targets[held_out.rows]) ** 2))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class NumberStream(AnswerStream):
    """Predicted numbers while a sequence arrives.

    >>> X = np.random.default_rng(0).normal(size=(20, 40)).cumsum(1)
    >>> regressor = OscillatorRegressor(n_units=20, random_state=0).fit(X, 100 + X[:, -1])
    >>> stream = regressor.stream()
    >>> for value in X[0]:
    ...     stream.push(value)
    >>> bool(np.isclose(stream.predict(), regressor.predict(X[:1])[0]))
    True
    """

    _estimator: OscillatorRegressor

    def predict(self) -> Any:
        """Return the predicted number, or several, after what has been read so far."""
        return self._estimator._numbers(self.answers()[None])[0]


_BINS = 24
_FORGOTTEN = 0.01


def oscillator_summary(estimator: Any, channel_names: tuple[str, ...], outputs: tuple[str, ...]) -> OscillatorSummary:
    """Share the squared weights of a fitted ridge out among periods, channels and kinds, for every output.

    A period's share is that of an oscillator there, not of all that were drawn there.

    >>> from sostenuto.estimators import OscillatorClassifier
    >>> X = np.sin(np.outer(np.arange(40) % 2 + 1, np.arange(60)) / 4 + np.arange(40)[:, None])
    >>> fitted = OscillatorClassifier(100, random_state=0).fit(X, np.arange(40) % 2)
    >>> summary = oscillator_summary(fitted, (), ("slow", "fast"))
    >>> summary.units, len(summary.periods), [round(sum(row), 6) for row in summary.by_period]
    (100, 24, [1.0, 1.0])
    """
    bank, squares = estimator.bank_, estimator.importance_**2
    squares = squares / np.maximum(squares.sum(0), np.finfo(float).tiny)
    names = outputs or tuple(f"target {index + 1}" for index in range(squares.shape[1]))
    period = 2 * np.pi / bank.rate[:, 1].numpy()
    edges = np.geomspace(2.0, max(float(period.max()), 4.0) * 1.0001, _BINS + 1)
    place = np.clip(np.searchsorted(edges, period, side="right") - 1, 0, _BINS - 1)
    # The mean over the units of a bin: as they are drawn, some bins have twice as many as others.
    by_period = np.stack([np.bincount(place, column, _BINS) for column in squares.T])
    by_period /= np.maximum(np.bincount(place, minlength=_BINS), 1)
    by_period /= np.maximum(by_period.sum(1, keepdims=True), np.finfo(float).tiny)
    block = np.arange(bank.n_units) // LANES
    kind = bank.kind.numpy()[block]
    by_kind = np.stack([np.bincount(kind, column, len(KINDS)) for column in squares.T])
    channels = len(estimator.center_)
    share = bank.mix.numpy() ** 2  # of unit norm, so that a unit's weight is shared out
    mixed = np.zeros((bank.n_units, channels))
    np.add.at(mixed, (np.arange(bank.n_units)[:, None], bank.channels.numpy()[block]), share)
    rates = np.concatenate([bank.rate[:, 0].numpy(), bank.second_rate[:, 0].numpy()[kind > 0]])
    memory = np.log(_FORGOTTEN) / rates
    return OscillatorSummary(
        units=bank.n_units,
        outputs=names,
        periods=tuple(np.sqrt(edges[1:] * edges[:-1]).tolist()),
        by_period=tuple(tuple(row) for row in by_period.tolist()),
        channels=channel_names or tuple(f"channel {index + 1}" for index in range(channels)),
        by_channel=tuple(tuple(row) for row in (squares.T @ mixed).tolist()),
        kinds=KINDS,
        by_kind=tuple(tuple(row) for row in by_kind.tolist()),
        memory=float(np.median(memory)),
        longest_memory=float(memory.max()),
        unseen_score=float(estimator.best_score_),
        reads="shares" if isinstance(estimator, OscillatorRidge) else "steps",
    )

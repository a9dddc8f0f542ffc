"""A class or numbers at every step: a ridge on recent values and on the states of random oscillators."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from sostenuto.checks import InputError, check_count, require
from sostenuto.estimators.classes import deal_folds, softmax, temperature
from sostenuto.estimators.inputs import joined_steps, read_step_targets, read_weights
from sostenuto.estimators.oscillators.features import OscillatorEstimator, Rows, check_timespan
from sostenuto.models.ridge import RidgeStatistics
from sostenuto.ops.oscillator_bank import KINDS, BankStream, bank_outputs

LAGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Steps back with which a value is compared."""
_MOST_LAGGED = 160
"""Differences to earlier values that a step has at the most, over all channels."""
_MIXED, _GAIN = 4, 0.5
"""Features that a random tanh unit mixes, and with which weights."""
_FOLDS, _JUDGED = 5, 40_000
"""Folds of whole sequences that choose the penalty, and how many steps they have together, about."""
_PENALTIES = torch.logspace(-6, 2, 17, dtype=torch.float64)
"""Penalties to choose from, in mean squares of a standardized row."""


class OscillatorSteps(OscillatorEstimator):
    """What the estimators with a target at every step share: features, and a ridge from sums over steps.

    The features of step t read nothing after it: the values, their differences to those `LAGS` steps before, their sum
    and mean so far, the time so far, the outputs of oscillators and of envelopes, and tanh of random mixes of these.

    Fitted attributes: ``penalty_``, ``best_score_`` (accuracy or R² of steps of sequences left out),
    ``best_score_error_`` (its standard error between sequences), ``coef_``, ``intercept_``, ``importance_``
    (unit, output), and those of `OscillatorFeatures`.
    """

    pieces = 1  # a target for every step that was given
    lags_: list[int]
    mixed_: np.ndarray
    mix_: np.ndarray
    offset_: np.ndarray
    mixed_center_: np.ndarray
    mixed_scale_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray
    penalty_: float
    best_score_: float
    best_score_error_: float
    is_regular_: bool
    n_units: Any
    n_random: Any

    def stream(self) -> "StepStream":
        """Begin a sequence that is read step by step, with an answer for each step as it comes."""
        check_is_fitted(self)
        return StepStream(self)

    def _learn(
        self, rows: Rows, targets: list[np.ndarray], weights: np.ndarray | None, classes: list[np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw random units, choose the penalty on sequences left out and fit all; return steps left out, answered.

        ``targets`` (time, output) and ``classes`` (time,) are those of each sequence. What is returned are the numbers
        of the sequences that were left out, and the answers for their steps, one below the other.
        """
        weight = np.ones(len(rows)) if weights is None else weights
        count = int(np.count_nonzero(weight))
        samples = f"got {count} sample{'s' * (count != 1)}"
        require(count > 1, "expected at least 2 sequences to fit, of a weight above 0", samples, "bring more")
        self._draw_random(rows)
        judged = self._judged(rows, weight)
        # The rarest class of a sequence decides where it is dealt to.
        kinds = np.zeros(len(judged), np.int64) if classes is None else np.array([classes[i].max() for i in judged])
        dealt = deal_folds(kinds, _FOLDS, self.seed_)
        folds = [judged[dealt == fold] for fold in np.unique(dealt)]
        judged = np.concatenate(folds)
        origin = torch.from_numpy(self._step_features(rows.pick(judged[:1])).mean(0))
        sums = [_total(self._sums(rows, targets, weight, fold, origin)) for fold in folds]
        lines = [_lines(_total(iter([*sums[:fold], *sums[fold + 1 :]]))) for fold in range(len(sums))]
        features = [self._step_features(rows.pick(fold)) for fold in folds]
        truth = np.concatenate([targets[i] for i in judged])
        share = np.repeat(weight[judged], np.diff(rows.packed.borders)[judged])[:, None]
        held_out = [
            np.concatenate([part @ of[index][0] + of[index][1] for part, of in zip(features, lines, strict=True)])
            for index in range(len(_PENALTIES))
        ]
        best = int(np.argmin([float((share * (answers - truth) ** 2).sum()) for answers in held_out]))
        rest = np.setdiff1d(np.arange(len(rows)), judged)
        whole = _total(iter([*sums, *self._sums(rows, targets, weight, rest, origin)]))
        self.penalty_ = float(_PENALTIES[best]) * whole.second.shape[0]
        slope, offset = whole.solve(self.penalty_)
        self.coef_, self.intercept_ = slope.numpy(), offset.numpy()
        deviation = (whole.second.diagonal() / whole.weight - (whole.first / whole.weight) ** 2).clamp(min=0).sqrt()
        # After values, differences, sums, means and the time come the oscillators.
        first = (len(self.lags_) + 3) * len(self.center_) + 1
        self.importance_ = (slope * deviation[:, None]).numpy()[first : first + int(self.n_units)]
        return judged, held_out[best]

    def _judged(self, rows: Rows, weight: np.ndarray) -> np.ndarray:
        """Return the sequences that choose the penalty: all that have a weight, or as many as have some steps."""
        order = np.random.default_rng(self.seed_).permutation(len(rows))
        order = order[weight[order] > 0]
        steps = np.cumsum(np.diff(rows.packed.borders)[order])
        return np.sort(order[: max(int(np.searchsorted(steps, _JUDGED, side="right")), 2 * _FOLDS)])

    def _sums(
        self, rows: Rows, targets: list[np.ndarray], weight: np.ndarray, chosen: np.ndarray, origin: torch.Tensor
    ) -> Iterator[RidgeStatistics]:
        """Sum up the steps of some sequences, a part at a time."""
        lengths = np.diff(rows.packed.borders)
        for part in _parts(chosen, lengths):
            yield RidgeStatistics.of(
                torch.from_numpy(self._step_features(rows.pick(part))).double(),  # sums of many steps: float32 is short
                torch.from_numpy(np.concatenate([targets[i] for i in part])),
                origin,
                torch.from_numpy(np.repeat(weight[part], lengths[part])),
            )

    def _answered(self, rows: Rows) -> list[Float64[np.ndarray, "time output"]]:
        """Return the ridge's answers at every step of every sequence."""
        lengths = np.diff(rows.packed.borders)
        answers: list[np.ndarray] = []
        for part in _parts(np.arange(len(rows)), lengths):
            stacked = self._step_features(rows.pick(part)) @ self.coef_ + self.intercept_
            answers += np.split(stacked, np.cumsum(lengths[part])[:-1])
        return answers

    def _draw(self, raw: Any, timespans: Any) -> Rows:
        """Draw single oscillators and envelopes, block by block in turn: no pool over time tells how large they are."""
        rows = super()._draw(raw, timespans)
        blocks = np.arange(len(self.bank_kind_))
        self.bank_kind_ = blocks % 2 * KINDS.index("envelope")
        self.bank_order_ = blocks // 2 % 3
        return rows

    def _draw_random(self, rows: Rows) -> None:
        """Draw the random units, and learn what is mixed in them on some of the sequences."""
        check_count("n_random", self.n_random, least=0)
        channels, longest = rows.packed.values.shape[1], int(np.diff(rows.packed.borders).max())
        few = max(2, _MOST_LAGGED // channels)
        self.lags_ = [lag for lag in LAGS if lag < longest][:few]
        generator = np.random.default_rng([self.seed_, 1])
        chosen = np.sort(generator.permutation(len(rows))[:32])
        inputs = self._linear(rows.pick(chosen))
        deviation = inputs.std(0)
        self.mixed_center_ = inputs.mean(0)
        self.mixed_scale_ = np.where(deviation > 1e-6, deviation, np.inf).astype(np.float32)
        shape = (int(self.n_random), min(_MIXED, inputs.shape[1]))
        picked = [generator.permutation(inputs.shape[1])[: shape[1]] for _ in range(shape[0])]
        self.mixed_ = np.array(picked, np.int64).reshape(shape)
        self.mix_ = (_GAIN * generator.normal(size=shape)).astype(np.float32)
        self.offset_ = generator.normal(size=shape[0]).astype(np.float32)

    def _step_features(self, rows: Rows) -> Float32[np.ndarray, "step feature"]:
        return self._with_random(self._linear(rows))

    def _with_random(self, linear: Float32[np.ndarray, "step mixed"]) -> Float32[np.ndarray, "step feature"]:
        """Append the random units' outputs."""
        standardized = (linear - self.mixed_center_) / self.mixed_scale_
        mix = np.zeros((linear.shape[1], len(self.mixed_)), np.float32)
        mix[self.mixed_, np.arange(len(self.mixed_))[:, None]] = self.mix_
        return np.concatenate([linear, np.tanh(standardized @ mix + self.offset_)], 1, dtype=np.float32)

    def _linear(self, rows: Rows) -> Float32[np.ndarray, "step mixed"]:
        """Return all features but the random units, the steps of all sequences one below the other."""
        values, borders = rows.packed.values, rows.packed.borders
        starts = np.repeat(borders[:-1], np.diff(borders))
        place = np.arange(len(values))
        spans = np.ones(len(values)) if rows.spans is None else rows.spans
        past = [values - values[np.maximum(place - lag, starts)] for lag in self.lags_]
        total = _running(values * spans[:, None], borders)
        elapsed = _running(spans[:, None], borders)
        outputs = bank_outputs(
            torch.from_numpy(values).float(),
            torch.from_numpy(borders),
            self.bank_,
            spans=None if rows.spans is None else torch.from_numpy(rows.spans),
        ).numpy()
        return np.concatenate([values, *past, total, total / elapsed, np.log1p(elapsed), outputs], 1, dtype=np.float32)

    def _read_targets(self, raw: Any, y: Any, rows: Rows, *, numbers: bool) -> list[np.ndarray]:
        """Check that ``y`` has a target for every step."""
        check_consistent_length(raw, y)
        targets = read_step_targets(y, numbers=numbers)
        for index, (row, steps) in enumerate(zip(targets, np.diff(rows.packed.borders), strict=True)):
            if len(row) != steps:
                raise InputError(f"sequence {index}: expected a target for each of its {steps} steps, got {len(row)}.")
        return targets


def _running(values: Float[np.ndarray, "step k"], borders: np.ndarray) -> Float64[np.ndarray, "step k"]:
    """Add up from the start of each sequence."""
    return np.concatenate([np.cumsum(values[a:b], 0) for a, b in pairwise(borders)])


def _parts(chosen: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Cut sequences into parts of about `_JUDGED` steps."""
    if len(chosen):
        ends = np.cumsum(lengths[chosen]) - 1
        yield from (part for part in np.split(chosen, np.flatnonzero(np.diff(ends // _JUDGED)) + 1) if len(part))


def _total(sums: Iterator[RidgeStatistics]) -> RidgeStatistics:
    total = next(sums)
    for statistics in sums:
        total = total + statistics
    return total


def _lines(sums: RidgeStatistics) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return slope and intercept for every penalty there is to choose from."""
    size = sums.second.shape[0]
    solved = [sums.solve(float(penalty) * size) for penalty in _PENALTIES]
    return [(slope.numpy(), offset.numpy()) for slope, offset in solved]


def _standard_error(each: np.ndarray) -> float:
    """Return the standard error of a mean over sequences."""
    return float(np.std(each, ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0


class OscillatorStepClassifier(ClassifierMixin, OscillatorSteps):
    """Tell the class of every step of a sequence, from the steps up to it.

    A ridge on one-against-rest labels reads recent values, sums, the states of random damped oscillators, and random
    tanh units of these. Whole sequences left out choose its penalty and the temperature of the probabilities.

    Args:
        n_units: oscillators.
        n_random: random tanh units.
        quality: range of the quality factors, as in `OscillatorFeatures`.
        longest_period: of the oscillators, in median lengths of the training sequences.
        scaling: ``"standard"``, ``"minmax"`` or ``"none"``, per channel, learned in `fit`.
        layout: ``"btc"`` or ``"bct"``: which axis of a 3-D array (and of the items of a list) is time.
        random_state: of the draw. A whole number makes `fit` repeatable.

    ``y`` is ``(n, time)`` or a list of one array per sequence, and predictions have the form of ``X``.

    >>> X = np.random.default_rng(0).normal(size=(30, 40))
    >>> y = np.where(X + np.roll(X, 1, axis=1) > 0, "up", "down")
    >>> classifier = OscillatorStepClassifier(n_units=32, n_random=32, random_state=0).fit(X[:20], y[:20])
    >>> classifier.score(X[20:], y[20:]) > 0.9
    True
    """

    classes_: np.ndarray
    temperature_: float

    # No annotations: scikit-learn wants any value taken here without a word and judged in `fit`.
    def __init__(
        self,
        n_units=256,
        *,
        n_random=256,
        quality=(0.3, 8.0),
        longest_period=1.0,
        scaling="standard",
        layout="btc",
        random_state=None,
    ) -> None:
        self.n_units = n_units
        self.n_random = n_random
        self.quality = quality
        self.longest_period = longest_period
        self.scaling = scaling
        self.layout = layout
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> "OscillatorStepClassifier":  # noqa: N803
        """Learn to tell the classes ``y`` of the steps of ``X``; ``sample_weight`` has one number per sequence."""
        rows = self._draw(X, timespans)
        labels = self._read_targets(X, y, rows, numbers=False)
        joined = np.concatenate(labels)
        check_classification_targets(joined)
        classes, indices = np.unique(joined, return_inverse=True)
        require(len(classes) > 1, "expected at least 2 classes", f"got 1 class, {str(classes[0])!r}", "check y")
        self.classes_ = classes
        ends = np.cumsum([len(row) for row in labels])[:-1]
        places = np.split(indices, ends)
        signs = np.split(np.where(indices[:, None] == np.arange(len(classes)), 1.0, -1.0), ends)
        rarest = np.argsort(np.argsort(-np.bincount(indices)))  # of every class: the rarer, the higher
        judged, answers = self._learn(
            rows, signs, read_weights(sample_weight, len(labels)), [rarest[place] for place in places]
        )
        truth = np.concatenate([places[i] for i in judged])
        right = answers.argmax(1) == truth
        self.best_score_ = float(right.mean())
        cut = np.cumsum([len(places[i]) for i in judged])[:-1]
        self.best_score_error_ = _standard_error(np.array([part.mean() for part in np.split(right, cut)]))
        self.temperature_ = temperature(answers, truth)
        return self

    def predict_proba(self, X: Any, *, timespans: Any = None) -> Any:  # noqa: N803
        """Return the probability of every class at every step, a list of ``(time, class)``, or ``(n, time, class)``."""
        return _shaped([softmax(row / self.temperature_) for row in self._scores(X, timespans)])

    def predict(self, X: Any, *, timespans: Any = None) -> Any:  # noqa: N803
        """Return the most probable class of every step: ``(n, time)``, or a list where lengths differ."""
        return _shaped([self.classes_[row.argmax(1)] for row in self._scores(X, timespans)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> float:  # noqa: N803
        """Return the share of steps that are answered right."""
        actual, answers, weights = joined_steps(y, self.predict(X, timespans=timespans), sample_weight)
        return float(accuracy_score(actual, answers, sample_weight=weights))

    def _scores(self, raw: Any, timespans: Any) -> list[np.ndarray]:
        return self._answered(self._read(raw, timespans))


class OscillatorStepRegressor(RegressorMixin, OscillatorSteps):
    """Predict one number or several at every step of a sequence, from the steps up to it.

    Parameters are those of `OscillatorStepClassifier`. ``y`` is ``(n, time)``, ``(n, time, targets)`` or a list of one
    array per sequence; targets are standardized inside and share one penalty.

    >>> X = np.random.default_rng(0).normal(size=(30, 40))
    >>> regressor = OscillatorStepRegressor(n_units=32, n_random=32, random_state=0).fit(X[:20], X[:20].cumsum(1))
    >>> regressor.score(X[20:], X[20:].cumsum(1)) > 0.99
    True
    """

    # No annotations: scikit-learn wants any value taken here without a word and judged in `fit`.
    def __init__(
        self,
        n_units=256,
        *,
        n_random=256,
        quality=(0.3, 8.0),
        longest_period=1.0,
        scaling="standard",
        layout="btc",
        random_state=None,
    ) -> None:
        self.n_units = n_units
        self.n_random = n_random
        self.quality = quality
        self.longest_period = longest_period
        self.scaling = scaling
        self.layout = layout
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> "OscillatorStepRegressor":  # noqa: N803
        """Learn to predict the numbers ``y`` at the steps of ``X``; ``sample_weight`` has one number per sequence."""
        rows = self._draw(X, timespans)
        numbers = [np.asarray(row, dtype=np.float64) for row in self._read_targets(X, y, rows, numbers=True)]
        joined = np.concatenate(numbers)
        require(bool(np.isfinite(joined).all()), "expected finite targets", "got NaN or infinity", "drop what has none")
        self.has_columns_ = joined.ndim > 1
        columns = joined.reshape(len(joined), -1)
        spread = columns.std(0)
        self.target_center_, self.target_scale_ = columns.mean(0), np.where(spread > 0, spread, 1.0)
        ends = np.cumsum([len(row) for row in numbers])[:-1]
        targets = np.split((columns - self.target_center_) / self.target_scale_, ends)
        judged, answers = self._learn(rows, targets, read_weights(sample_weight, len(numbers)), None)
        truth = np.concatenate([targets[i] for i in judged])
        squares = ((answers - truth) ** 2).mean(1)
        self.best_score_ = float(1 - squares.mean() / max(float(truth.var(0).mean()), np.finfo(float).tiny))
        cut = np.cumsum([len(targets[i]) for i in judged])[:-1]
        self.best_score_error_ = _standard_error(np.array([part.mean() for part in np.split(squares, cut)]))
        return self

    def predict(self, X: Any, *, timespans: Any = None) -> Any:  # noqa: N803
        """Return the numbers of every step: ``(n, time)`` or ``(n, time, targets)``, or a list where lengths differ."""
        answers = self._answered(self._read(X, timespans))
        numbers = [row * self.target_scale_ + self.target_center_ for row in answers]
        return _shaped(numbers if self.has_columns_ else [row[:, 0] for row in numbers])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> float:  # noqa: N803
        """Return R² over all steps."""
        actual, answers, weights = joined_steps(y, self.predict(X, timespans=timespans), sample_weight)
        return float(r2_score(actual, answers, sample_weight=weights))


def _shaped(rows: list[np.ndarray]) -> Any:
    """Stack the rows where all have one length."""
    return np.stack(rows) if len({len(row) for row in rows}) == 1 else rows


class StepStream:
    """Answers for the steps of one sequence as they arrive; memory of the order of the units.

    >>> X = np.random.default_rng(0).normal(size=(20, 40))
    >>> regressor = OscillatorStepRegressor(n_units=16, n_random=16, random_state=0).fit(X, X.cumsum(1))
    >>> stream = regressor.stream()
    >>> bool(np.isclose([stream.push(value) for value in X[0]], regressor.predict(X[:1])[0], atol=1e-3).all())
    True
    """

    def __init__(self, estimator: Any) -> None:
        self._estimator, self._bank = estimator, BankStream(estimator.bank_)
        channels = len(estimator.center_)
        self._past = np.zeros((0, channels))
        self._total, self._elapsed = np.zeros(channels), 0.0

    def push(self, values: Any, timespan: float | None = None) -> Any:
        """Read one more step, a value for every channel, and answer for it: a class, a number or several."""
        model = self._estimator
        row = np.asarray(values, dtype=np.float64).reshape(-1)
        if len(row) != len(model.center_) or not np.isfinite(row).all():
            raise InputError(f"expected {len(model.center_)} finite values, got {row.tolist()}.")
        check_timespan(timespan, model.span_unit_)
        span = 1.0 if timespan is None else timespan / model.span_unit_
        row = (row - model.center_) / model.scale_
        self._bank.push(row[None].astype(np.float32), None if timespan is None else torch.tensor([span]))
        self._past = np.concatenate([self._past, row[None]])[-max(model.lags_, default=0) - 1 :]
        self._total, self._elapsed = self._total + span * row, self._elapsed + span
        past = [row - self._past[max(len(self._past) - 1 - lag, 0)] for lag in model.lags_]
        mean, outputs = self._total / self._elapsed, self._bank.outputs().numpy()
        linear = np.concatenate([row, *past, self._total, mean, [np.log1p(self._elapsed)], outputs])
        answer = (model._with_random(linear[None].astype(np.float32)) @ model.coef_ + model.intercept_)[0]
        if hasattr(model, "classes_"):
            return model.classes_[answer.argmax()]
        numbers = answer * model.target_scale_ + model.target_center_
        return numbers if model.has_columns_ else numbers[0]

"""`OscillatorClassifier`: classes by a ridge on the features of random oscillators."""

from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, validate_data

from sostenuto.checks import require
from sostenuto.estimators.classes import softmax, temperature
from sostenuto.estimators.oscillators.ridge import AnswerStream, HeldOut, OscillatorRidge


class OscillatorClassifier(ClassifierMixin, OscillatorRidge):
    """Classify sequences of any lengths by random damped oscillators and a ridge: no training, seconds.

    The features are those of `OscillatorFeatures`; a ridge regression on the one-against-rest labels ±1 reads them, its
    penalty chosen by leave-one-out errors. A class with a single member cannot be judged without it, so such rows do
    not vote.

    Args:
        n_units: oscillators; 16 features each.
        quality: range of the quality factors, as in `OscillatorFeatures`.
        longest_period: of the oscillators, in median lengths of the training sequences.
        class_weight: None, ``"balanced"`` (every class counts the same), or a dict from class to weight.
        scaling: ``"standard"``, ``"minmax"`` or ``"none"``, per channel, learned in `fit`.
        layout: ``"btc"`` or ``"bct"``: which axis of a 3-D array (and of the items of a list) is time.
        random_state: of the draw. A whole number makes `fit` repeatable.

    `predict_proba` is the softmax of the scores over one temperature, fitted by likelihood on the leave-one-out scores;
    it never disagrees with `predict`.

    Fitted attributes: ``classes_``, ``penalty_``, ``best_score_`` (leave-one-out accuracy), ``temperature_``,
    ``coef_`` (feature, class), ``intercept_``, and those of `OscillatorFeatures`.

    >>> rising = np.linspace(0, 1, 30)
    >>> X = np.stack([rising, rising[::-1]] * 6) + 0.01 * np.arange(12)[:, None]
    >>> classifier = OscillatorClassifier(n_units=50, random_state=0).fit(X, ["up", "down"] * 6)
    >>> classifier.predict([rising[:25], rising[::-1]])
    array(['up', 'down'], dtype='<U4')
    """

    classes_: np.ndarray
    best_score_: float
    temperature_: float
    penalty_: float

    # No annotations: scikit-learn wants any value taken here without a word and judged in `fit`.
    def __init__(
        self,
        n_units=700,
        *,
        quality=(0.3, 8.0),
        longest_period=1.0,
        class_weight=None,
        scaling="standard",
        layout="btc",
        random_state=None,
    ) -> None:
        self.n_units = n_units
        self.quality = quality
        self.longest_period = longest_period
        self.class_weight = class_weight
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
    ) -> "OscillatorClassifier":
        """Learn to tell the classes ``y`` (n labels of any kind) of ``X``.

        With a ``client`` of dask.distributed the sums that the ridge needs are made on its workers.
        """
        labels, indices = self._labels(X, y)
        rows = self._draw(X, timespans)
        targets, weight, several = self._targets(labels, indices, sample_weight)
        self._calibrate(self._fit_ridge(rows, targets, weight, several, client), indices, several)
        return self

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        timespans: Any = None,
    ) -> "OscillatorClassifier":
        """Learn from some more sequences; only sums over them are kept, so that all together need not fit in memory.

        The first call names all ``classes`` (those in ``y`` if None), sets scales and thresholds, and chooses penalty
        and temperature. ``class_weight`` needs all of ``y`` at once if it is ``"balanced"``: pass weights instead.
        """
        require(
            self.class_weight != "balanced",
            "expected class_weight to be a dict or None with partial_fit",
            "got 'balanced', which needs all of y",
            "pass the weights as a dict",
        )
        if self._check_goes_on():
            labels, indices = self._labels(X, y, self.classes_)
            self._fit_part(self._read(X, timespans), *self._targets(labels, indices, sample_weight))
            return self
        labels, indices = self._labels(X, y, None if classes is None else np.unique(classes))
        rows = self._draw(X, timespans)
        targets, weight, several = self._targets(labels, indices, sample_weight)
        held_out = self._fit_part(rows, targets, weight, several)
        assert held_out is not None
        self._calibrate(held_out, indices, several)
        return self

    def _labels(self, raw: Any, y: Any, classes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Check labels, and give them with their places among the classes; ``classes`` None: those that occur."""
        labels = np.asarray(validate_data(self, y=y))
        check_classification_targets(labels)
        check_consistent_length(raw, labels)
        known = np.unique(labels) if classes is None else classes
        got = f"got 1 class, {str(known[0])!r}" if len(known) else "got no labels"
        require(len(known) > 1, "expected at least 2 classes", got, "check y")
        unknown = np.setdiff1d(labels, known)
        require(not len(unknown), "expected classes of the first part", f"got {unknown[:3]}", "name all with classes=")
        self.classes_ = known
        return labels, np.searchsorted(known, labels)

    def _targets(
        self, labels: np.ndarray, indices: np.ndarray, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return labels as ±1, the weight of each row, and whether its class has another member."""
        weight = _check_sample_weight(sample_weight, labels[:, None], dtype=np.float64)
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, labels)
        targets = np.where(indices[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)
        return targets, weight, (np.bincount(indices) > 1)[indices]

    def _calibrate(self, held_out: HeldOut, indices: np.ndarray, several: np.ndarray) -> None:
        """Judge the answers for unseen rows, and find the temperature that makes probabilities of them."""
        judged = several[held_out.rows] if several[held_out.rows].any() else np.ones(len(held_out.rows), bool)
        answers, truth = held_out.answers[judged], indices[held_out.rows][judged]
        self.best_score_ = float(np.mean(answers.argmax(1) == truth))
        self.temperature_ = temperature(answers, truth)

    def decision_function(self, X: Any, *, timespans: Any = None) -> Float64[np.ndarray, "n ..."]:  # noqa: N803
        """Return one score per class, ``(n, classes)``; for two classes how much the second leads, ``(n,)``."""
        scores = self._scores(X, timespans)
        return (scores[:, 1] - scores[:, 0]) / 2 if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any, *, timespans: Any = None) -> Float64[np.ndarray, "n class"]:  # noqa: N803
        """Return the probability of every class, in the order of ``classes_``."""
        scores = self._scores(X, timespans)
        return softmax(scores / self.temperature_)

    def predict(self, X: Any, *, timespans: Any = None) -> Shaped[np.ndarray, " n"]:  # noqa: N803
        """Return the class with the highest score for every sequence."""
        best = self._scores(X, timespans).argmax(1)
        return self.classes_[best]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> float:  # noqa: N803
        """Return the share of sequences that are answered right."""
        return float(accuracy_score(y, self.predict(X, timespans=timespans), sample_weight=sample_weight))

    def stream(self) -> "ClassStream":
        """Begin a sequence that is read step by step, with probabilities after each step."""
        self._solve()
        return ClassStream(self)

    def _scores(self, raw: Any, timespans: Any) -> Float64[np.ndarray, "n class"]:
        return self._answers(self._read(raw, timespans))


class ClassStream(AnswerStream):
    """Probabilities of the classes while a sequence arrives.

    >>> X = np.random.default_rng(0).normal(size=(20, 40)).cumsum(1) * np.where(np.arange(20) % 2, 1, -1)[:, None]
    >>> stream = OscillatorClassifier(n_units=20, random_state=0).fit(X, np.arange(20) % 2).stream()
    >>> stream.push(0.3)
    >>> stream.predict_proba().shape
    (2,)
    """

    _estimator: OscillatorClassifier

    def predict_proba(self) -> Float64[np.ndarray, " class"]:
        """Return the probability of every class after what has been read so far."""
        return softmax(self.answers()[None] / self._estimator.temperature_)[0]

    def predict(self) -> Any:
        """Return the most probable class after what has been read so far."""
        return self._estimator.classes_[self.answers().argmax()]

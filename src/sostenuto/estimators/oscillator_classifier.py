"""`OscillatorClassifier`: classes by a ridge on the features of random oscillators."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Shaped
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, validate_data

from sostenuto.checks import require
from sostenuto.estimators.class_scores import softmax, temperature
from sostenuto.estimators.oscillator_features import FeatureStream, OscillatorEstimator
from sostenuto.models.loo_ridge import LeaveOneOutRidge


class OscillatorClassifier(ClassifierMixin, OscillatorEstimator):
    """Classify sequences of any lengths by random damped oscillators and a ridge: no training, seconds.

    The features are those of `OscillatorFeatures`; a ridge regression on the one-against-rest labels ±1 reads them, its
    penalty chosen by leave-one-out errors. A class with a single member cannot be judged without it, so such rows do
    not vote.

    Args:
        n_units: oscillators; 16 features each.
        quality: range of the quality factors, as in `OscillatorFeatures`.
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
        class_weight=None,
        scaling="standard",
        layout="btc",
        random_state=None,
    ) -> None:
        self.n_units = n_units
        self.quality = quality
        self.class_weight = class_weight
        self.scaling = scaling
        self.layout = layout
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None  # noqa: N803
    ) -> "OscillatorClassifier":  # fmt: skip
        """Learn to tell the classes ``y`` (n labels of any kind) of ``X``."""
        labels = validate_data(self, y=y)
        check_classification_targets(labels)
        check_consistent_length(X, labels)
        classes, indices = np.unique(labels, return_inverse=True)
        got = f"got 1 class, {str(classes[0])!r}" if len(classes) else "got no labels"
        require(len(classes) > 1, "expected at least 2 classes", got, "check y")
        features = torch.from_numpy(self._learn(X, timespans))
        weight = _check_sample_weight(sample_weight, features, dtype=np.float64)
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, labels)
        targets = np.where(indices[:, None] == np.arange(len(classes)), 1.0, -1.0)
        several = (np.bincount(indices) > 1)[indices]
        ridge = LeaveOneOutRidge.fit(
            features,
            torch.from_numpy(targets),
            sample_weight=torch.from_numpy(weight),
            judged=torch.from_numpy(several),
        )
        held_out = ridge.held_out.numpy()
        self.classes_, self.penalty_ = classes, ridge.penalty
        self.coef_, self.intercept_ = (part.numpy() for part in ridge.line())
        rows = several if several.any() else np.ones(len(indices), bool)
        self.best_score_ = float(np.mean(held_out[rows].argmax(1) == indices[rows]))
        self.temperature_ = temperature(held_out[rows], indices[rows])
        return self

    def decision_function(self, X: Any, *, timespans: Any = None) -> Float64[np.ndarray, "n ..."]:  # noqa: N803
        """Give one score per class, ``(n, classes)``; for two classes how much the second leads, ``(n,)``."""
        scores = self._scores(X, timespans)
        return (scores[:, 1] - scores[:, 0]) / 2 if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any, *, timespans: Any = None) -> Float64[np.ndarray, "n class"]:  # noqa: N803
        """Give the probability of every class, in the order of ``classes_``."""
        scores = self._scores(X, timespans)
        return softmax(scores / self.temperature_)

    def predict(self, X: Any, *, timespans: Any = None) -> Shaped[np.ndarray, " n"]:  # noqa: N803
        """Give the class with the highest score for every sequence."""
        best = self._scores(X, timespans).argmax(1)
        return self.classes_[best]

    def stream(self) -> "ClassStream":
        """Begin a sequence that is read step by step, with an answer after each step."""
        return ClassStream(self)

    def _scores(self, given: Any, timespans: Any) -> Float64[np.ndarray, "n class"]:
        features = self._features(given, timespans)
        return features @ self.coef_ + self.intercept_


class ClassStream(FeatureStream):
    """Probabilities of the classes while a sequence arrives.

    >>> X = np.random.default_rng(0).normal(size=(20, 40)).cumsum(1) * np.where(np.arange(20) % 2, 1, -1)[:, None]
    >>> stream = OscillatorClassifier(n_units=20, random_state=0).fit(X, np.arange(20) % 2).stream()
    >>> stream.push(0.3)
    >>> stream.predict_proba().shape
    (2,)
    """

    def __init__(self, estimator: OscillatorClassifier) -> None:
        super().__init__(estimator)
        self._estimator = estimator

    def predict_proba(self) -> Float64[np.ndarray, " class"]:
        """Give the probability of every class after what has been read so far."""
        scores = self.features() @ self._estimator.coef_ + self._estimator.intercept_
        return softmax(scores[None] / self._estimator.temperature_)[0]

    def predict(self) -> Any:
        """Give the most probable class after what has been read so far."""
        return self._estimator.classes_[self.predict_proba().argmax()]

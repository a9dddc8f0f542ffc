"""`OscillatorRegressor`: numbers by a ridge on the features of random oscillators."""

from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, validate_data

from sostenuto.checks import require
from sostenuto.estimators.oscillator_features import OscillatorEstimator
from sostenuto.models.loo_ridge import LeaveOneOutRidge


class OscillatorRegressor(RegressorMixin, OscillatorEstimator):
    """Predict numbers from sequences of any lengths by random damped oscillators and a ridge.

    Parameters are those of `OscillatorClassifier` without the class weights. Targets are ``(n,)`` or ``(n, targets)``,
    standardized inside, and share one penalty, chosen by leave-one-out errors.

    Fitted attributes: ``penalty_``, ``best_score_`` (leave-one-out R², the mean over targets), ``coef_``,
    ``intercept_``, and those of `OscillatorFeatures`.

    >>> X = np.random.default_rng(0).normal(size=(40, 50)) + np.arange(40)[:, None] / 10
    >>> regressor = OscillatorRegressor(n_units=50, random_state=0).fit(X, np.arange(40))
    >>> bool(regressor.best_score_ > 0.9)
    True
    """

    penalty_: float
    best_score_: float

    # No annotations: scikit-learn wants any value taken here without a word and judged in `fit`.
    def __init__(self, n_units=700, *, quality=(0.3, 8.0), scaling="standard", layout="btc", random_state=None) -> None:
        self.n_units = n_units
        self.quality = quality
        self.scaling = scaling
        self.layout = layout
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None  # noqa: N803
    ) -> "OscillatorRegressor":  # fmt: skip
        """Learn to predict ``y``, ``(n,)`` or ``(n, targets)``, from ``X``."""
        numbers = np.asarray(validate_data(self, y=y, multi_output=True, y_numeric=True), dtype=np.float64)
        check_consistent_length(X, numbers)
        require(len(numbers) > 1, "expected at least 2 sequences to fit", "got 1 sample", "bring more")
        self.has_columns_ = numbers.ndim > 1
        columns = numbers.reshape(len(numbers), -1)
        center, spread = columns.mean(axis=0), columns.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        features = torch.from_numpy(self._learn(X, timespans))
        weight = torch.from_numpy(_check_sample_weight(sample_weight, features, dtype=np.float64))
        ridge = LeaveOneOutRidge.fit(features, torch.from_numpy((columns - center) / spread), sample_weight=weight)
        self.penalty_ = ridge.penalty
        slope, offset = (part.numpy() for part in ridge.line())
        self.coef_, self.intercept_ = slope * spread, offset * spread + center
        residual = ridge.held_out.numpy() - (columns - center) / spread
        self.best_score_ = float(1 - np.mean(residual**2))
        return self

    def predict(self, X: Any, *, timespans: Any = None) -> np.ndarray:  # noqa: N803
        """Give the predicted numbers in the shape of the ``y`` of `fit`."""
        features = self._features(X, timespans)
        numbers = features @ self.coef_ + self.intercept_
        return numbers if self.has_columns_ else numbers[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

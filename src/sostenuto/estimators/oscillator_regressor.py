"""`OscillatorRegressor`: numbers by a ridge on the features of random oscillators."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, validate_data

from sostenuto.checks import require
from sostenuto.estimators.oscillator_ridge import HeldOut, OscillatorRidge


class OscillatorRegressor(RegressorMixin, OscillatorRidge):
    """Predict numbers from sequences of any lengths by random damped oscillators and a ridge.

    Parameters are those of `OscillatorClassifier` without the class weights. Targets are ``(n,)`` or ``(n, targets)``,
    standardized inside, and share one penalty, chosen by leave-one-out errors.

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
    def __init__(self, n_units=700, *, quality=(0.3, 8.0), scaling="standard", layout="btc", random_state=None) -> None:
        self.n_units = n_units
        self.quality = quality
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
        self._judge(self._fit_ridge(rows, targets, weight, np.ones(len(rows), bool), client), targets)
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
        """Give the predicted numbers in the shape of the ``y`` of `fit`."""
        numbers = self._answers(self._read(X, timespans)) * self.target_scale_ + self.target_center_
        return numbers if self.has_columns_ else numbers[:, 0]

    def _columns(self, given: Any, y: Any) -> np.ndarray:
        """Check targets, and give them a column each."""
        numbers = np.asarray(validate_data(self, y=y, multi_output=True, y_numeric=True), dtype=np.float64)
        check_consistent_length(given, numbers)
        require(len(numbers) > 1, "expected at least 2 sequences to fit", "got 1 sample", "bring more")
        self.has_columns_ = numbers.ndim > 1
        return numbers.reshape(len(numbers), -1)

    def _targets(self, columns: np.ndarray, sample_weight: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Give standardized targets and the weight of each row."""
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

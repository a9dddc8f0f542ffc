"""`RecurrentRegressor`: one or several numbers a sequence, the scikit-learn way."""

from typing import Any

from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_consistent_length, validate_data

from sostenuto.estimators.base import RecurrentEstimator
from sostenuto.estimators.targets import joined_steps, read_step_targets


class RecurrentRegressor(RegressorMixin, RecurrentEstimator):
    """Predict one or several numbers from each sequence with a recurrent network.

    Sequences and parameters are those of `RecurrentClassifier`, without ``class_weight``. The loss is the squared error
    of targets scaled to unit variance; predictions are in the targets' own unit.

    >>> import numpy as np
    >>> slopes = np.linspace(-1, 1, 40)
    >>> X = slopes[:, None] * np.linspace(0, 1, 8)
    >>> regressor = RecurrentRegressor("gru", hidden_size=8, epochs=20, learning_rate=0.02, random_state=0)
    >>> regressor.fit(X, slopes).score(X, slopes) > 0.9
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> "RecurrentRegressor":  # noqa: N803
        """Learn to predict ``y``, ``(n,)`` or ``(n, targets)``, from ``X``.

        With ``step_targets``, ``y`` is ``(n, time)`` or ``(n, time, targets)``, or a list of one array per sequence.
        ``sample_weight`` says how much each sequence counts in the loss; ``timespans`` holds, for every step of every
        sequence, the time passed since the step before.
        """
        if self.step_targets:
            targets: Any = [row.astype(float) for row in read_step_targets(y, numbers=True)]
        else:
            targets = validate_data(self, y=y, multi_output=True, y_numeric=True)
        check_consistent_length(X, targets)
        self._fit(X, targets, "regression", timespans, sample_weight)
        return self

    def predict(self, X: Any, *, timespans: Any = None) -> Any:  # noqa: N803
        """Give the predicted numbers, in the shape of the ``y`` of `fit`."""
        return self._answer(X, timespans, lambda raw: self.encoding_.decode_targets(raw))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, timespans: Any = None) -> float:  # noqa: N803
        """Give the coefficient of determination R², averaged over targets."""
        answers = self.predict(X, timespans=timespans)
        if self.step_targets:
            y, answers, sample_weight = joined_steps(y, answers, sample_weight)
        return float(r2_score(y, answers, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

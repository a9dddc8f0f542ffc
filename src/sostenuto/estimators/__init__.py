"""scikit-learn estimators on sequences: fit, predict, score, search and pipe like any other."""

from sostenuto.estimators.classifier import RecurrentClassifier
from sostenuto.estimators.regressor import RecurrentRegressor

__all__ = ["RecurrentClassifier", "RecurrentRegressor"]

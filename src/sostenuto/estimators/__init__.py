"""scikit-learn estimators on sequences: fit, predict, score, search and pipe like any other."""

from sostenuto.estimators.classifier import RecurrentClassifier
from sostenuto.estimators.nystroem_rntk import NystroemRNTK
from sostenuto.estimators.regressor import RecurrentRegressor
from sostenuto.estimators.rntk_classifier import RNTKClassifier
from sostenuto.estimators.rntk_regressor import RNTKRegressor

__all__ = ["NystroemRNTK", "RNTKClassifier", "RNTKRegressor", "RecurrentClassifier", "RecurrentRegressor"]

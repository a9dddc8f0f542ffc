"""scikit-learn estimators on sequences: fit, predict, score, search and pipe like any other."""

from sostenuto.estimators.classifier import RecurrentClassifier
from sostenuto.estimators.forecaster import Forecaster
from sostenuto.estimators.nystroem_rntk import NystroemRNTK
from sostenuto.estimators.oscillator_classifier import OscillatorClassifier
from sostenuto.estimators.oscillator_features import OscillatorFeatures
from sostenuto.estimators.oscillator_regressor import OscillatorRegressor
from sostenuto.estimators.regressor import RecurrentRegressor
from sostenuto.estimators.rntk_classifier import RNTKClassifier
from sostenuto.estimators.rntk_regressor import RNTKRegressor

__all__ = [
    "Forecaster",
    "NystroemRNTK",
    "OscillatorClassifier",
    "OscillatorFeatures",
    "OscillatorRegressor",
    "RNTKClassifier",
    "RNTKRegressor",
    "RecurrentClassifier",
    "RecurrentRegressor",
]

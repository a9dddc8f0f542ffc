"""scikit-learn estimators on sequences: fit, predict, score, search and pipe like any other."""

from sostenuto.estimators.forecast.forecaster import Forecaster
from sostenuto.estimators.oscillators.classifier import OscillatorClassifier
from sostenuto.estimators.oscillators.features import OscillatorFeatures
from sostenuto.estimators.oscillators.ridge import OscillatorRegressor
from sostenuto.estimators.recurrent import RecurrentClassifier, RecurrentRegressor
from sostenuto.estimators.rntk.classifier import RNTKClassifier
from sostenuto.estimators.rntk.nystroem import NystroemRNTK
from sostenuto.estimators.rntk.regressor import RNTKRegressor

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

"""scikit-learn estimators on sequences: fit, predict, score, search and pipe like any other."""

from typing import TYPE_CHECKING

from sostenuto.lazy import lazy_names

if TYPE_CHECKING:
    from sostenuto.estimators.forecast.forecaster import Forecaster
    from sostenuto.estimators.oscillators.classifier import OscillatorClassifier
    from sostenuto.estimators.oscillators.features import OscillatorFeatures
    from sostenuto.estimators.oscillators.kernel import OscillatorKernel
    from sostenuto.estimators.oscillators.ridge import OscillatorRegressor
    from sostenuto.estimators.oscillators.steps import OscillatorStepClassifier, OscillatorStepRegressor
    from sostenuto.estimators.recurrent import RecurrentClassifier, RecurrentRegressor
    from sostenuto.estimators.rntk.classifier import RNTKClassifier
    from sostenuto.estimators.rntk.nystroem import NystroemRNTK
    from sostenuto.estimators.rntk.regressor import RNTKRegressor

__all__ = [
    "Forecaster",
    "NystroemRNTK",
    "OscillatorClassifier",
    "OscillatorFeatures",
    "OscillatorKernel",
    "OscillatorRegressor",
    "OscillatorStepClassifier",
    "OscillatorStepRegressor",
    "RNTKClassifier",
    "RNTKRegressor",
    "RecurrentClassifier",
    "RecurrentRegressor",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)

"""scikit-learn estimators on sequences: fit, predict, score, search and pipe like any other."""

import importlib
from typing import TYPE_CHECKING, Any

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

HOMES = {
    "Forecaster": "sostenuto.estimators.forecast.forecaster",
    "NystroemRNTK": "sostenuto.estimators.rntk.nystroem",
    "OscillatorClassifier": "sostenuto.estimators.oscillators.classifier",
    "OscillatorFeatures": "sostenuto.estimators.oscillators.features",
    "OscillatorKernel": "sostenuto.estimators.oscillators.kernel",
    "OscillatorRegressor": "sostenuto.estimators.oscillators.ridge",
    "OscillatorStepClassifier": "sostenuto.estimators.oscillators.steps",
    "OscillatorStepRegressor": "sostenuto.estimators.oscillators.steps",
    "RNTKClassifier": "sostenuto.estimators.rntk.classifier",
    "RNTKRegressor": "sostenuto.estimators.rntk.regressor",
    "RecurrentClassifier": "sostenuto.estimators.recurrent",
    "RecurrentRegressor": "sostenuto.estimators.recurrent",
}


def __getattr__(name: str) -> Any:
    """Import an estimator when it is first asked for: a fit from the command line needs none or one of them."""
    if name not in HOMES:
        raise AttributeError(f"module 'sostenuto.estimators' has no attribute {name!r}")
    return getattr(importlib.import_module(HOMES[name]), name)

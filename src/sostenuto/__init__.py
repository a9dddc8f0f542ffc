"""sostenuto: recurrent sequence models that remember, with proof of how long.

Everything public hangs on this module and is imported when first used, so `import sostenuto` stays cheap.
"""

from typing import TYPE_CHECKING

from sostenuto.lazy import lazy_names
from sostenuto.version import __version__

if TYPE_CHECKING:
    from sostenuto import audits, datasets, kernels, nn, theory
    from sostenuto.audits.audit import audit
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
    "__version__",
    "audit",
    "audits",
    "datasets",
    "kernels",
    "nn",
    "theory",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)

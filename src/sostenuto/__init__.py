"""sostenuto: recurrent sequence models that remember, with proof of how long.

Everything public hangs on this module and is imported when first used, so `import sostenuto` stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

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

_HOMES = {
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
    "audit": "sostenuto.audits.audit",
}
"""Where the public names that are not modules live."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in __all__:
        return importlib.import_module(f"sostenuto.{name}")
    raise AttributeError(f"module 'sostenuto' has no attribute {name!r}; public names are: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)

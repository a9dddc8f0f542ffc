"""sostenuto: recurrent sequence models that remember, with proof of how long.

Everything public hangs on this module and is imported when first used, so `import sostenuto` stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sostenuto.version import __version__

if TYPE_CHECKING:
    from sostenuto import audits, datasets, kernels, nn, theory
    from sostenuto.audits.audit import audit
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
    "__version__",
    "audit",
    "audits",
    "datasets",
    "kernels",
    "nn",
    "theory",
]

_HOMES = {
    "Forecaster": "sostenuto.estimators.forecaster",
    "NystroemRNTK": "sostenuto.estimators.nystroem_rntk",
    "OscillatorClassifier": "sostenuto.estimators.oscillator_classifier",
    "OscillatorFeatures": "sostenuto.estimators.oscillator_features",
    "OscillatorRegressor": "sostenuto.estimators.oscillator_regressor",
    "RNTKClassifier": "sostenuto.estimators.rntk_classifier",
    "RNTKRegressor": "sostenuto.estimators.rntk_regressor",
    "RecurrentClassifier": "sostenuto.estimators.classifier",
    "RecurrentRegressor": "sostenuto.estimators.regressor",
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

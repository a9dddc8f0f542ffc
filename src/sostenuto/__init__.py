"""sostenuto: recurrent sequence models that remember, with proof of how long.

Everything public hangs on this module and is imported when first used, so `import sostenuto` stays cheap.
"""

import importlib
from typing import Any

from sostenuto.version import __version__

_MODULES = ("audits", "datasets", "kernels", "nn")
_NAMES: dict[str, str] = {
    "RecurrentClassifier": "sostenuto.estimators.classifier",
    "RecurrentRegressor": "sostenuto.estimators.regressor",
}

__all__ = ["__version__", *_MODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"sostenuto.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'sostenuto' has no attribute {name!r}; public names are: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)

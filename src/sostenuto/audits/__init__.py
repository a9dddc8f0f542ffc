"""Questions put to any trained sequence model, each answered by a frozen record of numbers: a method a file.

Names are imported when first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sostenuto.audits.base import AuditResult
    from sostenuto.audits.robustness.noise import NoiseAccuracy, noise_accuracy

__all__ = ["AuditResult", "NoiseAccuracy", "noise_accuracy"]

_HOMES = {"AuditResult": "base", "NoiseAccuracy": "robustness.noise", "noise_accuracy": "robustness.noise"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"sostenuto.audits.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'sostenuto.audits' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)

"""Kernels between sequences of any length, each a scikit-learn Gaussian-process kernel: one kernel a file.

Names are imported when first used, so that scikit-learn is loaded only by who needs it.
"""

import importlib
from typing import TYPE_CHECKING, Any

# Not left for later: a folder of the same name would take its place when it is loaded.
from sostenuto.kernels.gram import gram

if TYPE_CHECKING:
    from sostenuto.kernels.base import SequenceKernel, as_objects
    from sostenuto.kernels.empirical_ntk import EmpiricalNTK
    from sostenuto.kernels.ntk import NTK
    from sostenuto.kernels.polynomial import Polynomial
    from sostenuto.kernels.rbf import RBF
    from sostenuto.kernels.recurrent_ntk import RecurrentNTK
    from sostenuto.kernels.signature import Signature
    from sostenuto.kernels.untied_recurrent_ntk import UntiedRecurrentNTK
    from sostenuto.kernels.wide_rnn import WideRNN

__all__ = [
    "NTK",
    "RBF",
    "EmpiricalNTK",
    "Polynomial",
    "RecurrentNTK",
    "SequenceKernel",
    "Signature",
    "UntiedRecurrentNTK",
    "WideRNN",
    "as_objects",
    "gram",
]

_HOMES = {
    "EmpiricalNTK": "empirical_ntk",
    "NTK": "ntk",
    "Polynomial": "polynomial",
    "WideRNN": "wide_rnn",
    "RBF": "rbf",
    "RecurrentNTK": "recurrent_ntk",
    "SequenceKernel": "base",
    "Signature": "signature",
    "UntiedRecurrentNTK": "untied_recurrent_ntk",
    "as_objects": "base",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"sostenuto.kernels.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'sostenuto.kernels' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)

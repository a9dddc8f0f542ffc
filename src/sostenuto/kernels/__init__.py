"""Kernels between sequences of any length, each a scikit-learn Gaussian-process kernel: one kernel per file.

Names are imported when first used, so that scikit-learn is loaded only by who needs it.
"""

from typing import TYPE_CHECKING

# Not left for later: a folder of the same name would take its place when it is loaded.
from sostenuto.kernels.gram import gram
from sostenuto.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(__name__, __file__)

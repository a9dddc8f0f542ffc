"""Whether Triton's interpreter can run kernels here."""

import inspect

import numpy as np

from sostenuto.ops.backend import HAS_TRITON

NUMPY_REFUSES = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 5)
"""Since 2.5 numpy makes no number of an array of one element; Triton 3.6, which comes with torch 2.11, asks for it."""


def why_not() -> str:
    """Say what keeps Triton's interpreter from running here; empty where nothing does."""
    if not HAS_TRITON:
        return "Triton has no wheel for this system"
    from triton.runtime import interpreter

    counts_as_before = "int(self.handle.data))" in inspect.getsource(interpreter)
    return "this Triton's interpreter needs numpy below 2.5" if counts_as_before and NUMPY_REFUSES else ""

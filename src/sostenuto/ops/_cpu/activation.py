"""The nonlinearities for Numba kernels, row by row: the choice is made once per row, and each loop is vectorized.

A code without a loop gives NaN.
"""

from typing import no_type_check

import numpy as np

from sostenuto.ops._cpu.compiled import procedure
from sostenuto.ops._cpu.tanh import tanh
from sostenuto.ops.activation import ACTIVATIONS

TANH, RELU, HARDTANH, LOGISTIC, IDENTITY, MODRELU = range(len(ACTIVATIONS))


@no_type_check
@procedure
def _modrelu(y, z, threshold, out):
    zero = out.dtype.type(0.0)
    for i in range(threshold.shape[0]):
        a = y[i] + z[i]
        size = (-a if a < zero else a) + threshold[i]
        size = zero if size < zero or a == zero else size
        out[i] = -size if a < zero else size


@no_type_check
@procedure
def _activate_row(code, y, z, threshold, out):
    kind = out.dtype.type
    zero, half, one = kind(0.0), kind(0.5), kind(1.0)
    n = threshold.shape[0]
    if code == TANH:
        for i in range(n):
            out[i] = tanh(y[i] + z[i])
    elif code == LOGISTIC:
        for i in range(n):
            out[i] = half + half * tanh(half * (y[i] + z[i]))
    elif code == IDENTITY:
        for i in range(n):
            out[i] = y[i] + z[i]
    elif code == RELU:
        for i in range(n):
            a = y[i] + z[i]
            out[i] = zero if a < zero else a
    elif code == HARDTANH:
        for i in range(n):
            a = y[i] + z[i]
            a = one if a > one else a
            out[i] = -one if a < -one else a
    elif code == MODRELU:
        _modrelu(y, z, threshold, out)
    else:
        out[:] = np.nan


@no_type_check
@procedure
def activate_tile(code, product, drive, threshold, activated, rows):
    """Write σ(product + drive) row by row; ``product`` may have wider rows, the others lie flat. NaN stays NaN."""
    n = threshold.shape[0]
    for r in range(rows):
        _activate_row(code, product[r], drive[r * n : (r + 1) * n], threshold, activated[r * n : (r + 1) * n])


@no_type_check
@procedure
def slope_into(code, activated, cotangent):
    """Multiply ``cotangent`` by the slope, which is known from the value."""
    kind = activated.dtype.type
    zero, one = kind(0.0), kind(1.0)
    n = activated.shape[0]
    if code == TANH:
        for i in range(n):
            cotangent[i] *= one - activated[i] * activated[i]
    elif code == LOGISTIC:
        for i in range(n):
            cotangent[i] *= activated[i] * (one - activated[i])
    elif code == HARDTANH:
        for i in range(n):
            inside = (activated[i] if activated[i] > zero else -activated[i]) < one
            cotangent[i] = cotangent[i] if inside else zero
    elif code in (RELU, MODRELU):
        for i in range(n):
            cotangent[i] = zero if activated[i] == zero else cotangent[i]
    elif code != IDENTITY:
        cotangent[:] = np.nan

"""What single sequences bring to their pairs, on the CPU: Numba, some sequences a thread.

The numbers are those of ``ops/recurrent_ntk/profile.py``, in one array (n, time, column): compiled calls count
references to every array they are given. Each sequence ends at the last row, so that sequences of several lengths meet
there; rows before its first step are neither written nor read.
"""

import math
from dataclasses import dataclass
from typing import Any, no_type_check

import numpy as np
from numba import njit

from sostenuto.checks import InputError
from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops._cpu.threads import run_blocks

LARGEST = 1e300
SMALL, LARGE = 1e-100, 1e100
"""Standard deviations between these need no power of 2 taken out."""
_INLINE: Any = {**OPTIONS, "inline": "always"}
_LN2, _ROOT_HALF = math.log(2.0), math.sqrt(0.5)
_NONE = -(1 << 40)


@dataclass(frozen=True)
class Profiles:
    """Profiles of n sequences, sorted by length, longest first.

    Columns of ``table``, with L layers: first the ``parts`` that pairs take differences of (layer 1: the inputs, the
    bias where there is one, d·α; others: e·α, the bias, d·α), then L each of d, e, the gap, α and the α before.
    """

    table: np.ndarray
    parts: int
    lengths: np.ndarray
    log_unit: np.ndarray
    """(n, time)"""
    own: np.ndarray
    """(n, 2): A(x, x) and A(x, x) + A′Θ(x, x) of the top layer after the last step."""

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each step's share of a mean in units of the largest, (n, time), and the logarithm of the largest."""
        steps = self.log_unit.shape[1]
        inside = np.arange(steps)[None, :] >= steps - self.lengths[:, None]
        logs = np.where(inside, self.log_unit, -np.inf)
        largest = logs.max(axis=1)
        largest = np.where(np.isinf(largest), 0.0, largest)
        return np.exp(logs - largest[:, None]) / self.lengths[:, None], largest


def profiles(x: np.ndarray, lengths: np.ndarray, sigmas: np.ndarray, erf: bool) -> Profiles:
    """Return profiles of sequences that lie one after the other in ``x`` (all steps, channel).

    ``sigmas`` is (4, layer) in the order w, u, b, h.
    """
    count, most, layers = len(lengths), int(lengths.max()), sigmas.shape[1]
    bias = bool(sigmas[2].any())
    parts = x.shape[1] + 1 + bias + (layers - 1) * (2 + bias)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    table = np.zeros((count, most, parts + 5 * layers))
    log_unit, own, largest = np.full((count, most), -np.inf), np.zeros((count, 2)), np.zeros(count)
    scaled = np.ascontiguousarray(x * (1 / math.sqrt(x.shape[1])))

    def kernel(start: int, stop: int) -> None:
        _profiles(scaled, starts, lengths, sigmas, erf, bias, table, log_unit, own, largest, start, stop)

    run_blocks(kernel, count, max(1, count // 16))
    if not (largest < LARGEST).all():
        index = int(np.flatnonzero(~(largest < LARGEST))[0])
        raise InputError(
            f"expected variances below {LARGEST:g}, got {largest[index]:.3g} in a sequence of {lengths[index]} steps; "
            "scale the inputs or σ down, or take activation='relu'."
        )
    return Profiles(table, parts, lengths, log_unit, own)


@no_type_check
@njit(**_INLINE)
def _scaled(value, exponent):
    return value if exponent == 0 else math.ldexp(value, exponent)


@no_type_check
@njit(**OPTIONS)
def _moments(q, erf):
    """Return r, the gap, the slope A′, α and the unit at variance q."""
    if erf:
        r = math.sqrt(2.0 / (1.0 + 2.0 * q))
        gap = 0.5 * r * r
        slope = 2.0 / (math.pi * math.sqrt(gap * (2.0 - gap)))
        angle = math.asin(r * r * q) if q < 0.5 else 0.5 * math.pi - 2.0 * math.asin(math.sqrt(0.5 * gap))
        return r, gap, slope, math.sqrt(2.0 / math.pi * angle), 1.0
    unit = math.sqrt(q)
    return (1.0 / unit if q > 0.0 else 0.0), 0.0, 0.5, _ROOT_HALF, unit


@no_type_check
@njit(**OPTIONS)
def _exponent(carried, carried_shift, bias, entering, below, below_shift):
    """Choose a power of 2 that brings the largest contribution to a standard deviation near 1; 0 while all is well."""
    if carried_shift == 0 and below_shift == 0 and SMALL < max(carried, bias, entering, below) < LARGE:
        return 0
    k = _NONE
    if carried > 0.0:
        k = math.frexp(carried)[1] + carried_shift
    if below > 0.0:
        k = max(k, math.frexp(below)[1] + below_shift)
    largest = max(bias, entering)
    if largest > 0.0:
        k = max(k, math.frexp(largest)[1])
    return 0 if k == _NONE else k


@no_type_check
@njit(**OPTIONS)
def _profiles(x, starts, lengths, sigmas, erf, bias, table, log_unit, own, largest, start, stop):
    layers, most, m = sigmas.shape[1], table.shape[1], x.shape[1]
    parts, alpha = table.shape[2] - 5 * layers, 1.0 if erf else _ROOT_HALF
    unit, root, tangent, shift = np.empty(layers), np.empty(layers), np.empty(layers), np.empty(layers, np.int64)
    for n in range(start, stop):
        for layer in range(layers):
            unit[layer], root[layer], tangent[layer], shift[layer] = sigmas[3, layer] / alpha, alpha, 0.0, 0
        for t in range(lengths[n]):
            row, at, column = starts[n] + t, most - lengths[n] + t, 0
            for layer in range(layers):
                u, lower = sigmas[1, layer], max(layer - 1, 0)
                channels = m if layer == 0 else 0
                c, e = sigmas[0, layer] * unit[layer], u * unit[lower] if layer > 0 else 0.0
                entering = 0.0
                for i in range(channels):
                    entering = max(entering, abs(u * x[row, i]))
                k = 0 if erf else _exponent(c, shift[layer], sigmas[2, layer], entering, e, shift[lower])
                c, e, b = _scaled(c, shift[layer] - k), _scaled(e, shift[lower] - k), _scaled(sigmas[2, layer], -k)
                q = (c * root[layer]) ** 2 + (e * root[lower]) ** 2 + b * b
                for i in range(channels):
                    q += _scaled(u * x[row, i], -k) ** 2
                r, gap, slope, new, s = _moments(q, erf)
                largest[n] = q if not q <= largest[n] else largest[n]
                for i in range(channels):
                    table[n, at, column + i] = _scaled(u * x[row, i], -k) * r
                table[n, at, column + channels] = e * root[lower] * r  # layer 1 writes the next part over it
                column += channels if layer == 0 else 1
                table[n, at, column] = b * r
                column += 1 if bias else 0
                table[n, at, column] = c * root[layer] * r
                column += 1
                d, e = c * r, e * r
                table[n, at, parts + layer], table[n, at, parts + layers + layer] = d, e
                table[n, at, parts + 2 * layers + layer] = gap
                table[n, at, parts + 3 * layers + layer], table[n, at, parts + 4 * layers + layer] = new, root[layer]
                own_cosine = r * r * q if erf else 1.0
                theta = own_cosine + d * d * tangent[layer] + e * e * tangent[lower]
                tangent[layer] = slope * theta if q > 0.0 else 0.0
                unit[layer], root[layer], shift[layer] = s, new, k
            top = layers - 1
            log_unit[n, at] = math.log(unit[top]) + shift[top] * _LN2 if unit[top] > 0.0 else -np.inf
        own[n, 0] = root[layers - 1] ** 2
        own[n, 1] = own[n, 0] + tangent[layers - 1]

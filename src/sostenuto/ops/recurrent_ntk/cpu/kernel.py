"""The recurrent NTK on the CPU: Numba, one left sequence against blocks of right ones, through all of time at once.

Right sequences are sorted by length, longest first, and end at the same row: at a given distance from the end those
that have begun are the first of a block, so unequal lengths cost what they are long and no step is padded. The inner
loops run over the block, without a branch or a division, and vectorize. The README derives the forms.
"""

import math
from typing import Any, no_type_check

import numpy as np
from numba import njit

from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops._cpu.threads import run_blocks
from sostenuto.ops.recurrent_ntk.cpu.profile import Profiles

BLOCK = 256
"""Pairs of a block: its state stays in the first cache."""
ROWS = 4
"""Left sequences of one call."""
LANES = 32
"""Blocks are rounded up to so many pairs, some vector registers, so that no loop has a tail; the rest is dropped."""

_INLINE: Any = {"error_model": "numpy", "fastmath": {"contract"}, "inline": "always"}
_HALF_TURN, _BY_TURN, _BY_HALF = math.pi, 0.5 / math.pi, 2.0 / math.pi
# arcsin(w)/w as a polynomial in w² on [0, ½], interpolated at Chebyshev's nodes: relative error 2e-16.
C1, C2, C3, C4, C5, C6 = (
    0.16666666666664987, 0.07500000000401816, 0.044642856762615,
    0.030381963396751827, 0.022371584779320355, 0.017364281439103527,
)  # fmt: skip
C7, C8, C9, C10, C11, C12 = (
    0.01380344589589198, 0.013191002571753903, -0.002601537848299688,
    0.07871611357002127, -0.2968705430689824, 1.0082016650534187,
)  # fmt: skip
C13, C14, C15, C16, C17, C18 = (
    -2.4908808126226116, 4.6420689099888435, -6.229299875397985,
    5.7579408313146985, -3.278933156739812, 0.8892904367638688,
)  # fmt: skip


def pairs(
    left: Profiles,
    right: Profiles,
    identities: tuple[np.ndarray, np.ndarray],
    *,
    layers: int,
    erf: bool,
    bias: bool,
    kind: str,
    pooling: str,
    mode: str,
) -> np.ndarray:
    """Return the kernel in units of exp(log_unit); both sides are sorted by length, longest first.

    ``mode`` is ``"all"`` pairs, ``"upper"`` (the others mean nothing) or ``"own"``, each sequence with itself alone.
    """
    n1, n2 = len(left.lengths), 1 if mode == "own" else len(right.lengths)
    values = np.zeros((n1, n2))
    used = right.parts + layers * (5 if erf else 1 if layers == 1 else 2)
    columns = _last_axis(right.table[:, :, :used])
    mean = pooling == "mean"
    shares = (left.shares()[0], _last_axis(right.shares()[0])) if mean else (np.zeros((1, 1)), np.zeros((1, 1)))
    sizes = layers, left.parts, int(bias), erf, kind == "ntk", mean, {"all": 0, "upper": 1, "own": 2}[mode]

    def kernel(start: int, stop: int) -> None:
        _pairs(left.table, columns, left.lengths, right.lengths, *identities, *shares, *sizes, values, start, stop)

    run_blocks(kernel, n1, ROWS)
    return values


def _last_axis(array: np.ndarray) -> np.ndarray:
    """Bring the sequences to the last axis, where the inner loops run, with room for a last block rounded up."""
    moved = np.zeros((*array.shape[1:], -(-len(array) // LANES) * LANES + LANES))
    moved[..., : len(array)] = np.moveaxis(array, 0, -1)
    return moved


@no_type_check
@njit(**_INLINE)
def _arcsine(w, z):
    """Return arcsin w for z = w² ≤ ½."""
    p = ((((C18 * z + C17) * z + C16) * z + C15) * z + C14) * z + C13
    p = (((((p * z + C12) * z + C11) * z + C10) * z + C9) * z + C8) * z + C7
    p = (((((p * z + C6) * z + C5) * z + C4) * z + C3) * z + C2) * z + C1
    return w + w * (z * p)


@no_type_check
@njit(**_INLINE)
def _relu(delta, epsilon):
    """Return the loss ½ − A, the slope A′ and sin θ at C = 1 − δ = ε − 1."""
    near = delta if delta < epsilon else epsilon
    near = near if near > 0.0 else 0.0
    z = 0.5 * near
    w = math.sqrt(z)
    phi = 2.0 * _arcsine(w, z)
    sine = 2.0 * w * math.sqrt(1.0 - z)
    least = delta if delta < 1.0 else 1.0
    loss = _BY_TURN * (_HALF_TURN * least - (sine - phi * (1.0 - near)))
    rest = _HALF_TURN - phi if delta < epsilon else phi
    return (loss if loss > 0.0 else 0.0), _BY_TURN * rest, sine


@no_type_check
@njit(**_INLINE)
def _erf(cosine, near):
    """Return A = (2/π) arcsin C and A′, from C where |C| < ½ and elsewhere from ``near`` = 1 − |C|."""
    size = abs(cosine)
    small = size < 0.5
    z = cosine * cosine if small else 0.5 * near
    angle = _arcsine(size if small else math.sqrt(z), z)
    value = _BY_HALF * angle if small else 1.0 - 2.0 * _BY_HALF * angle
    squared = 1.0 - z if small else near * (2.0 - near)
    return (value if cosine >= 0.0 else -value), _BY_HALF / math.sqrt(squared)


@no_type_check
@njit(**OPTIONS)
def _advance(rows, columns, state, i, t, r, j0, lo, hi, layers, parts, bias, erf, first):
    """Move all layers by one step for pairs lo … hi of the block at j0; t is the left row, r the right one.

    ``state`` has a row for each layer of losses αα′ − A, or of A of the error function, one of tangents p for each,
    and three to work in.
    """
    if i < 0 or t < 0 or r < 0 or j0 < 0 or lo < 0:  # never; it spares the inner loops the wrapping of negative indices
        return
    apart, entering = 2 * layers, 2 * layers + 1
    column = 0
    for layer in range(layers):
        last = column + (parts - (layers - 1) * (2 + bias) if layer == 0 else 2 + bias)
        if erf:
            _erf_step(rows, columns, state, i, t, r, j0, lo, hi, layers, parts, layer, column, last)
            column = last
            continue
        v = rows[i, t, column]
        for j in range(lo, hi):
            difference = v - columns[r, column, j0 + j]
            state[apart, j] = 0.5 * difference * difference
        for c in range(column + 1, last):
            v = rows[i, t, c]
            for j in range(lo, hi):
                difference = v - columns[r, c, j0 + j]
                state[apart, j] += 0.5 * difference * difference
        column = last
        if layer > 0:
            below = parts + layers + layer
            e = rows[i, t, below]
            for j in range(lo, hi):
                state[apart, j] += e * columns[r, below, j0 + j] * state[layer - 1, j]
            for j in range(lo, hi):
                state[entering, j] = e * columns[r, below, j0 + j] * state[layers + layer - 1, j]
        else:
            for j in range(lo, hi):
                state[entering, j] = 0.0
        if first and layer == 0:
            _first_step(rows, columns, state, i, t, r, j0, lo, hi, parts, last, layers)
        else:
            _relu_step(rows[i, t, parts + layer], columns, state, r, j0, lo, hi, parts, layer, layers)


@no_type_check
@njit(**OPTIONS)
def _relu_step(d, columns, state, r, j0, lo, hi, parts, layer, layers):
    apart, entering, p = 2 * layers, 2 * layers + 1, layers + layer
    if r < 0 or j0 < 0 or lo < 0 or p < 0 or layer < 0 or parts < 0:
        return
    for j in range(lo, hi):
        dd = d * columns[r, parts + layer, j0 + j]
        delta = state[apart, j] + dd * state[layer, j]
        theta = 1.0 - delta + dd * state[p, j] + state[entering, j]
        loss, slope, _ = _relu(delta, 2.0 - delta)
        state[layer, j] = loss
        state[p, j] = slope * theta


@no_type_check
@njit(**OPTIONS)
def _first_step(rows, columns, state, i, t, r, j0, lo, hi, parts, last, layers):
    """Take the first step of the first layer, where 1 + C can vanish and is summed for itself."""
    for j in range(lo, hi):
        dd = rows[i, t, parts] * columns[r, parts, j0 + j]
        epsilon = 0.0
        for c in range(last - 1):
            total = rows[i, t, c] + columns[r, c, j0 + j]
            epsilon += 0.5 * total * total
        carried, other = rows[i, t, last - 1], columns[r, last - 1, j0 + j]
        epsilon += 0.5 * (carried * carried + other * other) + dd * (0.5 - state[0, j])
        delta = state[2 * layers, j] + dd * state[0, j]
        state[0, j], slope, _ = _relu(delta, epsilon)
        state[layers, j] = slope * (0.5 * (epsilon - delta))


@no_type_check
@njit(**OPTIONS)
def _erf_step(rows, columns, state, i, t, r, j0, lo, hi, layers, parts, layer, column, last):
    """Move one layer of error functions: C from products, and 1 − |C| from squares of what is not negative.

    With s the sign of C, 1 − |C| is the gap, ½(v_x − s v_y)² of every part, and s(αα′ − A) d d′ of what is carried.
    """
    cosine, near, entering, p = 2 * layers, 2 * layers + 2, 2 * layers + 1, layers + layer
    if i < 0 or t < 0 or r < 0 or j0 < 0 or lo < 0 or p < 0 or layer < 0 or parts < 0 or column < 0:
        return
    d = rows[i, t, parts + layer]
    for j in range(lo, hi):
        dd = d * columns[r, parts + layer, j0 + j]
        state[cosine, j] = dd * state[layer, j]
        state[entering, j] = dd * state[p, j]
        state[near, j] = rows[i, t, last - 1] * columns[r, last - 1, j0 + j] - state[cosine, j]
    if layer > 0:
        below = parts + layers + layer
        e = rows[i, t, below]
        for j in range(lo, hi):
            ee = e * columns[r, below, j0 + j]
            carried = ee * state[layer - 1, j]
            state[cosine, j] += carried
            state[entering, j] += ee * state[p - 1, j]
            state[near, j] += rows[i, t, column] * columns[r, column, j0 + j] - carried
    for c in range(column + min(layer, 1), last - 1):
        v = rows[i, t, c]
        for j in range(lo, hi):
            state[cosine, j] += v * columns[r, c, j0 + j]
    gap = parts + 2 * layers + layer
    for j in range(lo, hi):
        sign = 1.0 if state[cosine, j] >= 0.0 else -1.0
        state[near, j] = sign * state[near, j] + (0.5 * rows[i, t, gap] + 0.5 * columns[r, gap, j0 + j])
    for c in range(column, last):
        v = rows[i, t, c]
        for j in range(lo, hi):
            difference = v - columns[r, c, j0 + j] if state[cosine, j] >= 0.0 else v + columns[r, c, j0 + j]
            state[near, j] += 0.5 * difference * difference
    for j in range(lo, hi):
        least = 0.5 * rows[i, t, gap] + 0.5 * columns[r, gap, j0 + j]
        value, slope = _erf(state[cosine, j], max(state[near, j], least))
        state[layer, j] = value
        state[p, j] = slope * (state[cosine, j] + state[entering, j])


@no_type_check
@njit(**_INLINE)
def _rounded(n):
    return (n + LANES - 1) // LANES * LANES


@no_type_check
@njit(**OPTIONS)
def _begin(rows, columns, state, i, t, r, j0, lo, hi, layers, parts, erf, same):
    """Start pairs lo … hi: A is 0, or the start's own where the sequences are equal."""
    for layer in range(layers):
        before = parts + 4 * layers + layer
        for j in range(lo, hi):
            roots = rows[i, t, before] * columns[r, before, j0 + j] if erf else 0.5
            state[layer, j] = roots if same[j] == erf else 0.0
            state[layers + layer, j] = 0.0


@no_type_check
@njit(**_INLINE)
def _value(state, j, layers, erf, ntk):
    """Return A, or A + p, of the top layer."""
    value = state[layers - 1, j] if erf else 0.5 - state[layers - 1, j]
    return value + (state[2 * layers - 1, j] if ntk else 0.0)


@no_type_check
@njit(**OPTIONS)
def _last(rows, columns, state, i, j0, n, length, lengths, same, layers, parts, bias, erf, ntk, out):
    """Run one left sequence against a block along the diagonal on which both end."""
    most1, most2 = rows.shape[1], columns.shape[0]
    active = 0
    for k in range(min(length, lengths[j0]), 0, -1):
        begun = active
        while active < n and lengths[j0 + active] >= k:
            active += 1
        t, r = most1 - k, most2 - k
        if begun > 0:
            _advance(rows, columns, state, i, t, r, j0, 0, _rounded(begun), layers, parts, bias, erf, False)
        if active > begun:
            _begin(rows, columns, state, i, t, r, j0, begun, active, layers, parts, erf, same)
            _advance(rows, columns, state, i, t, r, j0, begun, active, layers, parts, bias, erf, True)
    for j in range(n):
        out[j] = _value(state, j, layers, erf, ntk)


@no_type_check
@njit(**OPTIONS)
def _mean(rows, columns, state, i, j0, n, length, other, same, shares, others, layers, parts, bias, erf, ntk, out):
    """Run one left sequence against a block of one length along every diagonal."""
    start1, start2 = rows.shape[1] - length, columns.shape[0] - other
    never = np.zeros(n, np.bool_)
    for offset in range(1 - length, other):
        t, r = start1 + max(-offset, 0), start2 + max(offset, 0)
        _begin(rows, columns, state, i, t, r, j0, 0, n, layers, parts, erf, same if offset == 0 else never)
        first = True
        while t < start1 + length and r < start2 + other:
            _advance(rows, columns, state, i, t, r, j0, 0, _rounded(n), layers, parts, bias, erf, first)
            for j in range(n):
                value = _value(state, j, layers, erf, ntk)
                out[j] += shares[i, t] * others[r, j0 + j] * value
            first = False
            t, r = t + 1, r + 1


@no_type_check
@njit(**OPTIONS)
def _pairs(
    rows, columns, lengths1, lengths2, identities1, identities2, shares, others,
    layers, parts, bias, erf, ntk, mean, which, values, start, stop,
):  # fmt: skip
    state, same = np.zeros((2 * layers + 3, BLOCK)), np.zeros(BLOCK, np.bool_)
    for i in range(start, stop):
        j0 = 0 if which == 0 else i if which == 2 else i // 8 * 8
        end = i + 1 if which == 2 else lengths2.shape[0]
        while j0 < end:
            j1 = min(j0 + BLOCK, end)
            while mean and lengths2[j1 - 1] != lengths2[j0]:
                j1 -= 1
            n = j1 - j0
            for j in range(n):
                same[j] = identities1[i] == identities2[j0 + j]
            out = values[i] if which == 2 else values[i, j0:j1]
            if mean:
                _mean(
                    rows, columns, state, i, j0, n, lengths1[i], lengths2[j0], same, shares, others,
                    layers, parts, bias, erf, ntk, out,
                )  # fmt: skip
            else:
                _last(
                    rows, columns, state, i, j0, n, lengths1[i], lengths2, same, layers, parts, bias, erf, ntk, out
                )  # fmt: skip
            j0 = j1

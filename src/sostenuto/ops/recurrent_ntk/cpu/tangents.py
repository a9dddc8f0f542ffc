"""The recurrent NTK and its derivatives on the CPU: Numba, tangents carried beside the state of ``ops/recurrent_ntk``.

For one layer of rectifiers with the last step read out. What a parameter does to single sequences (``tangents``) comes
from outside; through a step of a pair it moves with δ = Σ ½(v_x − v_y)² + d_x d_y G and Θ = 1 − δ + d_x d_y p as

    δ′ = Σ (v_x − v_y)(v_x′ − v_y′) + (d_x d_y)′ G + d_x d_y G′,     Θ′ = −δ′ + (d_x d_y)′ p + d_x d_y p′,
    G′ ← A′ δ′,     p′ ← A′ Θ′ − Θ δ′ / (2π sin θ),

as dG/dδ = A′ and d²A/dC² = 1/(2π sin θ): no arccos and no root more than the kernel has itself.
"""

from typing import no_type_check

import numpy as np
from numba import njit

from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops._cpu.threads import run_blocks
from sostenuto.ops.recurrent_ntk.cpu.kernel import BLOCK, ROWS, _relu, _rounded
from sostenuto.ops.recurrent_ntk.cpu.profile import Profiles

_BY_TURN = 0.15915494309189535
NEAR = 1e-9
"""Below this sin θ the slope's derivative counts as 0: it is of the order of sin θ there, as δ′ is of that of δ."""


def pairs_with_tangents(
    side: Profiles, tangents: np.ndarray, identities: np.ndarray, *, kind: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the kernel in units of exp(log_unit), (n, n), and its derivatives in these units, (parameter, n, n).

    ``tangents`` (parameter, n, time, column) are derivatives of the table's parts and of d. Sequences are sorted by
    length, longest first; what lies below the diagonal is filled in from above.
    """
    count, used = len(side.lengths), side.parts + 1
    rows = np.ascontiguousarray(side.table[:, :, :used])
    columns, moving = _last_axis(rows), np.stack([_last_axis(tangent) for tangent in tangents])
    values, slopes = np.zeros((count, count)), np.zeros((len(tangents), count, count))

    def kernel(start: int, stop: int) -> None:
        _pairs(rows, tangents, columns, moving, side.lengths, identities, kind == "ntk", values, slopes, start, stop)

    run_blocks(kernel, count, ROWS)
    below = np.tril_indices(count, -1)
    for matrix in (values, *slopes):
        matrix[below] = matrix.T[below]
    return values, slopes


def _last_axis(array: np.ndarray) -> np.ndarray:
    """Bring the sequences to the last axis, with room for a last block rounded up."""
    moved = np.zeros((*array.shape[1:], -(-len(array) // BLOCK) * BLOCK + BLOCK))
    moved[..., : len(array)] = np.moveaxis(array, 0, -1)
    return moved


@no_type_check
@njit(**OPTIONS)
def _advance(rows, columns, state, work, i, t, r, j0, lo, hi, parts, first):
    """Move the state by one step, and leave what the tangents need of it in ``work``.

    ``state`` is G and p; ``work`` the old G and p, d_x d_y, A′, 1/(2π sin θ), Θ, and the sign δ′ is summed by.
    """
    if i < 0 or t < 0 or r < 0 or j0 < 0 or lo < 0:  # never; it spares the inner loops the wrapping of negative indices
        return
    for j in range(lo, hi):
        work[0, j], work[1, j] = state[0, j], state[1, j]
        delta = 0.0
        for c in range(parts):
            difference = rows[i, t, c] - columns[r, c, j0 + j]
            delta += 0.5 * difference * difference
        dd = rows[i, t, parts] * columns[r, parts, j0 + j]
        delta += dd * state[0, j]
        epsilon = 2.0 - delta
        if first:
            epsilon = dd * (0.5 - state[0, j])
            for c in range(parts):
                x, y = rows[i, t, c], columns[r, c, j0 + j]
                epsilon += 0.5 * (x * x + y * y) + (x * y if c + 1 < parts else 0.0)
        loss, slope, sine = _relu(delta, epsilon)
        theta = 0.5 * (epsilon - delta) + dd * state[1, j]
        state[0, j], state[1, j] = loss, slope * theta
        work[2, j], work[3, j], work[5, j] = dd, slope, theta
        work[4, j] = _BY_TURN / (sine if sine > NEAR else 1.0) if sine > NEAR else 0.0
        work[6, j] = -1.0 if first and epsilon < delta else 1.0


@no_type_check
@njit(**OPTIONS)
def _move(rows, tangents, columns, moving, state, work, q, i, t, r, j0, lo, hi, parts, first):
    """Move the tangent of parameter q by the same step; near C = −1, at a first step, δ′ is −ε′, summed for itself."""
    if q < 0 or i < 0 or t < 0 or r < 0 or j0 < 0 or lo < 0:
        return
    g, p = 2 + 2 * q, 3 + 2 * q
    for j in range(lo, hi):
        moved = 0.0
        for c in range(parts):
            x, y = rows[i, t, c], columns[r, c, j0 + j]
            moved += (x - y) * (tangents[q, i, t, c] - moving[q, r, c, j0 + j])
        d, e = rows[i, t, parts], columns[r, parts, j0 + j]
        dd = d * moving[q, r, parts, j0 + j] + e * tangents[q, i, t, parts]
        moved += dd * work[0, j] + work[2, j] * state[g, j]
        if first and work[6, j] < 0.0:
            moved = -dd * (0.5 - work[0, j])
            for c in range(parts):
                x, y = rows[i, t, c], columns[r, c, j0 + j]
                a, b = tangents[q, i, t, c], moving[q, r, c, j0 + j]
                moved -= (x + y) * (a + b) if c + 1 < parts else x * a + y * b
        theta = dd * work[1, j] + work[2, j] * state[p, j] - moved
        state[g, j] = work[3, j] * moved
        state[p, j] = work[3, j] * theta - work[4, j] * moved * work[5, j]


@no_type_check
@njit(**OPTIONS)
def _pairs(rows, tangents, columns, moving, lengths, identities, ntk, values, slopes, start, stop):
    count, most, parameters, parts = len(lengths), rows.shape[1], tangents.shape[0], rows.shape[2] - 1
    state, work = np.zeros((2 + 2 * parameters, BLOCK)), np.zeros((7, BLOCK))
    for i in range(start, stop):
        for j0 in range(i, count, BLOCK):
            n, active = min(BLOCK, count - j0), 0
            for k in range(min(lengths[i], lengths[j0]), 0, -1):
                begun, t = active, most - k
                while active < n and lengths[j0 + active] >= k:
                    active += 1
                if begun > 0:
                    end = _rounded(begun)
                    _advance(rows, columns, state, work, i, t, t, j0, 0, end, parts, False)
                    for q in range(parameters):
                        _move(rows, tangents, columns, moving, state, work, q, i, t, t, j0, 0, end, parts, False)
                if active > begun:
                    for j in range(begun, active):
                        state[:, j] = 0.0
                        state[0, j] = 0.0 if identities[i] == identities[j0 + j] else 0.5
                    _advance(rows, columns, state, work, i, t, t, j0, begun, active, parts, True)
                    for q in range(parameters):
                        _move(rows, tangents, columns, moving, state, work, q, i, t, t, j0, begun, active, parts, True)
            for j in range(n):
                values[i, j0 + j] = 0.5 - state[0, j] + (state[1, j] if ntk else 0.0)
                for q in range(parameters):
                    slopes[q, i, j0 + j] = -state[2 + 2 * q, j] + (state[3 + 2 * q, j] if ntk else 0.0)

"""Layers of oscillators on the CPU: Numba, a tile of batch rows at a time through all layers and all of time.

Rows of a batch do not know each other, in any layer, so a tile needs no other tile: one parallel call forward and one
back, however many layers there are. A chunk of steps goes through all layers before the next one begins. Its drives are
one product from packed panels; on the way back its gradients are multiplied while they are in the cache, and neither
they nor those of the layers in between are ever written to memory.
"""

from typing import Any, NamedTuple, no_type_check

import numpy as np
from numba import njit

from sostenuto.ops.columns.cpu import OPTIONS, repeated_rows, room, tile_of
from sostenuto.ops.fork.cpu import fork
from sostenuto.ops.oscillator_adjoint.cpu import WALK_BYTES, walk_back
from sostenuto.ops.oscillator_advance.cpu import walk
from sostenuto.ops.panel_product.cpu import multiply, multiply_rows, whole_vectors
from sostenuto.ops.time_max.cpu import hand_out

CHUNK_ROWS = 128
"""Rows, of all steps and batch rows of a tile, that are multiplied at once."""
FLUSH_CHUNKS = 8
"""Chunks whose gradients of a matrix are summed in the working precision before they go into float64 sums."""
SPREAD = 16
"""Numbers between the rows of a right factor: rows a power of two apart would share few sets of the first cache."""


class Layers(NamedTuple):
    """Weights of all layers as kernels read them, and what scales a step.

    ``into`` has the packed Vᵀ of all layers one after the other, ``back`` the packed V; those of layer ℓ begin at
    ``into_at[ℓ]`` and ``back_at[ℓ]``. ``masks`` (layer, batch row · unit) is empty where nothing is dropped, ``spans``
    (time, batch row) where all are 1.
    """

    into: Any
    into_at: Any
    back: Any
    back_at: Any
    bias: Any
    weight: Any
    step: Any
    masks: Any
    spans: Any
    alpha: Any


@no_type_check
@njit(**OPTIONS)
def forward_tile(layers, u, u_step, u_row, channels, y, z, kept, risen, T, top, largest, holders, low, high):
    """Run batch rows ``low`` to ``high`` through all layers and ``T`` steps; (y, z) become the last states.

    ``kept`` (layer, time, column) takes the outputs of all layers but the top one, ``risen`` tanh of all;
    both have no layer where no way back is wanted. ``top`` takes the top layer's outputs, ``largest``
    (column) their largest values over time and ``holders`` how many steps have them; what has no room is not written.
    """
    L, H, R = y.shape[0], y.shape[2], high - low
    n, first, last = R * H, low * H, high * H
    a = 0 * low  # the first place; if it were known when compiling, room would be compiled for every place
    K = max(CHUNK_ROWS // R, 1)
    wide, size = whole_vectors(H, top), top.itemsize
    bottom, hidden = room(top, K * R, channels, a), room(top, K, n, a + 1)
    drive, unkept, forgotten = room(top, K * R, wide, a + 2), room(top, 1, n, a + 3), room(top, 1, n, a + 4)
    w, g, b = (
        repeated_rows(layers.weight, R, a + 5),
        repeated_rows(layers.step, R, a + 6),
        repeated_rows(layers.bias, R, a + 7),
    )
    y_now, z_now, peak = tile_of(y, low, high, a + 8), tile_of(z, low, high, a + 9), room(top, 2, n, a + 10)
    kinds = K if layers.spans.shape[0] > 0 else 1
    span, g_now, whole = room(top, kinds, n, a + 11), room(top, kinds, n, a + 12), room(top, 1, n, a + 13)[0]
    span[:], whole[:], peak[0], peak[1] = 1, 1, -np.inf, 0
    for start in range(0, T, K):
        k = min(K, T - start)
        gather_chunk(u, u_step, u_row, start, k, low, R, bottom)
        _gather_spans(layers.spans, start, low, H, span)
        for layer in range(L):
            drive_chunk(layers, layer, bottom, hidden, drive, k * R, H)
            out = top if layer == L - 1 else kept[layer] if layer < len(kept) else top[:0]
            rise = risen[layer] if layer < len(risen) else top[:0]
            factor = whole if len(layers.masks) == 0 or layer == L - 1 else layers.masks[layer, first:last]
            _scale_steps(g[layer], span, g_now)
            rise_at, rise_pace = _row(rise, start, first, forgotten)
            out_at, out_pace = _row(out, start, first, unkept)
            walk(
                layers.alpha, size, n, k, layer < L - 1,
                (drive.ctypes.data, g_now.ctypes.data, rise_at, out_at, hidden.ctypes.data),
                (n * size, n * size if kinds > 1 else 0, rise_pace, out_pace, n * size),
                (w[layer].ctypes.data, b[layer].ctypes.data, factor.ctypes.data),
                (y_now[layer].ctypes.data, z_now[layer].ctypes.data, peak[0].ctypes.data, peak[1].ctypes.data),
            )  # fmt: skip
    for layer in range(L):
        y[layer, low:high] = y_now[layer].reshape(R, H)
        z[layer, low:high] = z_now[layer].reshape(R, H)
    if len(largest) > 0:
        _end_peaks(y_now[L - 1], peak, largest[first:last], holders[first:last])


@no_type_check
@njit(**OPTIONS)
def _row(rows, start, first, spare):
    """Say where a step's row of a tile lies, and how far the next; where there is none, all share a spare one."""
    size = rows.itemsize
    if len(rows) == 0:
        return spare.ctypes.data, 0
    return rows.ctypes.data + (start * rows.shape[1] + first) * size, rows.shape[1] * size


@no_type_check
@njit(**OPTIONS)
def _end_peaks(last, peak, largest, holders):
    """Write the largest outputs: what is not a number was not larger than any, but every output after it is none."""
    for i in range(len(last)):
        broken = last[i] != last[i]
        largest[i] = last[i] if broken else peak[0, i]
        holders[i] = 1 if broken else peak[1, i]


@no_type_check
@njit(**OPTIONS)
def forward_tiles(entry, threads, count, tile, layers, u, u_step, u_row, channels, y, z, kept, risen, T, top,
                  largest, holders):  # fmt: skip
    """Run all tiles of `forward_tile`."""
    fork(forward_tile, entry, threads, count, tile,
         (layers, u, u_step, u_row, channels, y, z, kept, risen, T, top, largest, holders))  # fmt: skip


@no_type_check
@njit(**OPTIONS)
def backward_tile(
    layers, u, u_step, u_row, channels, y, z, kept, risen, top, largest, d_top, moves, y_bar, z_bar, d_u,
    d_matrices, d_tiles, tile, low, high,
):  # fmt: skip
    """Run the adjoint of batch rows ``low`` to ``high``; z has the last states, y the first.

    ``d_top`` has the gradient of each step's outputs, or one row that all share; where ``largest`` has the
    largest outputs, it is for the steps that have them. ``y_bar`` and ``z_bar`` are the gradients of the last states
    and become those of the first. ``d_matrices`` (tile, row, column: the transposed matrices of all layers one after
    the other) and ``d_tiles`` (tile, layer, w g b, unit) take the sums of each tile of ``tile`` rows.
    """
    d_matrix, d_vectors = d_matrices[low // tile].reshape(-1), d_tiles[low // tile]
    L, H, T, R = y.shape[0], y.shape[2], top.shape[0], high - low
    n, first, last = R * H, low * H, high * H
    a = 0 * low  # the first place; if it were known when compiling, room would be compiled for every place
    K = max(CHUNK_ROWS // R, 1)
    wide, narrow, size = whole_vectors(H, top), whole_vectors(channels, top), top.itemsize
    bottom, hidden, x_bar = room(top, K * R, channels, a), room(top, K, n, a + 1), room(top, K, n, a + 3)
    spread, d_below = room(top, K * R, wide + SPREAD, a), room(top, K * R, max(wide, narrow), a + 4).reshape(-1)
    totals = room(top, channels + (L - 1) * H, wide, a + 2).reshape(-1)
    w_sums, g_sums, b_sums = room(top, L, n, a + 6), room(top, L, n, a + 7), room(top, L, n, a + 8)
    spread[:], totals[:], w_sums[:], g_sums[:], b_sums[:] = 0, 0, 0, 0, 0
    w, g = repeated_rows(layers.weight, R, a + 9), repeated_rows(layers.step, R, a + 10)
    z_now, y_bars, z_bars = (
        tile_of(z, low, high, a + 12),
        tile_of(y_bar, low, high, a + 13),
        tile_of(z_bar, low, high, a + 14),
    )
    kinds = K if layers.spans.shape[0] > 0 else 1
    span, g_now, whole = room(top, kinds, n, a + 15), room(top, kinds, n, a + 11), room(top, 1, n, a + 16)[0]
    span[:], whole[:] = 1, 1
    chunks = -(-T // K)
    for chunk in range(chunks):
        start = (chunks - 1 - chunk) * K
        k = min(K, T - start)
        flushes = chunk % FLUSH_CHUNKS == FLUSH_CHUNKS - 1 or chunk == chunks - 1
        gather_chunk(u, u_step, u_row, start, k, low, R, bottom)
        _gather_spans(layers.spans, start, low, H, span)
        for layer in range(L - 1, -1, -1):
            out = top if layer == L - 1 else kept[layer]
            before = y[layer].reshape(-1)[first:last] if start == 0 else out[start - 1, first:last]
            if layer > 0:
                hand_up(kept[layer - 1], (start, first), k, n, layers.masks, layer - 1, first, hidden)
            arriving, pace, factor = d_below.ctypes.data, n * size, whole
            if layer == L - 1 and len(largest) > 0:
                hand_out(top, (start, first), k, largest[first:last], d_top[0, first:last], d_below)
            elif layer == L - 1:
                pace = moves * d_top.shape[1] * size
                arriving = d_top.ctypes.data + start * pace + first * size
            elif layers.masks.shape[0] > 0:
                factor = layers.masks[layer, first:last]
            _scale_steps(g[layer], span, g_now)
            _adjoint(layers.alpha, out, risen[layer], start, first, k, before, arriving, pace, factor, w[layer], g_now,
                     span, z_now[layer], y_bars[layer], z_bars[layer], w_sums[layer], g_sums[layer], b_sums[layer],
                     x_bar, spread)  # fmt: skip
            _sum_products(layer, bottom, hidden, spread, totals, d_matrix, k * R, wide, H, flushes)
            if flushes:
                for part, sums in enumerate((w_sums[layer], g_sums[layer], b_sums[layer])):
                    _sum_vectors(sums, d_vectors[layer, part])
            if layer > 0:
                _hand_down(layers, layer, spread, d_below, k * R, wide)
                _compact(d_below, wide, k * R, H)
            elif d_u.shape[0] > 0:
                _hand_down(layers, layer, spread, d_below, k * R, narrow)
                _scatter(d_below, narrow, d_u, start, k, low, R, channels)
    for layer in range(L):
        y_bar[layer, low:high] = y_bars[layer].reshape(R, H)
        z_bar[layer, low:high] = z_bars[layer].reshape(R, H)


@no_type_check
@njit(**OPTIONS)
def backward_tiles(
    entry, threads, count, block, layers, u, u_step, u_row, channels, y, z, kept, risen, top, largest, d_top,
    moves, y_bar, z_bar, d_u, d_matrices, d_tiles, tile,
):  # fmt: skip
    """Run all tiles of `backward_tile`."""
    fork(backward_tile, entry, threads, count, block, (layers, u, u_step, u_row, channels, y, z, kept, risen, top,
         largest, d_top, moves, y_bar, z_bar, d_u, d_matrices, d_tiles, tile))  # fmt: skip


@no_type_check
@njit(**OPTIONS)
def _gather_spans(spans, start, low, H, span):
    """Spread the time spans of a chunk over the units; where there are none, all are 1 already."""
    for t in range(min(len(span), len(spans) - start)):
        for i in range(span.shape[1]):
            span[t, i] = spans[start + t, low + i // H]


@no_type_check
@njit(**OPTIONS)
def _scale_steps(step, span, scaled):
    """Multiply a layer's steps by the time spans of a chunk."""
    for t in range(len(span)):
        row, target = span[t], scaled[t]
        for i in range(len(step)):
            target[i] = step[i] * row[i]


@no_type_check
@njit(**OPTIONS)
def _adjoint(alpha, out, rise, start, first, k, before, arriving, pace, factor, weight, step, span, z, y_bar, z_bar,
             w_sum, g_sum, b_sum, x_bar, spread):  # fmt: skip
    """Step a tile back through a chunk; ``arriving`` is where the first step's gradient lies.

    x̄ goes into rows of ``spread``: at once, where a row is whole walks, or else by way of ``x_bar``.
    """
    size, n, R = x_bar.itemsize, x_bar.shape[1], len(spread) // len(x_bar)
    apart, columns, parts = spread.shape[1] * size, n // R, R
    target, target_pace, skip = spread.ctypes.data, R * apart, apart
    by_rows = columns * size % WALK_BYTES == 0
    if not by_rows:
        columns, parts, target, target_pace, skip = n, 1, x_bar.ctypes.data, n * size, n * size
    out_pace, rise_pace, scaled = out.shape[1] * size, rise.shape[1] * size, (n * size if len(span) > 1 else 0)
    out_at = out.ctypes.data + start * out_pace + first * size
    rise_at = rise.ctypes.data + start * rise_pace + first * size
    for part in range(parts):
        at = part * columns * size
        walk_back(
            alpha, size, columns, k, before.ctypes.data + at,
            (out_at + at, rise_at + at, arriving + at, target + part * skip, step.ctypes.data + at,
             span.ctypes.data + at),
            (out_pace, rise_pace, pace, target_pace, scaled, scaled),
            (weight.ctypes.data + at, factor.ctypes.data + at),
            (z.ctypes.data + at, y_bar.ctypes.data + at, z_bar.ctypes.data + at, w_sum.ctypes.data + at,
             g_sum.ctypes.data + at, b_sum.ctypes.data + at),
        )  # fmt: skip
    if not by_rows:
        _spread(x_bar.reshape(-1), k * R, n // R, spread)


@no_type_check
@njit(**OPTIONS)
def gather_chunk(u, u_step, u_row, start, k, low, R, bottom):
    """Copy the input of a chunk, row by row."""
    channels = bottom.shape[1]
    for t in range(k):
        for r in range(R):
            at = (start + t) * u_step + (low + r) * u_row
            source, target = u[at : at + channels], bottom[t * R + r]
            for c in range(channels):
                target[c] = source[c]


@no_type_check
@njit(**OPTIONS)
def _scatter(d_below, wide, d_u, start, k, low, R, channels):
    """Write the gradient of a chunk's input."""
    for t in range(k):
        row = d_u[start + t]
        for r in range(R):
            at = (t * R + r) * wide
            row[(low + r) * channels : (low + r + 1) * channels] = d_below[at : at + channels]


@no_type_check
@njit(**OPTIONS)
def hand_up(out, out_at, k, n, masks, layer, first, hidden):
    """Copy a layer's outputs for the layer above, without what is dropped."""
    for t in range(k):
        row, target = out[out_at[0] + t, out_at[1] : out_at[1] + n], hidden[t]
        if masks.shape[0] > 0:
            mask = masks[layer, first : first + n]
            for i in range(n):
                target[i] = row[i] * mask[i]
        else:
            target[:] = row


@no_type_check
@njit(**OPTIONS)
def _compact(flat, wide, rows, columns):
    """Close the gaps that whole vectors leave behind each row."""
    if wide != columns:
        for row in range(1, rows):
            for c in range(columns):
                flat[row * columns + c] = flat[row * wide + c]


@no_type_check
@njit(**OPTIONS)
def drive_chunk(layers, layer, bottom, hidden, drive, rows, H):
    """Multiply what lies below a layer; the bias is still to be added."""
    size = drive.itemsize
    below, depth = (bottom.ctypes.data, bottom.shape[1]) if layer == 0 else (hidden.ctypes.data, H)
    packed = layers.into.ctypes.data + layers.into_at[layer] * size
    wide = drive.shape[1] * size
    multiply(drive.dtype.type(0.0), below, depth * size, size, rows, packed, depth, drive.ctypes.data, wide, depth,
             False)  # fmt: skip
    _compact(drive.reshape(-1), drive.shape[1], rows, H)


@no_type_check
@njit(**OPTIONS)
def _sum_products(layer, bottom, hidden, spread, totals, d_matrix, rows, wide, H, flushes):
    """Add (what lies below)ᵀ · x̄ to a layer's sums."""
    size, channels = spread.itemsize, bottom.shape[1]
    if layer == 0:
        below, depth, at = bottom.ctypes.data, channels, 0
    else:
        below, depth, at = hidden.ctypes.data, H, (channels + (layer - 1) * H) * wide
    multiply_rows(
        spread.dtype.type(0.0), below, size, depth * size, depth, spread.ctypes.data, spread.shape[1] * size,
        totals.ctypes.data + at * size, wide * size, rows, True,
    )  # fmt: skip
    if flushes:
        part, whole = totals[at : at + depth * wide], d_matrix[at : at + depth * wide]
        for i in range(depth * wide):
            whole[i] += part[i]
            part[i] = 0


@no_type_check
@njit(**OPTIONS)
def _sum_vectors(sums, d_vector):
    H = len(d_vector)
    for r in range(len(sums) // H):
        for c in range(H):
            d_vector[c] += sums[r * H + c]
    sums[:] = 0


@no_type_check
@njit(**OPTIONS)
def _hand_down(layers, layer, spread, d_below, rows, wide):
    """Multiply x̄ by V, for the gradient of what lies below; rows of the result are whole vectors."""
    size, H = spread.itemsize, layers.weight.shape[1]
    packed = layers.back.ctypes.data + layers.back_at[layer] * size
    multiply(spread.dtype.type(0.0), spread.ctypes.data, spread.shape[1] * size, size, rows, packed, H,
             d_below.ctypes.data, wide * size, H, False)  # fmt: skip


@no_type_check
@njit(**OPTIONS)
def _spread(flat, rows, H, spread):
    """Lay rows out apart from each other."""
    for row in range(rows):
        source, target = flat[row * H : (row + 1) * H], spread[row]
        for c in range(H):
            target[c] = source[c]

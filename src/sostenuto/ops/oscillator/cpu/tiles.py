"""Layers of oscillators on the CPU: Numba, a tile of batch rows at a time through all layers and all of time.

Rows of a batch do not know each other, in any layer, so a tile needs no other tile: one parallel call forward and one
back, however many layers there are. A chunk of steps goes through all layers before the next one begins. Its drives are
one product from packed panels; in the backward pass its gradients are multiplied while they are in the cache, and
neither they nor those of the layers in between are ever written to memory.
"""

from typing import Any, NamedTuple, no_type_check

import numpy as np
from numba import njit

from sostenuto.ops._cpu.columns import empty, load_tile, repeat_rows, store_tile
from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.panel_product import multiply, multiply_rows, whole_vectors
from sostenuto.ops._cpu.parallel_for import parallel_for
from sostenuto.ops._cpu.prefetch import add_prefetch, new_prefetch_list, worth_prefetching
from sostenuto.ops._cpu.tile_rows import (
    compact,
    copy_outputs,
    gather_chunk,
    gather_spans,
    pad_rows,
    scale_steps,
    scatter_chunk,
)
from sostenuto.ops._cpu.vector_loop import address
from sostenuto.ops.oscillator.cpu.maximum import spread_peak_gradient
from sostenuto.ops.oscillator.cpu.walk import PAIR_BYTES, walk_back, walk_inverse, walk_lower, walk_top

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
    (time, batch row) where all are 1. Where the steps were given as c, ``sizes`` has each layer's Δt and ``rates``
    σ̂(c); else they are empty.
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
    sizes: Any
    rates: Any


class ForwardRun(NamedTuple):
    """The first states, and what a forward pass of ``T`` steps writes; an array without entries is not written.

    ``kept`` (layer, time, column) takes the outputs of all layers but the top one, ``activated`` tanh of all; both have
    no layer where no backward pass is wanted. ``top`` takes the top layer's outputs, ``largest`` (column) their largest
    values over time and ``holders`` how many steps have them.
    """

    y: Any
    z: Any
    y_end: Any
    z_end: Any
    kept: Any
    activated: Any
    T: Any
    top: Any
    largest: Any
    holders: Any


class BackwardRun(NamedTuple):
    """What the adjoint reads: the first y, the last z, what the forward pass kept, and the gradient of its outputs.

    ``d_top`` has the gradient of each step's outputs, or one row that all share; where ``largest`` has the largest
    outputs, it is for the steps that have them.
    """

    y: Any
    z: Any
    kept: Any
    activated: Any
    top: Any
    largest: Any
    d_top: Any
    has_time_stride: Any


class Gradients(NamedTuple):
    """What the adjoint writes.

    ``y`` and ``z`` are the gradients of the last states and become those of the first; where those are not needed
    they have no layers: gradients begin as 0. ``matrices`` (tile, row, column: the transposed matrices of all layers,
    one after the other) and ``vectors`` (tile, layer, w g b, unit) take the sums of each tile of ``tile`` rows; where
    it ``begins``, they have no values yet.
    """

    y: Any
    z: Any
    u: Any
    matrices: Any
    vectors: Any
    tile: Any
    begins: Any


class LayerRows(NamedTuple):
    """What the adjoint of a layer reads: outputs, tanh (both by steps), and the tile's y before the first of all."""

    out: Any
    activated: Any
    before: Any


class Arriving(NamedTuple):
    """Where the gradient of a chunk's first outputs lies, bytes to the next step's, and what each is multiplied by."""

    at: Any
    stride: Any
    factor: Any


class Steps(NamedTuple):
    """w of a tile's columns, and g and the time span of each step, or of all."""

    weight: Any
    g: Any
    span: Any


class Carried(NamedTuple):
    """z and the gradients of y and z, and the sums of the gradients of w, g and b, of a tile's columns."""

    z: Any
    y_bar: Any
    z_bar: Any
    w_sum: Any
    g_sum: Any
    b_sum: Any


@no_type_check
@njit(**OPTIONS)
def forward_tile(layers, u, run, low, high):
    """Run batch rows ``low`` to ``high`` through all layers and steps of a `ForwardRun`."""
    y, z, y_end, z_end, kept, activated, T, top, largest, holders = run
    channels = u.channels
    L, H, R = y.shape[0], y.shape[2], high - low
    n, first, last = R * H, low * H, high * H
    a = 0 * low  # if it were known when compiling, `empty` would be compiled for every place and number of rows
    K = max(CHUNK_ROWS // R, 1)
    wide, size = whole_vectors(H, top), top.itemsize
    bottom, hidden = empty(top, K * R, channels, a), empty(top, K, n, a + 1)
    drive, unkept, forgotten = empty(top, K * R, wide, a + 2), empty(top, a + 1, n, a + 3), empty(top, a + 1, n, a + 4)
    w, g, b = empty(top, L, n, a + 5), empty(top, L, n, a + 6), empty(top, L, n, a + 7)
    y_now, z_now, peak = empty(top, L, n, a + 8), empty(top, L, n, a + 9), empty(top, a + 2, n, a + 10)
    for rows, vectors in ((w, layers.weight), (g, layers.step), (b, layers.bias)):
        repeat_rows(rows, vectors, R)
    load_tile(y_now, y, low, high)
    load_tile(z_now, z, low, high)
    kinds = K if layers.spans.shape[0] > 0 else a + 1
    span, g_now, whole = empty(top, kinds, n, a + 11), empty(top, kinds, n, a + 12), empty(top, a + 1, n, a + 13)[0]
    span[:], whole[:], peak[0], peak[1] = 1, 1, -np.inf, 0
    ahead = new_prefetch_list(a + 3)
    for start in range(0, T, K):
        k = min(K, T - start)
        gather_chunk(u.values, u.step, u.row, start, k, low, R, bottom)
        gather_spans(layers.spans, start, low, H, span)
        for layer in range(L):
            out = top if layer == L - 1 else kept[layer] if layer < len(kept) else top[:0]
            values = activated[layer] if layer < len(activated) else top[:0]
            activated_at, activated_stride = _row(values, start, first, forgotten)
            out_at, out_stride = _row(out, start, first, unkept)
            prefetches = worth_prefetching(ahead, T * n * size, H if layer > 0 else channels)
            _prefetch_inputs(prefetches, u, start + K, min(K, T - start - K), low, R, layer)
            add_prefetch(prefetches, 1, activated_at, activated_stride, n * size, k if activated_stride > 0 else 0)
            add_prefetch(prefetches, 2, out_at, out_stride, n * size, k if out_stride > 0 else 0)
            drive_chunk(layers, layer, bottom, hidden, drive, k * R, H, prefetches)
            factor = whole if len(layers.masks) == 0 or layer == L - 1 else layers.masks[layer, first:last]
            scale_steps(g[layer], span, g_now)
            rows = address(drive), address(g_now), activated_at, out_at
            strides = n * size, n * size if kinds > 1 else 0, activated_stride, out_stride
            shared, states = (address(w[layer]), address(b[layer])), (address(y_now[layer]), address(z_now[layer]))
            if layer < L - 1:
                walk_lower(layers.alpha, size, n, k, (*rows, address(hidden)), (*strides, n * size),
                           (*shared, address(factor)), states)  # fmt: skip
            else:
                most = address(peak[0]), address(peak[1])
                walk_top(layers.alpha, size, n, k, rows, strides, shared, (*states, *most))
    store_tile(y_now, y_end, low, high)
    store_tile(z_now, z_end, low, high)
    if len(largest) > 0:
        _end_peaks(y_now[L - 1], peak, largest[first:last], holders[first:last])


@no_type_check
@procedure
def _prefetch_inputs(ahead, u, start, k, low, R, layer):
    """Put the input of another chunk on the list, where its rows lie side by side, for the lowest layer."""
    size, channels = u.values.itemsize, u.channels
    at = address(u.values) + (start * u.step + low * u.row) * size
    if layer > 0 or k <= 0:
        add_prefetch(ahead, 0, at, 0, 0, 0)
    elif u.row == channels:
        add_prefetch(ahead, 0, at, u.step * size, R * channels * size, k)
    else:
        add_prefetch(ahead, 0, at, u.row * size, k * channels * size, R if u.step == channels else 0)


@no_type_check
@procedure
def _prefetch_rows(ahead, region, rows, start, first, k, n):
    """Put a tile's rows of another chunk on the list."""
    stride = rows.shape[1] * rows.itemsize
    add_prefetch(ahead, region, address(rows) + start * stride + first * rows.itemsize, stride, n * rows.itemsize, k)


@no_type_check
@njit(inline="always", **OPTIONS)
def _row(rows, start, first, spare):
    """Say where a step's row of a tile lies, and how far the next; where there is none, all share a spare one."""
    size = rows.itemsize
    if len(rows) == 0:
        return address(spare), 0
    return address(rows) + (start * rows.shape[1] + first) * size, rows.shape[1] * size


@no_type_check
@procedure
def _end_peaks(last, peak, largest, holders):
    """Write the largest outputs: what is not a number was not larger than any, but every output after it is none."""
    for i in range(len(last)):
        broken = last[i] != last[i]
        largest[i] = last[i] if broken else peak[0, i]
        holders[i] = 1 if broken else peak[1, i]


@no_type_check
@njit(**OPTIONS)
def forward_tiles(entry, threads, count, tile, layers, u, run):
    """Run all tiles of `forward_tile`."""
    parallel_for(forward_tile, entry, threads, count, tile, (layers, u, run))


@no_type_check
@njit(**OPTIONS)
def backward_tile(layers, u, run, gradients, low, high):
    """Run the adjoint of batch rows ``low`` to ``high`` over a `BackwardRun`."""
    y, z, kept, activated, top, largest, d_top, has_time_stride = run
    y_bar, z_bar, d_u, d_matrices, d_tiles, tile, begins = gradients
    d_matrix, d_vectors, channels = d_matrices[low // tile].reshape(-1), d_tiles[low // tile], u.channels
    L, H, T, R = y.shape[0], y.shape[2], top.shape[0], high - low
    n, first, last = R * H, low * H, high * H
    a = 0 * low  # if it were known when compiling, `empty` would be compiled for every place and number of rows
    K = max(CHUNK_ROWS // R, 1)
    wide, narrow, size = whole_vectors(H, top), whole_vectors(channels, top), top.itemsize
    bottom, hidden, x_bar = empty(top, K * R, channels, a), empty(top, K, n, a + 1), empty(top, K, n, a + 3)
    spread, d_below = empty(top, K * R, wide + SPREAD, a), empty(top, K * R, max(wide, narrow), a + 4).reshape(-1)
    totals = empty(top, channels + (L - 1) * H, wide, a + 2).reshape(-1)
    w_sums, g_sums, b_sums = empty(top, L, n, a + 6), empty(top, L, n, a + 7), empty(top, L, n, a + 8)
    spread[:], totals[:], w_sums[:], g_sums[:], b_sums[:] = 0, 0, 0, 0, 0
    w, g, z_now = empty(top, L, n, a + 9), empty(top, L, n, a + 10), empty(top, L, n, a + 12)
    y_cotangents, z_cotangents = empty(top, L, n, a + 13), empty(top, L, n, a + 14)
    repeat_rows(w, layers.weight, R)
    repeat_rows(g, layers.step, R)
    for tile_states, states in ((z_now, z), (y_cotangents, y_bar), (z_cotangents, z_bar)):
        load_tile(tile_states, states, low, high)
    kinds = K if layers.spans.shape[0] > 0 else a + 1
    span, g_now, whole = empty(top, kinds, n, a + 15), empty(top, kinds, n, a + 11), empty(top, a + 1, n, a + 16)[0]
    span[:], whole[:] = 1, 1
    ahead = new_prefetch_list(a + 4)
    chunks = -(-T // K)
    for chunk in range(chunks):
        start = (chunks - 1 - chunk) * K
        k = min(K, T - start)
        flushes = chunk % FLUSH_CHUNKS == FLUSH_CHUNKS - 1 or chunk == chunks - 1
        first_flush = begins and chunk < FLUSH_CHUNKS
        gather_chunk(u.values, u.step, u.row, start, k, low, R, bottom)
        gather_spans(layers.spans, start, low, H, span)
        for layer in range(L - 1, -1, -1):
            out = top if layer == L - 1 else kept[layer]
            before = y[layer].reshape(-1)[first:last] if start == 0 else out[start - 1, first:last]
            if layer > 0:
                copy_outputs(kept[layer - 1], (start, first), k, n, layers.masks, layer - 1, first, hidden)
            arriving, stride, factor = address(d_below), n * size, whole
            if layer == L - 1 and len(largest) > 0:
                spread_peak_gradient(top, (start, first), k, largest[first:last], d_top[0, first:last], d_below)
            elif layer == L - 1:
                stride = has_time_stride * d_top.shape[1] * size
                arriving = address(d_top) + start * stride + first * size
            elif layers.masks.shape[0] > 0:
                factor = layers.masks[layer, first:last]
            scale_steps(g[layer], span, g_now)
            carried = Carried(z_now[layer], y_cotangents[layer], z_cotangents[layer], w_sums[layer], g_sums[layer],
                              b_sums[layer])  # fmt: skip
            read, steps = LayerRows(out, activated[layer], before), Steps(w[layer], g_now, span)
            gradient = Arriving(arriving, stride, factor)
            _adjoint(layers.alpha, read, (start, first, k), gradient, steps, carried, x_bar, spread)
            prefetches = worth_prefetching(ahead, T * n * size, k * R)
            _prefetch_inputs(prefetches, u, start - K, min(K, start), low, R, layer)
            _prefetch_rows(prefetches, 1, out, start - K, first, min(K, start), n)
            _prefetch_rows(prefetches, 2, activated[layer], start - K, first, min(K, start), n)
            _prefetch_rows(
                prefetches, 3, d_top, start - K, first, min(K, start) * has_time_stride if layer == L - 1 else 0, n
            )
            _sum_products(
                layer, bottom, hidden, spread, totals, d_matrix, k * R, wide, H, flushes, first_flush, prefetches
            )
            if flushes:
                for part, sums in enumerate((w_sums[layer], g_sums[layer], b_sums[layer])):
                    _sum_vectors(sums, d_vectors[layer, part], first_flush)
            if layer > 0:
                _multiply_back(layers, layer, spread, d_below, k * R, wide, ahead[:0])
                compact(d_below, wide, k * R, H)
            elif d_u.shape[0] > 0:
                _multiply_back(layers, layer, spread, d_below, k * R, narrow, ahead[:0])
                scatter_chunk(d_below, narrow, d_u, start, k, low, R, channels)
    store_tile(y_cotangents, y_bar, low, high)
    store_tile(z_cotangents, z_bar, low, high)


@no_type_check
@njit(**OPTIONS)
def backward_tiles(entry, threads, count, tile, layers, u, run, gradients):
    """Run all tiles of `backward_tile`."""
    parallel_for(backward_tile, entry, threads, count, tile, (layers, u, run, gradients))


@no_type_check
@procedure
def _adjoint(alpha, read, chunk, arriving, steps, carried, x_bar, spread):
    """Step a tile back through a chunk: its first step, where its columns begin, and how many steps it has.

    x̄ goes into rows of ``spread``: at once, where a row is whole walks, or else by way of ``x_bar``.
    """
    (start, first, k), stride, span = chunk, arriving.stride, steps.span
    size, n, R = x_bar.itemsize, x_bar.shape[1], len(spread) // len(x_bar)
    apart, columns, parts = spread.shape[1] * size, n // R, R
    target, target_stride, skip = address(spread), R * apart, apart
    by_rows = columns * size % PAIR_BYTES == 0
    if not by_rows:
        columns, parts, target, target_stride, skip = n, 1, address(x_bar), n * size, n * size
    out_stride, activated_stride = read.out.shape[1] * size, read.activated.shape[1] * size
    out_at = address(read.out) + (start - 1) * out_stride + first * size
    activated_at = address(read.activated) + start * activated_stride + first * size
    scaled = n * size if len(span) > 1 else 0
    strides = out_stride, activated_stride, stride, scaled, scaled, target_stride
    alone = 1 if start == 0 else 0  # the state before the first step of all lies elsewhere: that step goes by itself
    for part in range(parts):
        at = part * columns * size
        shared = address(steps.weight) + at, address(arriving.factor) + at
        states = (address(carried.z) + at, address(carried.y_bar) + at, address(carried.z_bar) + at,
                  address(carried.w_sum) + at, address(carried.g_sum) + at, address(carried.b_sum) + at)  # fmt: skip
        for t in range(alone, -1, -1):
            y_at = out_at + t * out_stride if t == alone else address(read.before)
            rows = (y_at + at, activated_at + t * activated_stride + at, arriving.at + t * stride + at,
                    address(steps.g) + t * scaled + at, address(span) + t * scaled + at,
                    target + t * target_stride + part * skip)  # fmt: skip
            walk_back(alpha, size, columns, k - t if t == alone else 1, rows, strides, shared, states)
    if not by_rows:
        pad_rows(x_bar.reshape(-1), k * R, n // R, spread)


@no_type_check
@procedure
def drive_chunk(layers, layer, bottom, hidden, drive, rows, H, ahead):
    """Multiply what lies below a layer; the bias is still to be added. Prefetch what is ``ahead``."""
    size = drive.itemsize
    below, depth = (address(bottom), bottom.shape[1]) if layer == 0 else (address(hidden), H)
    packed = address(layers.into) + layers.into_at[layer] * size
    wide = drive.shape[1] * size
    multiply(drive.dtype.type(0.0), below, depth * size, size, rows, packed, depth, address(drive), wide, depth,
             False, ahead)  # fmt: skip
    compact(drive.reshape(-1), drive.shape[1], rows, H)


@no_type_check
@procedure
def _sum_products(layer, bottom, hidden, spread, totals, d_matrix, rows, wide, H, flushes, first, ahead):
    """Add (what lies below)ᵀ · x̄ to a layer's sums; the ``first`` time that they go into float64 they begin there."""
    size, channels = spread.itemsize, bottom.shape[1]
    if layer == 0:
        below, depth, at = address(bottom), channels, 0
    else:
        below, depth, at = address(hidden), H, (channels + (layer - 1) * H) * wide
    multiply_rows(
        spread.dtype.type(0.0), below, size, depth * size, depth, address(spread), spread.shape[1] * size,
        address(totals) + at * size, wide * size, rows, True, ahead,
    )  # fmt: skip
    if flushes:
        part, whole = totals[at : at + depth * wide], d_matrix[at : at + depth * wide]
        if first:
            whole[:] = 0
        for i in range(depth * wide):
            whole[i] += part[i]
            part[i] = 0


@no_type_check
@procedure
def _sum_vectors(sums, d_vector, first):
    H = len(d_vector)
    if first:
        d_vector[:] = 0
    for r in range(len(sums) // H):
        for c in range(H):
            d_vector[c] += sums[r * H + c]
    sums[:] = 0


@no_type_check
@procedure
def _multiply_back(layers, layer, spread, d_below, rows, wide, ahead):
    """Multiply x̄ by V, for the gradient of what lies below; rows of the result are whole vectors."""
    size, H = spread.itemsize, layers.weight.shape[1]
    packed = address(layers.back) + layers.back_at[layer] * size
    multiply(spread.dtype.type(0.0), address(spread), spread.shape[1] * size, size, rows, packed, H,
             address(d_below), wide * size, H, False, ahead)  # fmt: skip


@no_type_check
@njit(**OPTIONS)
def invert_tile(layers, u, y, z, y_peak, z_peak, kept, activated, top, low, high):
    """Invert batch rows ``low`` to ``high``; (y, z), the last states, become the first, with the largest on the way.

    What is found has the form of what the forward pass keeps, so that the adjoint reads it.
    """
    L, H, T, R = y.shape[0], y.shape[2], top.shape[0], high - low
    n, first = R * H, low * H
    a = 0 * low  # if it were known when compiling, `empty` would be compiled for every place and number of rows
    K = max(CHUNK_ROWS // R, 1)
    bottom, hidden = empty(top, K * R, u.channels, a), empty(top, K, n, a + 1)
    drive = empty(top, K * R, whole_vectors(H, top), a + 2)
    w, g, b = empty(top, L, n, a + 5), empty(top, L, n, a + 6), empty(top, L, n, a + 7)
    y_now, z_now, spare = empty(top, L, n, a + 8), empty(top, L, n, a + 9), empty(top, a + 1, n, a + 10)
    kinds, size = K if layers.spans.shape[0] > 0 else a + 1, top.itemsize
    span, g_now = empty(top, kinds, n, a + 13), empty(top, kinds, n, a + 14)
    span[:] = 1
    y_most, z_most = empty(top, L, n, a + 11), empty(top, L, n, a + 12)
    for rows, vectors in ((w, layers.weight), (g, layers.step), (b, layers.bias)):
        repeat_rows(rows, vectors, R)
    for tile, states in ((y_now, y), (z_now, z), (y_most, y_peak), (z_most, z_peak)):
        load_tile(tile, states, low, high)
    chunks = -(-T // K)
    for chunk in range(chunks):
        start = (chunks - 1 - chunk) * K
        k = min(K, T - start)
        at = (start * top.shape[1] + first) * size
        gather_chunk(u.values, u.step, u.row, start, k, low, R, bottom)
        gather_spans(layers.spans, start, low, H, span)
        for layer in range(L):
            drive_chunk(layers, layer, bottom, hidden, drive, k * R, H, None)
            out = top if layer == L - 1 else kept[layer]
            scale_steps(g[layer], span, g_now)
            walk_inverse(
                layers.alpha, size, n, k,
                (address(drive), address(g_now), address(activated[layer]) + at, address(out) + at, address(spare)),
                (n * size, n * size if kinds > 1 else 0, out.shape[1] * size, out.shape[1] * size, 0),
                (address(w[layer]), address(b[layer])),
                (address(y_now[layer]), address(z_now[layer]), address(y_most[layer]), address(z_most[layer])),
            )  # fmt: skip
            if layer < L - 1:
                copy_outputs(out, (start, first), k, n, layers.masks, layer, first, hidden)
    for tile, states in ((y_now, y), (z_now, z), (y_most, y_peak), (z_most, z_peak)):
        store_tile(tile, states, low, high)

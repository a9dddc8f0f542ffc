"""Layers of oscillators inverted from their last states on the CPU: Numba, tiles and chunks as in the forward pass.

What is found has the form of what the forward pass keeps, so that the adjoint of `oscillator_tiles` reads it.
"""

from typing import no_type_check

from numba import njit

from sostenuto.ops._cpu.columns import empty, load_tile, repeat_rows, store_tile
from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.panel_product import whole_vectors
from sostenuto.ops._cpu.tanh import tanh
from sostenuto.ops._cpu.tile_rows import copy_outputs, gather_chunk
from sostenuto.ops.oscillator.cpu.tiles import CHUNK_ROWS, drive_chunk

COLUMNS = 2048
"""Columns, units of all batch rows, that are scanned at once; measured best between 256 and 2048."""


@no_type_check
@njit(**OPTIONS)
def invert_tile(layers, u, y, z, y_peak, z_peak, kept, activated, top, low, high):
    """Run batch rows ``low`` to ``high`` backwards; (y, z), the last states, become the first, with their largest."""
    L, H, T, R = y.shape[0], y.shape[2], top.shape[0], high - low
    n, first = R * H, low * H
    a = 0 * low  # if it were known when compiling, `empty` would be compiled for every place and number of rows
    K = max(CHUNK_ROWS // R, 1)
    bottom, hidden = empty(top, K * R, u.channels, a), empty(top, K, n, a + 1)
    drive = empty(top, K * R, whole_vectors(H, top), a + 2)
    w, g, b = empty(top, L, n, a + 5), empty(top, L, n, a + 6), empty(top, L, n, a + 7)
    y_now, z_now, g_now = empty(top, L, n, a + 8), empty(top, L, n, a + 9), empty(top, a + 1, COLUMNS, a + 10)[0]
    y_most, z_most = empty(top, L, n, a + 11), empty(top, L, n, a + 12)
    for rows, vectors in ((w, layers.weight), (g, layers.step), (b, layers.bias)):
        repeat_rows(rows, vectors, R)
    for tile, states in ((y_now, y), (z_now, z), (y_most, y_peak), (z_most, z_peak)):
        load_tile(tile, states, low, high)
    chunks = -(-T // K)
    for chunk in range(chunks):
        start = (chunks - 1 - chunk) * K
        k = min(K, T - start)
        gather_chunk(u.values, u.step, u.row, start, k, low, R, bottom)
        for layer in range(L):
            drive_chunk(layers, layer, bottom, hidden, drive, k * R, H, None)
            out = top if layer == L - 1 else kept[layer]
            for lo in range(0, n, COLUMNS):
                hi = min(lo + COLUMNS, n)
                _invert(drive, w[layer], g[layer], b[layer], layers, start, low, k, n, y_now[layer], z_now[layer],
                        y_most[layer], z_most[layer], g_now, activated[layer], out, (start, first), lo, hi)  # fmt: skip
            if layer < L - 1:
                copy_outputs(out, (start, first), k, n, layers.masks, layer, first, hidden)
    for tile, states in ((y_now, y), (z_now, z), (y_most, y_peak), (z_most, z_peak)):
        store_tile(tile, states, low, high)


@no_type_check
@procedure
def _invert(
    drive, weight, step, bias, layers, start, low, k, columns, y, z, y_peak, z_peak, g_now, rise, out, out_at, lo, hi
):  # fmt: skip
    """Step some columns back through a chunk, following y and z."""
    n, H, alpha, x = hi - lo, layers.weight.shape[1], layers.alpha, drive.reshape(-1)
    w, b, y_now, z_now = weight[lo:hi], bias[lo:hi], y[lo:hi], z[lo:hi]
    y_most, z_most = y_peak[lo:hi], z_peak[lo:hi]
    g = step[lo:hi] if layers.spans.shape[0] == 0 else g_now
    for t in range(k - 1, -1, -1):
        if layers.spans.shape[0] > 0:
            for i in range(n):
                g[i] = step[lo + i] * layers.spans[start + t, low + (lo + i) // H]
        x_t = x[t * columns + lo : t * columns + hi]
        rise_t = rise[out_at[0] + t, out_at[1] + lo : out_at[1] + hi]
        out_t = out[out_at[0] + t, out_at[1] + lo : out_at[1] + hi]
        for i in range(n):
            y_i, z_i = y_now[i], z_now[i]
            out_t[i] = y_i
            y_i = y_i - g[i] * z_i
            value = tanh(w[i] * y_i + (x_t[i] + b[i]))
            z_i = z_i + g[i] * (value + alpha * y_i)
            rise_t[i] = value
            y_now[i] = y_i
            z_now[i] = z_i
            y_most[i] = max(y_most[i], abs(y_i))
            z_most[i] = max(z_most[i], abs(z_i))

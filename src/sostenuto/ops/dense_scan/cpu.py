"""The dense scan on the CPU: Numba, a tile of batch rows at a time through all of time, products from packed panels.

W and P are stacked, so that a step is one product forward and one backward. The weights' gradients are summed inside
the sweep, a chunk of steps at a time: what they need is still in the cache, and the states' gradients are never stored.
"""

from typing import Any, no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops.activation import ACTIVATIONS
from sostenuto.ops.activation.cpu import activate_tile, slope_into
from sostenuto.ops.buffers import new
from sostenuto.ops.panel_product.cpu import ROWS, multiply, pack, pack_row, padded
from sostenuto.ops.threads import run_blocks

TILE = 16
"""Batch rows that go through time together: the weights are read from the second cache once for all of them."""
CHUNK = 128
"""Rows, of all steps and batch rows, that are gathered before they are multiplied into the weights' gradients."""

_OPTIONS: Any = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"contract"}}


def forward(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    weight: Float[Tensor, "H S"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "..."],
    threshold: Float[Tensor, " H"] | None,
    activation: str,
    precision: str,
    keep: bool,
) -> tuple[Float[Tensor, "T B S"], Float[Tensor, "B S"], Float[Tensor, "..."]]:
    """Give every state, the last one and, where ``keep``, σ at every step. Every ``precision`` is exact here."""
    del precision
    (T, B, H), S, dtype = inputs.shape, start.shape[1], start.dtype
    states, last = new((T, B, S), dtype), new((B, S), dtype)
    risen = new((T, B, H) if keep else (0,), dtype)
    p, q = _coefficients(linear, gain, S, dtype)
    stacked = weight if p.size else torch.cat([weight, linear])
    read = (
        _rows(inputs, dtype), pack(stacked.to(dtype).T), p, q,
        _empty(dtype) if q.size else pack(gain.to(dtype).T), _threshold(threshold, H, dtype),
        ACTIVATIONS.index(activation), padded(stacked.shape[0], dtype), padded(S, dtype),
        _contiguous(start, dtype),
    )  # fmt: skip
    written = states.view(T, -1).numpy(), risen.view(T, -1).numpy() if keep else _empty(dtype, 2), last.numpy()

    def kernel(first: int, stop: int) -> None:
        _forward(*read, *written, first, stop)

    run_blocks(kernel, B, _share(B))
    return states, last, risen


def backward(
    start: Float[Tensor, "B S"],
    weight: Float[Tensor, "H S"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "..."],
    activation: str,
    precision: str,
    states: Float[Tensor, "T B S"],
    risen: Float[Tensor, "T B H"],
    d_states: Float[Tensor, "T1 B S"],
    d_last: Float[Tensor, "B S"],
    weights: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of inputs, start, weight, linear and gain; the last three only where ``weights``."""
    del precision
    (T, B, H), S, dtype = risen.shape, start.shape[1], start.dtype
    d_inputs, d_start = new((T, B, H), dtype), d_last.detach().clone().contiguous()
    p, q = _coefficients(linear, gain, S, dtype)
    stacked = weight if p.size else torch.cat([linear, weight])
    read = (
        _contiguous(start, dtype), states.view(T, -1).numpy(), risen.view(T, -1).numpy(), _rows(d_states, dtype),
        pack(stacked.to(dtype)), p, q, _empty(dtype) if q.size else pack(gain.to(dtype)),
        ACTIVATIONS.index(activation), padded(S, dtype), padded(H, dtype),
    )  # fmt: skip
    share = _share(B)
    slots = -(-B // share) if weights else 0
    sums = (
        np.zeros((slots, H + (0 if p.size else S), padded(S, dtype)), read[1].dtype),
        np.zeros((slots, 0 if q.size else S, padded(H, dtype)), read[1].dtype),
        np.zeros((slots, *p.shape, H)),
        np.zeros((slots, *q.shape, H)),
    )
    written = d_inputs.view(T, -1).numpy(), d_start.numpy()

    def kernel(first: int, stop: int) -> None:
        _backward(*read, *written, *sums, first // share, first, stop)

    run_blocks(kernel, B, share)
    if not weights:
        return d_inputs, d_start, *(start.new_empty(0) for _ in range(3))  # pyright: ignore[reportReturnType]
    return d_inputs, d_start, *_gathered(sums, H, S, dtype)


def _gathered(sums: Any, H: int, S: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Add up what each thread summed; coefficients are summed over units too."""
    matrices, gains, p, q = (torch.from_numpy(part).sum(0) for part in sums)
    d_weight = matrices[-H:, :S].contiguous()
    d_linear = p.sum(-1).to(dtype) if p.numel() else matrices[:-H, :S].contiguous()
    d_gain = q.sum(-1).to(dtype) if q.numel() else gains[:, :H].contiguous()
    return d_weight, d_linear, d_gain


@no_type_check
@njit(**_OPTIONS)
def _forward(z, packed, p, q, q_packed, threshold, code, columns, q_columns, initial, states, risen, last, first, stop):
    T, H, S = z.shape[0], threshold.shape[0], initial.shape[1]
    zero, size, keep = z.dtype.type(0.0), z.itemsize, risen.shape[0] > 0
    for low in range(first, stop, TILE):
        rows = min(TILE, stop - low)
        high = low + rows
        h, product = initial[low:high].copy(), np.empty((rows, columns), z.dtype)
        scratch, driven = np.empty(rows * H, z.dtype), np.empty((rows, q_columns), z.dtype)
        for t in range(T):
            multiply(
                zero, h.ctypes.data, S * size, size, rows, packed.ctypes.data, S, product.ctypes.data,
                columns * size, S, False,
            )  # fmt: skip
            u = risen[t, low * H : high * H] if keep else scratch
            activate_tile(code, product, z[t, low * H : high * H], threshold, u, rows)
            if q.size == 0:
                multiply(
                    zero, u.ctypes.data, H * size, size, rows, q_packed.ctypes.data, H, driven.ctypes.data,
                    q_columns * size, H, False,
                )  # fmt: skip
            _advance(h, product, driven, u, p, q, rows, H, S, states[t, low * S : high * S])
        last[low:high] = h


@no_type_check
@njit(**_OPTIONS)
def _advance(h, product, driven, u, p, q, rows, H, S, out):
    """Write the new state, P h + Q u, from the products or the coefficients that P and Q are."""
    for r in range(rows):
        new = out[r * S : (r + 1) * S]
        if q.size == 0:
            for i in range(S):
                new[i] = driven[r, i]
        for i in range(q.size):
            for c in range(H):
                new[i * H + c] = q[i] * u[r * H + c]
        if p.size == 0:
            for i in range(S):
                new[i] += product[r, H + i]
        for i in range(p.shape[0]):
            for j in range(p.shape[1]):
                for c in range(H):
                    new[i * H + c] += p[i, j] * h[r, j * H + c]
        for i in range(S):
            h[r, i] = new[i]


@no_type_check
@njit(**_OPTIONS)
def _backward(
    initial, states, risen, d_states, packed, p, q, q_packed, code, columns, q_columns,
    d_z, d_start, d_matrices, d_gains, d_p, d_q, slot, first, stop,
):  # fmt: skip
    T, S = states.shape[0], initial.shape[1]
    H = risen.shape[1] // initial.shape[0]
    W, dtype, size, zero = S + H, states.dtype, states.itemsize, states.dtype.type(0.0)
    skipped = S if p.size else 0
    for low in range(first, stop, TILE):
        rows = min(TILE, stop - low)
        high = low + rows
        bars, back = np.zeros((rows, W), dtype), np.empty((rows, columns), dtype)
        driven, u_bar = np.empty((rows, q_columns), dtype), np.empty(rows * H, dtype)
        depth = -(-CHUNK // rows) * rows
        chunk = np.zeros((depth, W), dtype)
        chunk_h, chunk_u = np.zeros(depth * columns, dtype), np.zeros(depth * q_columns, dtype)
        gathered = 0
        bars[:, :S] = d_start[low:high]
        for k in range(T):
            t = T - 1 - k
            u = risen[t, low * H : high * H]
            _arrive(bars, d_states[t if d_states.shape[0] > 1 else 0, low * S : high * S], rows, S)
            if q.size == 0:
                multiply(
                    zero, bars.ctypes.data, W * size, size, rows, q_packed.ctypes.data, S, driven.ctypes.data,
                    q_columns * size, S, False,
                )  # fmt: skip
            _through_gain(bars, driven, q, rows, H, u_bar)
            slope_into(code, u, u_bar)
            _put(bars, u_bar, d_z[t, low * H : high * H], rows, S, H)
            if d_matrices.shape[0] > 0:
                before = states[t - 1, low * S : high * S] if t > 0 else initial[low:high].reshape(-1)
                _gather(bars, before, u, chunk, chunk_h, chunk_u, gathered, depth, rows, H, S, q.size == 0)
                _sum_coefficients(bars, before, u, d_p[slot], d_q[slot], rows, H, S)
                gathered += rows
                if gathered == depth or t == 0:
                    _sum_matrices(zero, chunk, chunk_h, chunk_u, d_matrices[slot], d_gains[slot], gathered, skipped)
                    gathered = 0
            multiply(
                zero, bars.ctypes.data + skipped * size, W * size, size, rows, packed.ctypes.data, W - skipped,
                back.ctypes.data, columns * size, W - skipped, False,
            )  # fmt: skip
            _retreat(bars, back, p, rows, H, S)
        d_start[low:high] = bars[:, :S]


@no_type_check
@njit(**_OPTIONS)
def _arrive(bars, arriving, rows, S):
    """Add what arrives at the output of this step."""
    for r in range(rows):
        for i in range(S):
            bars[r, i] += arriving[r * S + i]


@no_type_check
@njit(**_OPTIONS)
def _put(bars, u_bar, d_z, rows, S, H):
    """Write z̄ out and beside h̄, so that both go back through one product."""
    for r in range(rows):
        for c in range(H):
            bars[r, S + c] = u_bar[r * H + c]
            d_z[r * H + c] = u_bar[r * H + c]


@no_type_check
@njit(**_OPTIONS)
def _gather(bars, before, u, chunk, chunk_h, chunk_u, gathered, depth, rows, H, S, full_gain):
    """Keep h̄, z̄, the state before and, for a full Q, σ until the chunk is multiplied."""
    for r in range(rows):
        for i in range(S + H):
            chunk[gathered + r, i] = bars[r, i]
        pack_row(before[r * S : (r + 1) * S], chunk_h, gathered + r, depth)
        if full_gain:
            pack_row(u[r * H : (r + 1) * H], chunk_u, gathered + r, depth)


@no_type_check
@njit(**_OPTIONS)
def _sum_matrices(zero, chunk, chunk_h, chunk_u, d_matrices, d_gains, count, skipped):
    """Add a chunk to the gradients of P and W (h̄ and z̄ by the states before) and of Q (h̄ by σ)."""
    (depth, width), size = chunk.shape, chunk.itemsize
    multiply(
        zero, chunk.ctypes.data + skipped * size, size, width * size, width - skipped, chunk_h.ctypes.data, depth,
        d_matrices.ctypes.data, d_matrices.shape[1] * size, count, True,
    )  # fmt: skip
    if d_gains.shape[0] > 0:
        multiply(
            zero, chunk.ctypes.data, size, width * size, d_gains.shape[0], chunk_u.ctypes.data, depth,
            d_gains.ctypes.data, d_gains.shape[1] * size, count, True,
        )  # fmt: skip


@no_type_check
@njit(**_OPTIONS)
def _through_gain(bars, driven, q, rows, H, u_bar):
    """Give Qᵀ h̄."""
    for r in range(rows):
        if q.size == 0:
            for c in range(H):
                u_bar[r * H + c] = driven[r, c]
        for i in range(q.size):
            for c in range(H):
                grown = q[i] * bars[r, i * H + c]
                u_bar[r * H + c] = grown if i == 0 else u_bar[r * H + c] + grown


@no_type_check
@njit(**_OPTIONS)
def _retreat(bars, back, p, rows, H, S):
    """Put the gradient of the state before in place of the one after: Pᵀ h̄ + Wᵀ z̄."""
    for r in range(rows):
        for j in range(p.shape[0]):
            for i in range(p.shape[0]):
                for c in range(H):
                    back[r, j * H + c] += p[i, j] * bars[r, i * H + c]
        for i in range(S):
            bars[r, i] = back[r, i]


@no_type_check
@njit(**_OPTIONS)
def _sum_coefficients(bars, before, u, d_p, d_q, rows, H, S):
    """Add to the gradients of the coefficients, unit by unit: h̄_i h_j for P and h̄_i u for Q."""
    for r in range(rows):
        for i in range(d_p.shape[0]):
            for j in range(d_p.shape[1]):
                for c in range(H):
                    d_p[i, j, c] += bars[r, i * H + c] * before[r * S + j * H + c]
        for i in range(d_q.shape[0]):
            for c in range(H):
                d_q[i, c] += bars[r, i * H + c] * u[r * H + c]


def _coefficients(linear: Tensor, gain: Tensor, S: int, dtype: torch.dtype) -> tuple[Any, Any]:
    """Give P and Q where they are coefficients, and empty arrays where they are full matrices."""
    p = np.empty((0, 0), _empty(dtype).dtype) if linear.shape[0] == S else _contiguous(linear, dtype)
    return p, _empty(dtype) if gain.ndim == 2 else _contiguous(gain, dtype)


def _empty(dtype: torch.dtype, axes: int = 1) -> Any:
    return torch.empty((0,) * axes, dtype=dtype).numpy()


def _contiguous(values: Tensor, dtype: torch.dtype) -> Any:
    return values.detach().to(dtype).contiguous().numpy()


def _rows(values: Tensor, dtype: torch.dtype) -> Any:
    return values.detach().to(dtype).reshape(values.shape[0], -1).contiguous().numpy()


def _threshold(threshold: Tensor | None, H: int, dtype: torch.dtype) -> Any:
    return torch.zeros(H, dtype=dtype).numpy() if threshold is None else _contiguous(threshold, dtype)


def _share(B: int) -> int:
    """Give each thread as many batch rows as the others, whole blocks of the inner kernel."""
    each = -(-B // max(torch.get_num_threads(), 1))
    return -(-each // ROWS) * ROWS

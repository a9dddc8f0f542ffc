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

from sostenuto.ops._cpu.activation import activate_tile, slope_into
from sostenuto.ops._cpu.columns import copy_row
from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.input_map import gather_inputs, input_map, project, project_back, sum_bias
from sostenuto.ops._cpu.panel_product import ROWS, multiply, multiply_rows, pack, padded
from sostenuto.ops._cpu.threads import run_blocks
from sostenuto.ops._cpu.workspace import new
from sostenuto.ops.activation import ACTIVATIONS

TILE = 16
"""Batch rows that go through time together: the weights are read from the second cache once for all of them."""
CHUNK = 128
"""Rows, of all steps and batch rows, that are gathered before they are multiplied into the weights' gradients."""
SPREAD = 16
"""Numbers between the rows of a chunk's right factors: rows a power of two apart share few sets of the first cache."""


def forward(
    inputs: Float[Tensor, "T B _"],
    start: Float[Tensor, "B S"],
    weight: Float[Tensor, "H S"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "..."],
    threshold: Float[Tensor, " H"] | None,
    activation: str,
    precision: str,
    keep: bool,
    matrix: Float[Tensor, "H d"] | None = None,
    bias: Float[Tensor, " H"] | None = None,
) -> tuple[Float[Tensor, "T B S"], Float[Tensor, "B S"], Float[Tensor, "..."]]:
    """Give every state, the last one and, where ``keep``, σ at every step. Every ``precision`` is exact here.

    With a ``matrix`` V the ``inputs`` are x, not yet V x + b.
    """
    del precision
    (T, B), (H, S), dtype = inputs.shape[:2], weight.shape, start.dtype
    mapped = input_map(None if matrix is None else inputs, matrix, bias, dtype)
    states, last = new((T, B, S), dtype), new((B, S), dtype)
    activated = new((T, B, H) if keep else (0,), dtype)
    p, q = _coefficients(linear, gain, S, dtype)
    stacked = weight if p.size else torch.cat([weight, linear])
    read = (
        mapped, _rows(inputs, dtype) if matrix is None else _empty(dtype, 2), pack(stacked.to(dtype).T), p, q,
        _empty(dtype) if q.size else pack(gain.to(dtype).T), _threshold(threshold, H, dtype),
        ACTIVATIONS.index(activation), padded(stacked.shape[0], dtype), padded(S, dtype), padded(H, dtype),
        _contiguous(start, dtype),
    )  # fmt: skip
    written = states.view(T, -1).numpy(), activated.view(T, -1).numpy() if keep else _empty(dtype, 2), last.numpy()

    def kernel(first: int, stop: int) -> None:
        _forward(*read, *written, first, stop)

    run_blocks(kernel, B, _share(B))
    return states, last, activated


def backward(
    start: Float[Tensor, "B S"],
    weight: Float[Tensor, "H S"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "..."],
    activation: str,
    precision: str,
    states: Float[Tensor, "T B S"],
    activated: Float[Tensor, "T B H"],
    d_states: Float[Tensor, "T1 B S"],
    d_last: Float[Tensor, "B S"],
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of inputs, start, weight, linear and gain; the last three only where ``wanted``."""
    del precision
    mapped = input_map(None, None, None, start.dtype)
    d_inputs, d_start, sums = _backward_by_chunks(
        mapped, start, weight, linear, gain, activation, states, activated, d_states, d_last, any(wanted), True
    )
    gradients = _sum_threads(sums, weight, start.dtype) if any(wanted) else (start,) * 3
    kept = (value if want else start.new_empty(0) for value, want in zip(gradients, wanted, strict=True))
    return d_inputs, d_start, *kept  # pyright: ignore[reportReturnType]


def backward_to_input(
    x: Float[Tensor, "T B d"],
    matrix: Float[Tensor, "H d"],
    start: Float[Tensor, "B S"],
    weight: Float[Tensor, "H S"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "..."],
    activation: str,
    states: Float[Tensor, "T B S"],
    activated: Float[Tensor, "T B H"],
    d_states: Float[Tensor, "T1 B S"],
    d_last: Float[Tensor, "B S"],
    wanted: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of x, V, b, start, weight, linear and gain, where the drive is V x + b.

    ``wanted`` says whether x's gradient is, and linear's and gain's where they are coefficients.
    """
    mapped = input_map(x, matrix, None, start.dtype, back=wanted[0])
    d_x, d_start, sums = _backward_by_chunks(
        mapped, start, weight, linear, gain, activation, states, activated, d_states, d_last, True, wanted[1]
    )
    d_matrix, d_bias = (torch.from_numpy(part.sum(0)) for part in sums[4:])
    d_matrix = d_matrix[:, : x.shape[2]].contiguous()
    return d_x if wanted[0] else None, d_matrix, d_bias, d_start, *_sum_threads(sums, weight, start.dtype)


def _backward_by_chunks(
    mapped: Any, start: Tensor, weight: Tensor, linear: Tensor, gain: Tensor, activation: str, states: Tensor,
    activated: Tensor, d_states: Tensor, d_last: Tensor, weights: bool, coefficients: bool,
) -> tuple[Tensor, Tensor, Any]:  # fmt: skip
    """Go back through time; give the gradients of the input (x or its drive) and the start, and each thread's sums."""
    (T, B, H), S, dtype = activated.shape, start.shape[1], start.dtype
    channels = mapped.channels
    written = not channels or mapped.back.size > 0
    d_inputs = new((T, B, channels or H) if written else (0, 1, 1), dtype)
    d_start = d_last.detach().clone().contiguous()
    p, q = _coefficients(linear, gain, S, dtype)
    stacked = weight if p.size else torch.cat([linear, weight])
    read = (
        mapped, _contiguous(start, dtype), states.view(T, -1).numpy(), activated.view(T, -1).numpy(),
        _rows(d_states, dtype), pack(stacked.to(dtype)), p, q, _empty(dtype) if q.size else pack(gain.to(dtype)),
        ACTIVATIONS.index(activation), padded(S, dtype), padded(H, dtype), padded(channels, dtype),
    )  # fmt: skip
    share = _share(B)
    slots = -(-B // share) if weights else 0
    kind = read[2].dtype
    sums = (
        np.zeros((slots, H + (0 if p.size else S), padded(S, dtype)), kind),
        np.zeros((slots, 0 if q.size else S, padded(H, dtype)), kind),
        np.zeros((slots, *(p.shape if coefficients else (0, 0)), H)),
        np.zeros((slots, *(q.shape if coefficients else (0,)), H)),
        np.zeros((slots, H if channels else 0, padded(channels, dtype)), kind),
        np.zeros((slots, H if channels else 0), kind),
    )

    def kernel(first: int, stop: int) -> None:
        _backward(*read, d_inputs.flatten(1).numpy(), d_start.numpy(), *sums, first // share, first, stop)

    run_blocks(kernel, B, share)
    return d_inputs, d_start, sums


def _sum_threads(sums: Any, weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Add up what each thread summed; coefficients are summed over units too.

    By numpy: torch's own threads would still wait for work, busily, when the next scan's begin.
    """
    (H, S), (matrices, gains, p, q) = weight.shape, sums[:4]
    # Each sum has memory of its own: an operator's results may not share any.
    parts = matrices[:, -H:, :S], matrices[:, :-H, :S], gains[:, :, :H], p, q
    d_weight, d_linear, d_gain, d_p, d_q = (torch.from_numpy(part.sum(0)) for part in parts)
    d_linear = d_linear if len(d_linear) else d_p.sum(-1).to(dtype)
    return d_weight, d_linear, d_gain if len(d_gain) else d_q.sum(-1).to(dtype)


@no_type_check
@njit(**OPTIONS)
def _forward(
    mapped, z, packed, p, q, q_packed, threshold, code, columns, q_columns, z_columns, initial,
    states, activated, last, first, stop,
):  # fmt: skip
    T, H, S = states.shape[0], threshold.shape[0], initial.shape[1]
    zero, size, keep = z.dtype.type(0.0), z.itemsize, activated.shape[0] > 0
    for low in range(first, stop, TILE):
        rows = min(TILE, stop - low)
        high = low + rows
        h, product = initial[low:high].copy(), np.empty((rows, columns), z.dtype)
        scratch, driven = np.empty(rows * H, z.dtype), np.empty((rows, q_columns), z.dtype)
        projected, drive = np.empty((rows, z_columns), z.dtype), np.empty(rows * H, z.dtype)
        for t in range(T):
            if mapped.channels > 0:
                project(mapped, t, low, rows, projected, drive)
            else:
                drive = z[t, low * H : high * H]
            multiply(
                zero, h.ctypes.data, S * size, size, rows, packed.ctypes.data, S, product.ctypes.data,
                columns * size, S, False, None,
            )  # fmt: skip
            u = activated[t, low * H : high * H] if keep else scratch
            activate_tile(code, product, drive, threshold, u, rows)
            if q.size == 0:
                multiply(
                    zero, u.ctypes.data, H * size, size, rows, q_packed.ctypes.data, H, driven.ctypes.data,
                    q_columns * size, H, False, None,
                )  # fmt: skip
            _advance(h, product, driven, u, p, q, rows, H, S, states[t, low * S : high * S])
        for r in range(rows):
            copy_row(last[low + r], h[r])


@no_type_check
@procedure
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
@njit(**OPTIONS)
def _backward(
    mapped, initial, states, activated, d_states, packed, p, q, q_packed, code, columns, q_columns, x_columns,
    d_inputs, d_start, d_matrices, d_gains, d_p, d_q, d_v, d_b, slot, first, stop,
):  # fmt: skip
    T, S = states.shape[0], initial.shape[1]
    H, d = activated.shape[1] // initial.shape[0], mapped.channels
    W, dtype, size, zero = S + H, states.dtype, states.itemsize, states.dtype.type(0.0)
    skipped = S if p.size else 0
    for low in range(first, stop, TILE):
        rows = min(TILE, stop - low)
        high = low + rows
        cotangents, back = np.zeros((rows, W), dtype), np.empty((rows, columns), dtype)
        driven, u_bar = np.empty((rows, q_columns), dtype), np.empty(rows * H, dtype)
        to_x, z_bar = np.empty((rows, x_columns), dtype), np.empty(rows * H, dtype)
        depth = -(-CHUNK // rows) * rows
        chunk, chunk_h = np.zeros((depth, W), dtype), np.zeros((depth, columns + SPREAD), dtype)
        chunk_u, chunk_x = np.zeros((depth, q_columns + SPREAD), dtype), np.zeros((depth, x_columns + SPREAD), dtype)
        gathered = 0
        for r in range(rows):
            copy_row(cotangents[r], d_start[low + r])
        for k in range(T):
            t = T - 1 - k
            u = activated[t, low * H : high * H]
            _add_arriving(cotangents, d_states[t if d_states.shape[0] > 1 else 0, low * S : high * S], rows, S)
            if q.size == 0:
                multiply(
                    zero, cotangents.ctypes.data, W * size, size, rows, q_packed.ctypes.data, S, driven.ctypes.data,
                    q_columns * size, S, False, None,
                )  # fmt: skip
            _through_gain(cotangents, driven, q, rows, H, u_bar)
            slope_into(code, u, u_bar)
            if d == 0:
                z_bar = d_inputs[t, low * H : high * H]
            _store_drive_gradient(cotangents, u_bar, z_bar, rows, S, H)
            if d > 0 and d_inputs.shape[0] > 0:
                project_back(mapped, z_bar, rows, to_x, d_inputs[t, low * d : high * d])
            if d_matrices.shape[0] > 0:
                before = states[t - 1, low * S : high * S] if t > 0 else initial[low:high].reshape(-1)
                _gather(cotangents, before, u, chunk, chunk_h, chunk_u, gathered, rows, H, S, skipped, q.size == 0)
                _sum_coefficients(cotangents, before, u, d_p[slot], d_q[slot], rows, H, S)
                if d > 0:
                    gather_inputs(mapped, t, low, rows, chunk_x, gathered)
                    sum_bias(z_bar, d_b[slot], rows)
                gathered += rows
                if gathered == depth or t == 0:
                    _sum_matrices(zero, chunk, skipped, W, chunk_h, d_matrices[slot], gathered)
                    _sum_matrices(zero, chunk, 0, d_gains.shape[1], chunk_u, d_gains[slot], gathered)
                    _sum_matrices(zero, chunk, S, S + d_v.shape[1], chunk_x, d_v[slot], gathered)
                    gathered = 0
            multiply(
                zero, cotangents.ctypes.data + skipped * size, W * size, size, rows, packed.ctypes.data, W - skipped,
                back.ctypes.data, columns * size, W - skipped, False, None,
            )  # fmt: skip
            _step_back_state(cotangents, back, p, rows, H, S)
        for r in range(rows):
            copy_row(d_start[low + r], cotangents[r, :S])


@no_type_check
@procedure
def _add_arriving(cotangents, arriving, rows, S):
    """Add what arrives at the output of this step."""
    for r in range(rows):
        for i in range(S):
            cotangents[r, i] += arriving[r * S + i]


@no_type_check
@procedure
def _store_drive_gradient(cotangents, u_bar, d_z, rows, S, H):
    """Write z̄ out and beside h̄, so that both go back through one product."""
    for r in range(rows):
        for c in range(H):
            cotangents[r, S + c] = u_bar[r * H + c]
            d_z[r * H + c] = u_bar[r * H + c]


@no_type_check
@procedure
def _gather(cotangents, before, u, chunk, chunk_h, chunk_u, gathered, rows, H, S, skipped, full_gain):
    """Keep h̄, z̄, the state before and, for a full Q, σ until the chunk is multiplied."""
    first = 0 if full_gain else skipped
    for r in range(rows):
        for i in range(first, S + H):
            chunk[gathered + r, i] = cotangents[r, i]
        for i in range(S):
            chunk_h[gathered + r, i] = before[r * S + i]
        if full_gain:
            for i in range(H):
                chunk_u[gathered + r, i] = u[r * H + i]


@no_type_check
@procedure
def _sum_matrices(zero, chunk, start, stop, right, total, count):
    """Add a chunk's columns from ``start``, h̄ or z̄, times what they meet: states before (P, W), σ (Q), inputs (V)."""
    size = chunk.itemsize
    multiply_rows(
        zero, chunk.ctypes.data + start * size, size, chunk.shape[1] * size, stop - start, right.ctypes.data,
        right.shape[1] * size, total.ctypes.data, total.shape[1] * size, count, True, None,
    )  # fmt: skip


@no_type_check
@procedure
def _through_gain(cotangents, driven, q, rows, H, u_bar):
    """Give Qᵀ h̄."""
    for r in range(rows):
        if q.size == 0:
            for c in range(H):
                u_bar[r * H + c] = driven[r, c]
        for i in range(q.size):
            for c in range(H):
                grown = q[i] * cotangents[r, i * H + c]
                u_bar[r * H + c] = grown if i == 0 else u_bar[r * H + c] + grown


@no_type_check
@procedure
def _step_back_state(cotangents, back, p, rows, H, S):
    """Put the gradient of the state before in place of the one after: Pᵀ h̄ + Wᵀ z̄."""
    for r in range(rows):
        for j in range(p.shape[0]):
            for i in range(p.shape[0]):
                for c in range(H):
                    back[r, j * H + c] += p[i, j] * cotangents[r, i * H + c]
        for i in range(S):
            cotangents[r, i] = back[r, i]


@no_type_check
@procedure
def _sum_coefficients(cotangents, before, u, d_p, d_q, rows, H, S):
    """Add to the gradients of the coefficients, unit by unit: h̄_i h_j for P and h̄_i u for Q."""
    for r in range(rows):
        for i in range(d_p.shape[0]):
            for j in range(d_p.shape[1]):
                for c in range(H):
                    d_p[i, j, c] += cotangents[r, i * H + c] * before[r * S + j * H + c]
        for i in range(d_q.shape[0]):
            for c in range(H):
                d_q[i, c] += cotangents[r, i * H + c] * u[r * H + c]


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

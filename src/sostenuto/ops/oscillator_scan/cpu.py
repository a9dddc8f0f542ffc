"""The oscillator scan on the CPU: Numba, one pass over memory forward and one backward.

All batch rows and units are one long row of columns, cut into blocks that fit the cache; a block runs through all of
time on one thread, its state in local arrays. Weights are repeated for every batch row, so the inner loop runs over
contiguous memory, whatever the shape.
"""

from typing import Any, no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops.tanh.cpu import tanh, tanh_with_slope
from sostenuto.ops.threads import run_blocks

BLOCK_BYTES = 8192
"""Bytes of one array's row in a block; measured best between 4 and 32 KiB."""
FLUSH = 64
"""Steps summed in the working precision before they go into float64 sums."""

_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"contract"}}


def forward(
    x: Float[Tensor, "T B H"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    z: Float[Tensor, "B H"],
    timespans: Float[Tensor, "T B"] | None,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"]]:
    """Give y at every step and z at the last."""
    T, B, H = x.shape
    dtype = y.dtype
    outputs = torch.empty((T, B, H), dtype=dtype)
    last = z.detach().clone().contiguous()
    columns = _columns(B, weight, step, dtype)
    arrays = (_rows(x, dtype), *columns, _flat(y, dtype), last.view(-1).numpy(), _spans(timespans, dtype))
    out, alpha = outputs.view(T, B * H).numpy(), outputs.new_tensor(stiffness).numpy()[()]

    def kernel(start: int, stop: int) -> None:
        _forward(*arrays, alpha, H, out, start, stop)

    run_blocks(kernel, B * H, _block(B * H, dtype))
    return outputs, last


def backward(
    x: Float[Tensor, "T B H"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    outputs: Float[Tensor, "T B H"],
    last: Float[Tensor, "B H"],
    timespans: Float[Tensor, "T B"] | None,
    d_outputs: Float[Tensor, "T B H"],
    d_last: Float[Tensor, "B H"],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of x, weight, step, y and z; z at each step is followed back from the last one."""
    T, B, H = x.shape
    dtype = y.dtype
    d_x = torch.empty((T, B, H), dtype=dtype)
    d_y, d_z = torch.zeros(B, H, dtype=dtype), d_last.detach().clone().contiguous()
    d_weight, d_step = np.zeros(B * H), np.zeros(B * H)
    columns = _columns(B, weight, step, dtype)
    read = (_rows(x, dtype), _rows(outputs, dtype), _rows(d_outputs, dtype), *columns)
    states = (_flat(y, dtype), _flat(last, dtype), _spans(timespans, dtype))
    written = (d_x.view(T, B * H).numpy(), d_y.view(-1).numpy(), d_z.view(-1).numpy(), d_weight, d_step)
    alpha = d_x.new_tensor(stiffness).numpy()[()]

    def kernel(start: int, stop: int) -> None:
        _backward(*read, *states, alpha, H, *written, start, stop)

    run_blocks(kernel, B * H, _block(B * H, dtype))
    w_bar, g_bar = (torch.from_numpy(total).view(B, H).sum(0).to(dtype) for total in (d_weight, d_step))
    return d_x, w_bar, g_bar, d_y, d_z


@no_type_check
@njit(**_OPTIONS)
def _forward(x, weight, step, y, z, spans, alpha, H, out, start, stop):
    T, n = x.shape[0], stop - start
    w, g0, g = weight[start:stop].copy(), step[start:stop].copy(), step[start:stop].copy()
    y_now, z_now = y[start:stop].copy(), z[start:stop].copy()
    for t in range(T):
        if spans is not None:
            for i in range(n):
                g[i] = g0[i] * spans[t, (start + i) // H]
        x_t, out_t = x[t, start:stop], out[t, start:stop]
        for i in range(n):
            y_i = y_now[i]
            z_i = z_now[i] - g[i] * (tanh(w[i] * y_i + x_t[i]) + alpha * y_i)
            y_i = y_i + g[i] * z_i
            z_now[i] = z_i
            y_now[i] = y_i
            out_t[i] = y_i
    z[start:stop] = z_now


@no_type_check
@njit(**_OPTIONS)
def _backward(
    x, outputs, d_outputs, weight, step, y, last, spans, alpha, H,
    d_x, d_y, d_z, d_weight, d_step, start, stop,
):  # fmt: skip
    T, n = x.shape[0], stop - start
    w, g0, g = weight[start:stop].copy(), step[start:stop].copy(), step[start:stop].copy()
    span = np.ones(n, x.dtype)
    z = last[start:stop].copy()
    y_bar, z_bar = d_y[start:stop].copy(), d_z[start:stop].copy()
    w_sum, g_sum = np.zeros(n, x.dtype), np.zeros(n, x.dtype)
    for k in range(T):
        t = T - 1 - k
        if spans is not None:
            for i in range(n):
                span[i] = spans[t, (start + i) // H]
                g[i] = g0[i] * span[i]
        before = outputs[t - 1, start:stop] if t > 0 else y[start:stop]
        x_t, out_bar, x_bar = x[t, start:stop], d_outputs[t, start:stop], d_x[t, start:stop]
        for i in range(n):
            y_i = before[i]
            value, slope = tanh_with_slope(w[i] * y_i + x_t[i])
            force = value + alpha * y_i
            y_b = y_bar[i] + out_bar[i]
            z_b = z_bar[i] + g[i] * y_b
            x_b = -g[i] * slope * z_b
            x_bar[i] = x_b
            w_sum[i] += x_b * y_i
            g_sum[i] += span[i] * (y_b * z[i] - z_b * force)
            z[i] += g[i] * force
            y_bar[i] = y_b + w[i] * x_b - g[i] * alpha * z_b
            z_bar[i] = z_b
        if k % FLUSH == FLUSH - 1 or t == 0:
            for i in range(n):
                d_weight[start + i] += w_sum[i]
                d_step[start + i] += g_sum[i]
                w_sum[i] = 0
                g_sum[i] = 0
    d_y[start:stop] = y_bar
    d_z[start:stop] = z_bar


def _columns(B: int, weight: Tensor, step: Tensor, dtype: torch.dtype) -> tuple[Any, Any]:
    return tuple(vector.detach().to(dtype).repeat(B).numpy() for vector in (weight, step))  # pyright: ignore[reportReturnType]


def _rows(values: Tensor, dtype: torch.dtype) -> Any:
    return values.detach().to(dtype).reshape(values.shape[0], -1).contiguous().numpy()


def _flat(values: Tensor, dtype: torch.dtype) -> Any:
    return values.detach().to(dtype).contiguous().view(-1).numpy()


def _spans(timespans: Tensor | None, dtype: torch.dtype) -> Any:
    return None if timespans is None else timespans.detach().to(dtype).contiguous().numpy()


def _block(count: int, dtype: torch.dtype) -> int:
    """Choose the columns of a block: a row of it fits the cache, and every thread has work."""
    most = BLOCK_BYTES // dtype.itemsize
    share = -(-count // max(torch.get_num_threads(), 1))
    return max(min(most, share), 64)

"""The oscillator scan on the CPU: Numba, one pass over memory forward and one backward.

All batch rows and units are one long row of columns, cut into blocks that fit the cache; a block runs through all of
time on one thread, its state in local arrays. Weights are repeated for every batch row, so the inner loop runs over
contiguous memory, whatever the shape.

The drive comes as an array, or as the raw input with the map V, b that makes it: then it lives in one row of a block
only, and the gradients of V and b are summed on the way back.
"""

from typing import Any, NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops.buffers import new
from sostenuto.ops.columns.cpu import FLUSH, OPTIONS, block_of, flat, rows
from sostenuto.ops.tanh.cpu import tanh, tanh_with_slope
from sostenuto.ops.threads import run_blocks

InputMap = tuple[Float[Tensor, "H F"], Float[Tensor, " H"] | None]


class Gradients(NamedTuple):
    """Gradients of the drive (None if not asked for), w, g, the first y and z, the bias and (if given) the matrix."""

    x: Float[Tensor, "T B H"] | None
    weight: Float[Tensor, " H"]
    step: Float[Tensor, " H"]
    y: Float[Tensor, "B H"]
    z: Float[Tensor, "B H"]
    bias: Float[Tensor, " H"]
    weight_ih: Float[Tensor, "H F"]


def forward(
    x: Float[Tensor, "T B _"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    z: Float[Tensor, "B H"],
    timespans: Float[Tensor, "T B"] | None,
    *,
    input_map: InputMap | None = None,
    out: Float[Tensor, "T B H"] | None = None,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"]]:
    """Give y at every step and z at the last; ``x`` is the drive or, with an ``input_map``, the raw input.

    The outputs are written into ``out``, where it is given.
    """
    T, B = x.shape[:2]
    H, dtype = y.shape[-1], y.dtype
    outputs = new((T, B, H), dtype) if out is None else out
    last = z.detach().clone(memory_format=torch.contiguous_format)
    drive = _drive(x, input_map, dtype)
    arrays = (*columns_of(B, weight, step, dtype), flat(y, dtype), last.view(-1).numpy(), spans_of(timespans, dtype))
    written, alpha = outputs.view(T, B * H).numpy(), _scalar(stiffness, dtype)

    def kernel(start: int, stop: int) -> None:
        _forward(*drive, *arrays, alpha, H, written, start, stop)

    run_blocks(kernel, B * H, block_of(B * H, dtype))
    return outputs, last


def backward(
    x: Float[Tensor, "T B _"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    outputs: Float[Tensor, "T B H"],
    last: Float[Tensor, "B H"],
    timespans: Float[Tensor, "T B"] | None,
    d_outputs: Float[Tensor, "T B H"] | None,
    d_last: Float[Tensor, "B H"] | None,
    *,
    d_end: Float[Tensor, "B H"] | None = None,
    input_map: InputMap | None = None,
    wants_x: bool = True,
) -> Gradients:
    """Run the adjoint; z at each step is followed back from the last one.

    ``d_end`` arrives at the last y beside ``d_outputs``; None means that nothing arrives. Without ``wants_x`` the
    drive's gradient goes into the sums and is forgotten.
    """
    T, B = x.shape[:2]
    H, dtype = y.shape[-1], y.dtype
    d_x = new((T, B, H), dtype) if wants_x else None
    d_y, d_z = (_start(gradient, y) for gradient in (d_end, d_last))
    drive = _drive(x, input_map, dtype)
    fan_in = 0 if input_map is None else x.shape[2]
    sums = np.zeros((3 + fan_in, B * H))
    read = (*drive, rows(outputs, dtype), *_arriving(d_outputs, B * H, dtype), *columns_of(B, weight, step, dtype))
    states = (flat(y, dtype), flat(last, dtype), spans_of(timespans, dtype))
    written = (
        None if d_x is None else d_x.view(T, B * H).numpy(),
        d_y.view(-1).numpy(),
        d_z.view(-1).numpy(),
        sums,
    )
    alpha = _scalar(stiffness, dtype)

    def kernel(start: int, stop: int) -> None:
        _backward(*read, *states, alpha, H, *written, start, stop)

    run_blocks(kernel, B * H, block_of(B * H, dtype))
    totals = torch.from_numpy(sums).view(-1, B, H).sum(1).to(dtype)
    w_bar, g_bar, b_bar = totals[:3]
    v_bar = totals.new_empty(H, fan_in).copy_(totals[3:].T)  # laid out as the weight is, for one channel too
    return Gradients(d_x, w_bar, g_bar, d_y, d_z, b_bar, v_bar)


@no_type_check
@njit(**OPTIONS)
def _project(u, matrix, bias, H, start, stop, x):
    """Write V u + b for the columns of a block; a batch row at a time, so that nothing is divided inside."""
    for row in range(start // H, (stop - 1) // H + 1):
        low, high = max(row * H, start), min(row * H + H, stop)
        part = x[low - start : high - start]
        part[:] = bias[low - row * H : high - row * H]
        for d in range(u.shape[1]):
            u_d, v_d = u[row, d], matrix[d, low - row * H : high - row * H]
            for i in range(high - low):
                part[i] += v_d[i] * u_d


@no_type_check
@njit(**OPTIONS)
def _collect(u, x_bar, H, start, stop, sums):
    """Add x̄·u to the sums of each channel."""
    for row in range(start // H, (stop - 1) // H + 1):
        low, high = max(row * H, start) - start, min(row * H + H, stop) - start
        part = x_bar[low:high]
        for d in range(u.shape[1]):
            u_d, total = u[row, d], sums[3 + d, low:high]
            for i in range(high - low):
                total[i] += part[i] * u_d


@no_type_check
@njit(**OPTIONS)
def _stretch(spans, H, start, stop, span):
    """Write the time span of each column of a block."""
    for row in range(start // H, (stop - 1) // H + 1):
        span[max(row * H, start) - start : min(row * H + H, stop) - start] = spans[row]


@no_type_check
@njit(**OPTIONS)
def _forward(x, u, matrix, bias, weight, step, y, z, spans, alpha, H, out, start, stop):
    T, n = out.shape[0], stop - start
    w, g0, g = weight[start:stop].copy(), step[start:stop].copy(), step[start:stop].copy()
    y_now, z_now = y[start:stop].copy(), z[start:stop].copy()
    row = np.empty(n, out.dtype)
    for t in range(T):
        if spans is not None:
            _stretch(spans[t], H, start, stop, row)
            for i in range(n):
                g[i] = g0[i] * row[i]
        x_t = row
        if u is not None:
            _project(u[t], matrix, bias, H, start, stop, row)
        if x is not None:
            x_t = x[t, start:stop]
        out_t = out[t, start:stop]
        for i in range(n):
            y_i = y_now[i]
            z_i = z_now[i] - g[i] * (tanh(w[i] * y_i + x_t[i]) + alpha * y_i)
            y_i = y_i + g[i] * z_i
            z_now[i] = z_i
            y_now[i] = y_i
            out_t[i] = y_i
    z[start:stop] = z_now


@no_type_check
@njit(**OPTIONS)
def _backward(
    x, u, matrix, bias, outputs, d_outputs, moves, weight, step, y, last, spans, alpha, H,
    d_x, d_y, d_z, d_sums, start, stop,
):  # fmt: skip
    T, n = outputs.shape[0], stop - start
    w, g0, g = weight[start:stop].copy(), step[start:stop].copy(), step[start:stop].copy()
    span, row, x_bar = np.ones(n, outputs.dtype), np.empty(n, outputs.dtype), np.empty(n, outputs.dtype)
    z = last[start:stop].copy()
    y_bar, z_bar = d_y[start:stop].copy(), d_z[start:stop].copy()
    sums = np.zeros((d_sums.shape[0], n), outputs.dtype)
    w_sum, g_sum, b_sum = sums[0], sums[1], sums[2]
    for k in range(T):
        t = T - 1 - k
        if spans is not None:
            _stretch(spans[t], H, start, stop, span)
            for i in range(n):
                g[i] = g0[i] * span[i]
        x_t = row
        if u is not None:
            _project(u[t], matrix, bias, H, start, stop, row)
        if x is not None:
            x_t = x[t, start:stop]
        if d_x is not None:
            x_bar = d_x[t, start:stop]
        before = outputs[t - 1, start:stop] if t > 0 else y[start:stop]
        out_bar = d_outputs[t * moves, start:stop]
        for i in range(n):
            y_i = before[i]
            value, slope = tanh_with_slope(w[i] * y_i + x_t[i])
            force = value + alpha * y_i
            y_b = y_bar[i] + out_bar[i]
            z_b = z_bar[i] + g[i] * y_b
            x_b = -g[i] * slope * z_b
            x_bar[i] = x_b
            w_sum[i] += x_b * y_i
            b_sum[i] += x_b
            g_sum[i] += span[i] * (y_b * z[i] - z_b * force)
            z[i] += g[i] * force
            y_bar[i] = y_b + w[i] * x_b - g[i] * alpha * z_b
            z_bar[i] = z_b
        if u is not None:
            _collect(u[t], x_bar, H, start, stop, sums)
        if k % FLUSH == FLUSH - 1 or t == 0:
            d_sums[:, start:stop] += sums
            sums[:] = 0
    d_y[start:stop] = y_bar
    d_z[start:stop] = z_bar


def _drive(x: Tensor, input_map: InputMap | None, dtype: torch.dtype) -> tuple[Any, Any, Any, Any]:
    """Give the drive's rows, or the raw input, the matrix by channels and the bias; what is not there is None."""
    if input_map is None:
        return rows(x, dtype), None, None, None
    matrix, bias = input_map
    channels = matrix.detach().to(dtype).T.contiguous()
    offset = channels.new_zeros(channels.shape[1]) if bias is None else bias.detach().to(dtype).contiguous()
    return None, x.detach().to(dtype).contiguous().numpy(), channels.numpy(), offset.numpy()


def _arriving(d_outputs: Tensor | None, count: int, dtype: torch.dtype) -> tuple[Any, int]:
    """Give the gradient's rows and 1; or, where all steps share one row, that row and 0."""
    if d_outputs is None:
        return np.zeros((1, count), torch.empty((), dtype=dtype).numpy().dtype), 0
    moves = int(d_outputs.stride(0) != 0 and d_outputs.shape[0] > 1)
    return rows(d_outputs if moves else d_outputs[:1], dtype), moves


def _start(gradient: Tensor | None, like: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros(like.shape, dtype=like.dtype)
    return gradient.detach().to(like.dtype).clone(memory_format=torch.contiguous_format)


def _scalar(value: float, dtype: torch.dtype) -> Any:
    return torch.tensor(value, dtype=dtype).numpy()[()]


def columns_of(B: int, weight: Tensor, step: Tensor, dtype: torch.dtype) -> tuple[Any, Any]:
    """Repeat w and g for every batch row."""
    return tuple(vector.detach().to(dtype).repeat(B).numpy() for vector in (weight, step))  # pyright: ignore[reportReturnType]


def spans_of(timespans: Tensor | None, dtype: torch.dtype) -> Any:
    """Give the time spans as an array, where there are any."""
    return None if timespans is None else timespans.detach().to(dtype).contiguous().numpy()

"""The oscillator scan on the CPU: Numba, one pass over memory forward and one backward.

All batch rows and units are one long row of columns, cut into blocks that fit the cache; a block runs through all of
time on one thread, a few steps at a time, its state in local arrays. Weights are repeated for every batch row, so the
inner loop (`oscillator_walk`) runs over contiguous memory, whatever the shape.

The drive comes as an array, or as the raw input with the map V, b that makes it: then it lives in a few rows of a
block only, and the gradients of V and b are summed on the way back.
"""

from typing import Any, NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops.buffers import new
from sostenuto.ops.columns.cpu import FLUSH, OPTIONS, block_of, flat, room, rows
from sostenuto.ops.fork.cpu import fork
from sostenuto.ops.oscillator_walk.cpu import STEPS, walk_back, walk_back_in_full, walk_forth
from sostenuto.ops.threads import run_kernel

InputMap = tuple[Float[Tensor, "H F"], Float[Tensor, " H"] | None]


class Gradients(NamedTuple):
    """Gradients of the drive, w, g, the first y and z, the bias and (if given) the matrix; None if not asked for."""

    x: Float[Tensor, "T B H"] | None
    weight: Float[Tensor, " H"]
    step: Float[Tensor, " H"]
    y: Float[Tensor, "B H"]
    z: Float[Tensor, "B H"]
    bias: Float[Tensor, " H"] | None
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
    arguments = (*drive, *arrays, _scalar(stiffness, dtype), H, outputs.view(T, B * H).numpy())
    run_kernel(_forward, _forward_blocks, arguments, B * H, block_of(B * H, dtype))
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
    wants_bias: bool = False,
) -> Gradients:
    """Run the adjoint; z at each step is followed back from the last one.

    ``d_end`` arrives at the last y beside ``d_outputs``; None means that nothing arrives. Without ``wants_x`` the
    drive's gradient goes into the sums and is forgotten; with ``wants_bias`` it is summed by itself too.
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
    arguments = (*read, *states, _scalar(stiffness, dtype), H, wants_bias, *written)
    run_kernel(_backward, _backward_blocks, arguments, B * H, block_of(B * H, dtype))
    totals = torch.from_numpy(sums).view(-1, B, H).sum(1).to(dtype)
    w_bar, g_bar, b_bar = totals[:3]
    v_bar = totals.new_empty(H, fan_in).copy_(totals[3:].T)  # laid out as the weight is, for one channel too
    return Gradients(d_x, w_bar, g_bar, d_y, d_z, b_bar if wants_bias else None, v_bar)


@no_type_check
@njit(**OPTIONS)
def _project(u, matrix, bias, H, start, stop, x):
    """Write V u + b for some steps and the columns of a block; a batch row at a time, so that nothing is divided."""
    for t in range(u.shape[0]):
        for row in range(start // H, (stop - 1) // H + 1):
            low, high = max(row * H, start), min(row * H + H, stop)
            part = x[t, low - start : high - start]
            part[:] = bias[low - row * H : high - row * H]
            for d in range(u.shape[2]):
                u_d, v_d = u[t, row, d], matrix[d, low - row * H : high - row * H]
                for i in range(high - low):
                    part[i] += v_d[i] * u_d


@no_type_check
@njit(**OPTIONS)
def _collect(u, x_bar, H, start, stop, sums):
    """Add x̄·u to the sums of each channel."""
    for t in range(u.shape[0]):
        for row in range(start // H, (stop - 1) // H + 1):
            low, high = max(row * H, start) - start, min(row * H + H, stop) - start
            part = x_bar[t, low:high]
            for d in range(u.shape[2]):
                u_d, total = u[t, row, d], sums[3 + d, low:high]
                for i in range(high - low):
                    total[i] += part[i] * u_d


@no_type_check
@njit(**OPTIONS)
def _pace(spans, step, H, start, stop, span, g):
    """Write the time span of each column of a block, and its steps; both may go into one array, the steps then."""
    for t in range(spans.shape[0]):
        for row in range(start // H, (stop - 1) // H + 1):
            low, high = max(row * H, start), min(row * H + H, stop)
            span[t, low - start : high - start] = spans[t, row]
            for i in range(high - low):
                g[t, low - start + i] = step[low + i] * spans[t, row]


@no_type_check
@njit(**OPTIONS)
def _forward(x, u, matrix, bias, weight, step, y, z, spans, alpha, H, out, start, stop):
    """Run a block through all of time, a few steps at a time; z is written over."""
    T, n, K = out.shape[0], stop - start, STEPS
    first = 0 * start  # if the places were known when compiling, room would be compiled for each of them
    w, g, y_now = room(out, 1, n, first), room(out, K, n, first + 1), room(out, 1, n, first + 2)
    drive = room(out, K, n, first + 3)
    w[0], g[0], y_now[0] = weight[start:stop], step[start:stop], y[start:stop]
    for t in range(0, T, K):
        k = min(K, T - t)
        if spans is not None:
            _pace(spans[t : t + k], step, H, start, stop, g, g)
        x_t = drive[:k, :n]
        if u is not None:
            _project(u[t : t + k], matrix, bias, H, start, stop, drive)
        if x is not None:
            x_t = x[t : t + k, start:stop]
        walk_forth(alpha, x_t, g, spans is not None, w[0], y_now[0], z[start:stop], out[t : t + k, start:stop])


@no_type_check
@njit(**OPTIONS)
def _forward_blocks(
    entry, threads, count, block, x, u, matrix, bias, weight, step, y, z, spans, alpha, H, out
):  # fmt: skip
    fork(_forward, entry, threads, count, block, (x, u, matrix, bias, weight, step, y, z, spans, alpha, H, out))


@no_type_check
@njit(**OPTIONS)
def _backward(
    x, u, matrix, bias, outputs, d_outputs, moves, weight, step, y, last, spans, alpha, H, wants_bias,
    d_x, d_y, d_z, d_sums, start, stop,
):  # fmt: skip
    """Run a block back through all of time, a few steps at a time, the first step by itself."""
    n, K = stop - start, STEPS
    first = 0 * start  # as above
    w, g, span = room(outputs, 1, n, first), room(outputs, K, n, first + 1), room(outputs, K, n, first + 2)
    drive, x_bar = room(outputs, K, n, first + 3), room(outputs, K, n, first + 4)
    states, sums = room(outputs, 3, n, first + 5), room(outputs, d_sums.shape[0], n, first + 6)
    w[0], g[0] = weight[start:stop], step[start:stop]
    span[:], sums[:] = 1, 0
    states[0], states[1], states[2] = last[start:stop], d_y[start:stop], d_z[start:stop]
    t, since = outputs.shape[0], 0
    while t > 0:
        k = max(min(K, t - 1), 1)
        t -= k
        before = outputs[t - 1 : t - 1 + k, start:stop] if t > 0 else y.reshape(1, -1)[:, start:stop]
        if spans is not None:
            _pace(spans[t : t + k], step, H, start, stop, span, g)
        x_t = drive[:k, :n]
        if u is not None:
            _project(u[t : t + k], matrix, bias, H, start, stop, drive)
        if x is not None:
            x_t = x[t : t + k, start:stop]
        x_bar_t = x_bar[:k, :n]
        if d_x is not None:
            x_bar_t = d_x[t : t + k, start:stop]
        out_bar = d_outputs[t * moves :, start:stop]
        if spans is None and u is None and not wants_bias:
            walk_back(alpha, x_t, before, out_bar, moves, g, w[0], states, sums, x_bar_t)
        else:
            walk_back_in_full(
                alpha, x_t, before, out_bar, moves, g, span, spans is not None, w[0], states, sums, x_bar_t
            )
        if u is not None:
            _collect(u[t : t + k], x_bar_t, H, start, stop, sums)
        since += k
        if since >= FLUSH or t == 0:
            d_sums[:, start:stop] += sums
            sums[:], since = 0, 0
    d_y[start:stop], d_z[start:stop] = states[1], states[2]


@no_type_check
@njit(**OPTIONS)
def _backward_blocks(
    entry, threads, count, block, x, u, matrix, bias, outputs, d_outputs, moves, weight, step, y, last, spans, alpha, H,
    wants_bias, d_x, d_y, d_z, d_sums,
):  # fmt: skip
    fork(_backward, entry, threads, count, block, (x, u, matrix, bias, outputs, d_outputs, moves, weight, step, y, last,
         spans, alpha, H, wants_bias, d_x, d_y, d_z, d_sums))  # fmt: skip


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
    shape = (B, weight.shape[0])
    return tuple(vector.detach().to(dtype).expand(shape).reshape(-1).numpy() for vector in (weight, step))  # pyright: ignore[reportReturnType]


def spans_of(timespans: Tensor | None, dtype: torch.dtype) -> Any:
    """Give the time spans as an array, where there are any."""
    return None if timespans is None else timespans.detach().to(dtype).contiguous().numpy()

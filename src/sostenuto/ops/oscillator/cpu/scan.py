"""The oscillator scan on the CPU: Numba, one pass over memory forward and one backward.

All batch rows and units are one long row of columns, cut into blocks that fit the cache; a block runs through all of
time on one thread, a few steps at a time, its state in local arrays. Weights are repeated for every batch row there, so
the inner loop (`walk.py`) runs over contiguous memory, whatever the shape.

What a step writes begins at another place of a page than what it reads (`_PLACES`): half a page after the drive lie the
outputs, a quarter from both the drive's gradient, and the local arrays between them.

The drive comes as an array, or as the raw input with the map V, b that makes it: then it lives in a few rows of a
block only, and the gradients of V and b are summed in the backward pass.
"""

from typing import Any, NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.columns import FLUSH, array, block_of, copy_row, empty_at, flat, rows
from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.parallel_for import parallel_for
from sostenuto.ops._cpu.threads import run_blocks, run_kernel
from sostenuto.ops._cpu.vector_loop import address
from sostenuto.ops._cpu.workspace import PAGE, new
from sostenuto.ops.oscillator.cpu.walk import STEPS, walk_inverse, walk_scan, walk_scan_back
from sostenuto.ops.oscillator.reference import Inverted

_PLACES = tuple(PAGE // 4 * quarter + 320 * after for quarter in range(4) for after in (1, 2))
"""Bytes from where the outputs begin to where the local arrays do, but for whole pages."""
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


class Parameters(NamedTuple):
    """w and g of each unit, and α."""

    weight: Any
    step: Any
    alpha: Any


class ForwardRun(NamedTuple):
    """The first y, z (the first, then the last), and what takes y at every step."""

    y: Any
    z: Any
    out: Any


class BackwardRun(NamedTuple):
    """What the adjoint reads: every y, the gradients that arrive, a row per step or one for all, first y and last z."""

    outputs: Any
    d_outputs: Any
    has_time_stride: Any
    y: Any
    last: Any


class Written(NamedTuple):
    """Gradients of the last state, which become those of the first, and the sums over time of all columns."""

    d_y: Any
    d_z: Any
    sums: Any


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
    outputs = new((T, B, H), dtype, place=x.data_ptr() + PAGE // 2) if out is None else out
    last = z.detach().clone(memory_format=torch.contiguous_format)
    run = ForwardRun(flat(y, dtype), flat(last, dtype), rows(outputs, dtype))
    arguments = (*_drive(x, input_map, dtype), *_parameters(weight, step, timespans, stiffness, dtype), run)
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
    d_x = new((T, B, H), dtype, place=_apart(outputs, d_outputs)) if wants_x else None
    d_y, d_z = (_start(gradient, y) for gradient in (d_end, d_last))
    fan_in = 0 if input_map is None else x.shape[2]
    sums = np.zeros((3 + fan_in, B * H))
    read = (*_drive(x, input_map, dtype), *_parameters(weight, step, timespans, stiffness, dtype))
    arriving = _arriving(d_outputs, B * H, dtype)
    run = BackwardRun(rows(outputs, dtype), *arriving, flat(y, dtype), flat(last, dtype))
    written = Written(flat(d_y, dtype), flat(d_z, dtype), sums)
    arguments = (*read, run, None if d_x is None else rows(d_x, dtype), written)
    run_kernel(_backward, _backward_blocks, arguments, B * H, block_of(B * H, dtype))
    totals = torch.from_numpy(sums.reshape(3 + fan_in, B, H).sum(1)).to(dtype)
    w_bar, g_bar, b_bar = totals[:3]
    return Gradients(
        d_x,
        w_bar,
        g_bar,
        d_y,
        d_z,
        b_bar if wants_bias else None,
        totals[3:].T.clone(memory_format=torch.contiguous_format),
    )


def inverse(
    x: Float[Tensor, "T B H"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    z: Float[Tensor, "B H"],
    timespans: Float[Tensor, "T B"] | None = None,
    velocities: bool = False,
) -> Inverted:
    """Give the states at every step and the first one from the last one (y, z)."""
    (T, B, H), dtype = x.shape, y.dtype
    ys = new((T, B, H), dtype)
    zs = new((T if velocities else 0, B, H), dtype)
    first = [part.detach().clone(memory_format=torch.contiguous_format) for part in (y, z)]
    reached = (*first, *(part.abs() for part in first))
    arrays = (rows(x, dtype), *_parameters(weight, step, timespans, stiffness, dtype), ys.view(T, B * H).numpy())
    states = tuple(part.view(-1).numpy() for part in reached)

    def kernel(start: int, stop: int) -> None:
        _inverse(*arrays, zs.view(-1, B * H).numpy(), states, start, stop)  # pyright: ignore[reportCallIssue]

    run_blocks(kernel, B * H, block_of(B * H, dtype))
    return Inverted(ys, zs if velocities else None, *reached)


@no_type_check
@procedure
def _repeat(vector, start, stop, row):
    """Write the numbers of each unit for the columns of a block."""
    H = vector.shape[0]
    for i in range(start // H, (stop - 1) // H + 1):
        low, high = max(i * H, start), min(i * H + H, stop)
        copy_row(row[low - start :], vector[low - i * H : high - i * H])


@no_type_check
@procedure
def _project(u, matrix, bias, start, stop, x):
    """Write V u + b for some steps and the columns of a block; a batch row at a time, so that nothing is divided."""
    H = bias.shape[0]
    for t in range(u.shape[0]):
        for row in range(start // H, (stop - 1) // H + 1):
            low, high = max(row * H, start), min(row * H + H, stop)
            part = x[t, low - start : high - start]
            copy_row(part, bias[low - row * H : high - row * H])
            for d in range(u.shape[2]):
                u_d, v_d = u[t, row, d], matrix[d, low - row * H : high - row * H]
                for i in range(high - low):
                    part[i] += v_d[i] * u_d


@no_type_check
@procedure
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
@procedure
def _scale_steps(spans, step, start, stop, span, g):
    """Write the time span of each column of a block, and its steps; both may go into one array, the steps then."""
    H = step.shape[0]
    for t in range(spans.shape[0]):
        for row in range(start // H, (stop - 1) // H + 1):
            low, high = max(row * H, start), min(row * H + H, stop)
            span[t, low - start : high - start] = spans[t, row]
            for i in range(high - low):
                g[t, low - start + i] = step[low - row * H + i] * spans[t, row]


@no_type_check
@njit(**OPTIONS)
def _three_rows(rows):
    return address(rows), address(rows[1]), address(rows[2])


@no_type_check
@njit(**OPTIONS)
def _forward(x, u, matrix, bias, spans, parameters, run, start, stop):
    """Run a block through all of time, a few steps at a time; z is written over."""
    (weight, step, alpha), (y, z, out) = parameters, run
    T, n, K, here = out.shape[0], stop - start, STEPS, out.ctypes.data
    w, g = empty_at(here + _PLACES[0], out, 1, n), empty_at(here + _PLACES[1], out, K, n)
    states, drive = empty_at(here + _PLACES[2], out, 2, n), empty_at(here + _PLACES[3], out, K, n)
    _repeat(weight, start, stop, w[0])
    _repeat(step, start, stop, g[0])
    copy_row(states[0], y[start:stop])
    copy_row(states[1], z[start:stop])
    for t in range(0, T, K):
        k = min(K, T - t)
        if spans is not None:
            _scale_steps(spans[t : t + k], step, start, stop, g, g)
        x_t = drive[:k, :n]
        if u is not None:
            _project(u[t : t + k], matrix, bias, start, stop, drive)
        if x is not None:
            x_t = x[t : t + k, start:stop]
        walk_scan(
            alpha, out.itemsize, n, k, (address(x_t), address(g), address(out[t:, start:stop])),
            (x_t.strides[0], g.strides[0] * (spans is not None), out.strides[0]), (address(w),),
            (address(states), address(states[1])),
        )  # fmt: skip
    copy_row(z[start:stop], states[1])


@no_type_check
@njit(**OPTIONS)
def _forward_blocks(entry, threads, count, block, x, u, matrix, bias, spans, parameters, run):
    parallel_for(_forward, entry, threads, count, block, (x, u, matrix, bias, spans, parameters, run))


@no_type_check
@njit(**OPTIONS)
def _backward(x, u, matrix, bias, spans, parameters, run, d_x, written, start, stop):
    """Run a block back through all of time, a few steps at a time, the first step by itself."""
    (weight, step, alpha), (outputs, d_outputs, has_time_stride, y, last) = parameters, run
    d_y, d_z, d_sums = written
    n, K, here = stop - start, STEPS, outputs.ctypes.data
    w, g = empty_at(here + _PLACES[0], outputs, 1, n), empty_at(here + _PLACES[1], outputs, K, n)
    states, sums = empty_at(here + _PLACES[2], outputs, 3, n), empty_at(here + _PLACES[3], outputs, d_sums.shape[0], n)
    drive, x_bar = empty_at(here + _PLACES[4], outputs, K, n), empty_at(here + _PLACES[5], outputs, K, n)
    span = empty_at(here + _PLACES[6], outputs, K, n)
    _repeat(weight, start, stop, w[0])
    _repeat(step, start, stop, g[0])
    sums[:], span[:] = 0, 1
    copy_row(states[0], last[start:stop])
    copy_row(states[1], d_y[start:stop])
    copy_row(states[2], d_z[start:stop])
    t, since = outputs.shape[0], 0
    while t > 0:
        k = max(min(K, t - 1), 1)
        t -= k
        before = outputs[t - 1 : t - 1 + k, start:stop] if t > 0 else y.reshape(1, -1)[:, start:stop]
        if spans is not None:
            _scale_steps(spans[t : t + k], step, start, stop, span, g)
        x_t = drive[:k, :n]
        if u is not None:
            _project(u[t : t + k], matrix, bias, start, stop, drive)
        if x is not None:
            x_t = x[t : t + k, start:stop]
        x_bar_t = x_bar[:k, :n]
        if d_x is not None:
            x_bar_t = d_x[t : t + k, start:stop]
        out_bar = d_outputs[t * has_time_stride :, start:stop]
        apart = g.strides[0] * (spans is not None)
        walk_scan_back(
            alpha, outputs.itemsize, n, k,
            (address(x_t), address(before), address(out_bar), address(g), address(span), address(x_bar_t)),
            (x_t.strides[0], before.strides[0], out_bar.strides[0] * has_time_stride, apart, apart, x_bar_t.strides[0]),
            (address(w),), (*_three_rows(states), *_three_rows(sums)),
        )  # fmt: skip
        if u is not None:
            _collect(u[t : t + k], x_bar_t, weight.shape[0], start, stop, sums)
        since += k
        if since >= FLUSH or t == 0:
            d_sums[:, start:stop] += sums
            sums[:], since = 0, 0
    copy_row(d_y[start:stop], states[1])
    copy_row(d_z[start:stop], states[2])


@no_type_check
@njit(**OPTIONS)
def _backward_blocks(entry, threads, count, block, x, u, matrix, bias, spans, parameters, run, d_x, written):
    arguments = (x, u, matrix, bias, spans, parameters, run, d_x, written)
    parallel_for(_backward, entry, threads, count, block, arguments)


@no_type_check
@njit(**OPTIONS)
def _inverse(x, spans, parameters, ys, zs, states, start, stop):
    """Run a block back through all of time, a few steps at a time."""
    weight, step, alpha = parameters
    n, K, size, T = stop - start, STEPS, ys.itemsize, len(ys)
    here, at = ys.ctypes.data, start * size
    w, b, g = (empty_at(here + _PLACES[0], ys, 1, n), empty_at(here + _PLACES[1], ys, 1, n),
               empty_at(here + _PLACES[2], ys, K, n))  # fmt: skip
    spare = empty_at(here + _PLACES[3], ys, 1, n)
    _repeat(weight, start, stop, w[0])
    _repeat(step, start, stop, g[0])
    b[:] = 0
    for left in range(T, 0, -K):
        k = min(K, left)
        t = left - k
        if spans is not None:
            _scale_steps(spans[t : t + k], step, start, stop, g, g)
        z_at, z_stride = address(spare), 0
        if len(zs) > 0:
            z_at, z_stride = address(zs[t]) + at, zs.strides[0]
        walk_inverse(
            alpha, size, n, k, (address(x[t]) + at, address(g), address(spare), address(ys[t]) + at, z_at),
            (x.strides[0], g.strides[0] * (spans is not None), 0, ys.strides[0], z_stride), (address(w), address(b)),
            (address(states[0]) + at, address(states[1]) + at, address(states[2]) + at, address(states[3]) + at),
        )  # fmt: skip


def _drive(x: Tensor, input_map: InputMap | None, dtype: torch.dtype) -> tuple[Any, Any, Any, Any]:
    """Give the drive's rows, or the raw input, the matrix by channels and the bias; what is not there is None."""
    if input_map is None:
        return rows(x, dtype), None, None, None
    matrix, bias = input_map
    offset = torch.zeros(len(matrix), dtype=dtype) if bias is None else bias
    return None, array(x, dtype), array(matrix.T, dtype), array(offset, dtype)


def _parameters(
    weight: Tensor, step: Tensor, timespans: Tensor | None, stiffness: float, dtype: torch.dtype
) -> tuple[Any, Parameters]:
    """Give the time spans, if there are any, and what else a step needs."""
    w = array(weight, dtype)
    spans = None if timespans is None else array(timespans, dtype)
    return spans, Parameters(w, array(step, dtype), w.dtype.type(stiffness))


def _apart(outputs: Tensor, d_outputs: Tensor | None) -> int:
    """Give the place a quarter of a page from the outputs' that is further from the arriving gradient's."""
    before, after = (outputs.data_ptr() + PAGE // 4 * sign for sign in (-1, 1))
    if d_outputs is None:
        return after
    return max((after, before), key=lambda place: abs((place - d_outputs.data_ptr() + PAGE // 2) % PAGE - PAGE // 2))


def _arriving(d_outputs: Tensor | None, count: int, dtype: torch.dtype) -> tuple[Any, int]:
    """Give the gradient's rows and 1; or, where all steps share one row, that row and 0."""
    if d_outputs is None:
        return np.zeros((1, count), torch.empty((), dtype=dtype).numpy().dtype), 0
    has_time_stride = int(d_outputs.stride(0) != 0 and d_outputs.shape[0] > 1)
    return rows(d_outputs if has_time_stride else d_outputs[:1], dtype), has_time_stride


def _start(gradient: Tensor | None, like: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros(like.shape, dtype=like.dtype)
    return gradient.detach().to(like.dtype).clone(memory_format=torch.contiguous_format)

"""The block around damped oscillators on the GPU: a few Triton kernels over rows, cuBLAS for products, and the scan's.

A program holds some rows, steps times sequences, whole. Where a kernel sums over rows, no more than `PROGRAMS` programs
run; each writes its own sums, and one reduction adds them up: the order is always the same.
"""

import math
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.ops._gpu.columns import on_device
from sostenuto.ops._gpu.tanh import TWO_LOG2E, tanh, tanh_with_slope
from sostenuto.ops.damped import gpu as scan
from sostenuto.ops.damped_block.reference import BlockWeights

PROGRAMS = 512
"""Most programs that sum over rows."""
TILE = 2048
"""Numbers of a tile, rows times units."""
SUMS = tl.constexpr(7)
"""Sums over rows, of H numbers each: m, n, p, q, the norm's weight and bias, and the bias of V."""
EPSILON = tl.constexpr(1e-5)
"""Of the norm, as `torch.nn.LayerNorm`'s."""
BEND, SLOPE = tl.constexpr(0.044715), tl.constexpr(math.sqrt(2 / math.pi))


def forward(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    weights: BlockWeights,
    lengths: Int[Tensor, " B"] | None,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Give the outputs, the last state, and what the backward pass reads."""
    T, B, H = inputs.shape
    rows, u, made = T * B, inputs.contiguous(), {"device": start.device, "dtype": start.dtype}
    norm, norm_bias, scale, direct = _vectors(weights)
    normed, moments = torch.empty((rows, H), **made), torch.empty((2, rows), **made)
    mixed, outputs = torch.empty((rows, H), **made), torch.empty((T, B, H), **made)
    tiles, options = _tiles(rows, H)
    with on_device(u):
        _norm[(tiles,)](u, norm, norm_bias, normed, moments, rows, **options)
        drive = torch.nn.functional.linear(normed, weights.enter, weights.enter_bias)
        coefficients = weights.power, weights.gain, weights.readout
        past, last, states = scan.forward(drive.view(T, B, H), start, *coefficients, lengths)
        _mix[(tiles,)](past, normed, scale, direct, mixed, rows, **options)
        gates = torch.nn.functional.linear(mixed, weights.gate, weights.gate_bias)
        _add_gated[(tiles,)](u, gates, outputs, rows, **options)
    return outputs, last, (normed, moments, drive, past, states, mixed, gates)


def backward(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    weights: BlockWeights,
    lengths: Int[Tensor, " B"] | None,
    kept: tuple[Tensor, ...],
    d_outputs: Float[Tensor, "T3 B H"],
    d_last: Float[Tensor, "B S"],
) -> tuple[Tensor, Tensor, BlockWeights]:
    """Give the gradients of inputs, start and weights; ``d_outputs`` of one step are those of all."""
    T, B, H = inputs.shape
    normed, moments, drive, past, states, mixed, gates = kept
    rows, u, made = T * B, inputs.contiguous(), {"device": start.device, "dtype": start.dtype}
    norm, _, scale, direct = _vectors(weights)
    tiles, options = _tiles(rows, H)
    programs = min(tiles, PROGRAMS)
    sums, arriving = torch.empty((programs, SUMS.value, H), **made), d_outputs.shape[0] * B
    d_gates, d_inputs = torch.empty((rows, 2 * H), **made), torch.empty((T, B, H), **made)
    d_past, d_normed = torch.empty((T, B, H), **made), torch.empty((rows, H), **made)
    with on_device(u):
        _add_gated_backward[(programs,)](d_outputs, gates, d_gates, sums, rows, arriving, **options)
        d_mixed, d_gate = torch.mm(d_gates, weights.gate), torch.mm(d_gates.t(), mixed)
        _mix_backward[(programs,)](d_mixed, past, normed, scale, direct, d_past, d_normed, sums, rows, **options)
        d_drive, d_start, d_power, d_gain, d_readout = scan.backward(
            drive.view(T, B, H), start, weights.power, weights.gain, weights.readout, lengths, states, d_past, d_last
        )
        d_drive = d_drive.view(rows, H)
        d_enter = torch.mm(d_drive.t(), normed)
        d_normed.addmm_(d_drive, weights.enter)
        _norm_backward[(programs,)](
            u, moments, d_normed, norm, d_drive, d_outputs, d_inputs, sums, rows, arriving, **options
        )
        total = sums.sum(0)
    d_scale, d_direct, d_norm, d_norm_bias, d_enter_bias = total[2:].unbind(0)
    found = BlockWeights(
        d_power, d_gain, d_readout, d_norm, d_norm_bias, d_enter, d_enter_bias, d_scale, d_direct, d_gate,
        total[:2].flatten(),
    )  # fmt: skip
    return d_inputs, d_start, found


def _vectors(weights: BlockWeights) -> list[Tensor]:
    read = weights.norm, weights.norm_bias, weights.scale, weights.direct
    return [vector.contiguous() for vector in read]


def _tiles(rows: int, width: int) -> tuple[int, dict[str, Any]]:
    """Count the tiles of all rows, and give the shape of one."""
    wide = triton.next_power_of_2(width)
    high = max(TILE // wide, 1)
    return -(-rows // high), {"H": width, "ROWS": high, "WIDE": wide, "num_warps": 4}


@no_type_check
@triton.jit
def _places(tile, rows, H: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr):
    """Give a tile's rows, its places in an array of H numbers per row, and which of them exist."""
    o_r, o_h = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    m_x = (o_r < rows)[:, None] & (o_h < H)[None, :]
    return o_r, o_r.to(tl.int64)[:, None] * H + o_h[None, :], m_x


@no_type_check
@triton.jit
def _vector(at, H: tl.constexpr, WIDE: tl.constexpr):
    o_h = tl.arange(0, WIDE)
    return tl.load(at + o_h, mask=o_h < H, other=0.0)[None, :]


@no_type_check
@triton.jit
def _store_sum(sums, row: tl.constexpr, b_x, H: tl.constexpr, WIDE: tl.constexpr):
    """Store this program's sum over the rows that it saw."""
    o_h = tl.arange(0, WIDE)
    tl.store(sums + (tl.program_id(0) * SUMS + row) * H + o_h, tl.sum(b_x, 0), mask=o_h < H)


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def _norm(u, weight, bias, normed, moments, rows, H: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr):
    o_r, o_x, m_x = _places(tl.program_id(0), rows, H, ROWS, WIDE)
    b_u = tl.load(u + o_x, mask=m_x, other=0.0)
    b_mean = tl.sum(b_u, 1) / H
    b_far = tl.where(m_x, b_u - b_mean[:, None], 0.0)
    b_inverse = 1.0 / tl.sqrt(tl.sum(b_far * b_far, 1) / H + EPSILON)
    b_v = b_far * b_inverse[:, None] * _vector(weight, H, WIDE) + _vector(bias, H, WIDE)
    tl.store(normed + o_x, b_v, mask=m_x)
    tl.store(moments + o_r, b_mean, mask=o_r < rows)
    tl.store(moments + rows + o_r, b_inverse, mask=o_r < rows)


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def _mix(past, normed, scale, direct, mixed, rows, H: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr):
    _, o_x, m_x = _places(tl.program_id(0), rows, H, ROWS, WIDE)
    b_r, b_v = tl.load(past + o_x, mask=m_x, other=0.0), tl.load(normed + o_x, mask=m_x, other=0.0)
    b_m = _vector(scale, H, WIDE) * b_r + _vector(direct, H, WIDE) * b_v
    b_bent = SLOPE * (b_m + BEND * b_m * b_m * b_m)
    tl.store(mixed + o_x, 0.5 * b_m * (1.0 + tanh(b_bent, b_bent * TWO_LOG2E)), mask=m_x)


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def _add_gated(u, gates, outputs, rows, H: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr):
    o_r, o_x, m_x = _places(tl.program_id(0), rows, H, ROWS, WIDE)
    o_g = o_r.to(tl.int64)[:, None] * (2 * H) + tl.arange(0, WIDE)[None, :]
    b_value, b_gate = tl.load(gates + o_g, mask=m_x, other=0.0), tl.load(gates + o_g + H, mask=m_x, other=0.0)
    b_u = tl.load(u + o_x, mask=m_x, other=0.0)
    tl.store(outputs + o_x, b_u + b_value * tl.sigmoid(b_gate), mask=m_x)


@no_type_check
@triton.jit(do_not_specialize=["rows", "arriving"])
def _add_gated_backward(
    d_outputs, gates, d_gates, sums, rows, arriving, H: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr
):
    b_values, b_gates = tl.zeros((ROWS, WIDE), tl.float32), tl.zeros((ROWS, WIDE), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        o_r, _, m_x = _places(tile, rows, H, ROWS, WIDE)
        o_h = tl.arange(0, WIDE)[None, :]
        o_g = o_r.to(tl.int64)[:, None] * (2 * H) + o_h
        b_y = tl.load(d_outputs + (o_r % arriving).to(tl.int64)[:, None] * H + o_h, mask=m_x, other=0.0)
        b_value, b_gate = tl.load(gates + o_g, mask=m_x, other=0.0), tl.load(gates + o_g + H, mask=m_x, other=0.0)
        b_open = tl.sigmoid(b_gate)
        b_value_bar = b_y * b_open
        b_gate_bar = b_value_bar * b_value * (1.0 - b_open)
        tl.store(d_gates + o_g, b_value_bar, mask=m_x)
        tl.store(d_gates + o_g + H, b_gate_bar, mask=m_x)
        b_values += b_value_bar
        b_gates += b_gate_bar
    _store_sum(sums, 0, b_values, H, WIDE)
    _store_sum(sums, 1, b_gates, H, WIDE)


@no_type_check
@triton.jit(do_not_specialize=["rows"])
def _mix_backward(
    d_mixed, past, normed, scale, direct, d_past, d_normed, sums, rows,
    H: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b_p, b_q = _vector(scale, H, WIDE), _vector(direct, H, WIDE)
    b_scales, b_directs = tl.zeros((ROWS, WIDE), tl.float32), tl.zeros((ROWS, WIDE), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        _, o_x, m_x = _places(tile, rows, H, ROWS, WIDE)
        b_r, b_v = tl.load(past + o_x, mask=m_x, other=0.0), tl.load(normed + o_x, mask=m_x, other=0.0)
        b_m = b_p * b_r + b_q * b_v
        b_square = BEND * b_m * b_m
        b_bent = SLOPE * (b_m + b_m * b_square)
        b_t, b_slope = tanh_with_slope(b_bent, b_bent * TWO_LOG2E)
        b_rise = 0.5 + 0.5 * b_t + 0.5 * b_m * b_slope * SLOPE * (1.0 + 3.0 * b_square)
        b_bar = tl.load(d_mixed + o_x, mask=m_x, other=0.0) * b_rise
        tl.store(d_past + o_x, b_bar * b_p, mask=m_x)
        tl.store(d_normed + o_x, b_bar * b_q, mask=m_x)
        b_scales += b_bar * b_r
        b_directs += b_bar * b_v
    _store_sum(sums, 2, b_scales, H, WIDE)
    _store_sum(sums, 3, b_directs, H, WIDE)


@no_type_check
@triton.jit(do_not_specialize=["rows", "arriving"])
def _norm_backward(
    u, moments, d_normed, weight, d_drive, d_outputs, d_inputs, sums, rows, arriving,
    H: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    b_w = _vector(weight, H, WIDE)
    b_weights, b_biases = tl.zeros((ROWS, WIDE), tl.float32), tl.zeros((ROWS, WIDE), tl.float32)
    b_drives = tl.zeros((ROWS, WIDE), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        o_r, o_x, m_x = _places(tile, rows, H, ROWS, WIDE)
        b_mean = tl.load(moments + o_r, mask=o_r < rows, other=0.0)[:, None]
        b_inverse = tl.load(moments + rows + o_r, mask=o_r < rows, other=0.0)[:, None]
        b_far = (tl.load(u + o_x, mask=m_x, other=0.0) - b_mean) * b_inverse
        b_v = tl.load(d_normed + o_x, mask=m_x, other=0.0)
        b_bar = b_v * b_w
        b_even, b_along = (tl.sum(b_bar, 1) / H)[:, None], (tl.sum(b_bar * b_far, 1) / H)[:, None]
        o_y = (o_r % arriving).to(tl.int64)[:, None] * H + tl.arange(0, WIDE)[None, :]
        b_y = tl.load(d_outputs + o_y, mask=m_x, other=0.0)
        tl.store(d_inputs + o_x, b_y + b_inverse * (b_bar - b_even - b_far * b_along), mask=m_x)
        b_weights += b_v * b_far
        b_biases += b_v
        b_drives += tl.load(d_drive + o_x, mask=m_x, other=0.0)
    _store_sum(sums, 4, b_weights, H, WIDE)
    _store_sum(sums, 5, b_biases, H, WIDE)
    _store_sum(sums, 6, b_drives, H, WIDE)

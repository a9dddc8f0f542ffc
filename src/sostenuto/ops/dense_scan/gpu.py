"""The dense scan on the GPU: Triton, a tile of batch rows a program, state and matrices on the chip for all of time.

A step waits for the step before, so latency is the bound: matrices are loaded once, the state never leaves the
registers but to be stored, and the next step's rows are asked for before the current products. The diagonal of a full P
is applied in float32 beside the product, so that rounding to tf32 touches only what is off it: of I + εA the part ε.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops.activation import ACTIVATIONS
from sostenuto.ops.activation.gpu import activate, slope
from sostenuto.ops.oscillator_scan.gpu import _on

ROWS = 16
"""Batch rows a program: the least that the tensor cores multiply, so that a batch spreads over many of them."""


def forward(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B H"],
    weight: Float[Tensor, "H H"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "..."],
    threshold: Float[Tensor, " H"] | None,
    activation: str,
    precision: str,
    keep: bool,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"], Float[Tensor, "..."]]:
    """Give every state, the last one and, where ``keep``, σ at every step, in the precision of the inputs."""
    T, B, H = inputs.shape
    states, last = start.new_empty((T, B, H)), start.new_empty((B, H))
    risen = inputs.new_empty((T, B, H) if keep else (0,))
    bend = start.new_zeros(H) if threshold is None else threshold
    with _on(inputs):
        _forward[(triton.cdiv(B, ROWS),)](
            inputs.contiguous(), start.contiguous(), weight.contiguous(), linear.contiguous(), gain.contiguous(),
            bend.contiguous(), states, last, risen, T, B, H,
            KEEP=keep, **_options(H, linear, gain, activation, precision),
        )  # fmt: skip
    return states, last, risen


def backward(
    start: Float[Tensor, "B H"],
    weight: Float[Tensor, "H H"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "..."],
    activation: str,
    precision: str,
    states: Float[Tensor, "T B H"],
    risen: Float[Tensor, "T B H"],
    d_states: Float[Tensor, "T1 B H"],
    d_last: Float[Tensor, "B H"],
    weights: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of inputs, start, weight, linear and gain; the last three only where ``weights``."""
    T, B, H = risen.shape
    d_inputs, d_start = risen.new_empty((T, B, H)), start.new_empty((B, H))
    bars = start.new_empty((T, B, H) if weights else (0,))
    with _on(start):
        _backward[(triton.cdiv(B, ROWS),)](
            weight.contiguous(), linear.contiguous(), gain.contiguous(), risen, d_states.contiguous(),
            d_last.contiguous(), d_inputs, d_start, bars, T, B, H, B * H if d_states.shape[0] > 1 else 0,
            SUMMING=weights, **_options(H, linear, gain, activation, precision),
        )  # fmt: skip
    if not weights:
        return d_inputs, d_start, *(start.new_empty(0) for _ in range(3))  # pyright: ignore[reportReturnType]
    before = torch.cat([start[None], states[:-1]])
    d_weight = _outer(d_inputs.to(start.dtype), before)
    d_linear = _outer(bars, before) if linear.shape[0] == H else _inner(bars, before).view(1, 1)
    d_gain = _outer(bars, risen.to(start.dtype)) if gain.ndim == 2 else _inner(bars, risen).view(1)
    return d_inputs, d_start, d_weight, d_linear, d_gain


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """Sum the outer products over time and batch: one large product."""
    return left.flatten(0, 1).T @ right.flatten(0, 1)


def _inner(left: Tensor, right: Tensor) -> Tensor:
    """Sum the products of the entries; in float64, because they cancel."""
    return (left * right).sum(dtype=torch.float64).to(left.dtype)


def _options(H: int, linear: Tensor, gain: Tensor, activation: str, precision: str) -> dict[str, Any]:
    width = max(triton.next_power_of_2(H), 16)
    return {
        "FULL_P": linear.shape[0] == H,
        "FULL_Q": gain.ndim == 2,
        "CODE": ACTIVATIONS.index(activation),
        "PRECISION": "tf32" if precision == "tf32" else "tf32x3",
        "BLOCK": ROWS,
        "WIDTH": width,
        "num_warps": 8 if width >= 128 else 4,
    }


@no_type_check
@triton.jit
def _matrix(at, H, TRANSPOSED: tl.constexpr, WITHOUT_DIAGONAL: tl.constexpr, WIDTH: tl.constexpr):
    """Load a matrix as the right factor of a product, or its transpose, with or without its diagonal."""
    o_i, o_j = tl.arange(0, WIDTH)[:, None], tl.arange(0, WIDTH)[None, :]
    m_ij = (o_i < H) & (o_j < H)
    if WITHOUT_DIAGONAL:
        m_ij = m_ij & (o_i != o_j)
    o_ij = o_j * H + o_i if TRANSPOSED else o_i * H + o_j
    return tl.load(at + o_ij, mask=m_ij, other=0.0)


@no_type_check
@triton.jit(do_not_specialize=["T", "B", "H"])
def _forward(
    z, start, weight, linear, gain, bend, states, last, risen, T, B, H,
    KEEP: tl.constexpr, FULL_P: tl.constexpr, FULL_Q: tl.constexpr, CODE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    o_b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    o_h = tl.arange(0, WIDTH)[None, :]
    m_bh = (o_b < B) & (o_h < H)
    o_bh = o_b * H + o_h
    N = tl.cast(B, tl.int64) * H
    b_w = _matrix(weight, H, True, False, WIDTH)
    if FULL_P:
        b_pm = _matrix(linear, H, True, True, WIDTH)
        b_p = tl.load(linear + o_h * (H + 1), mask=o_h < H, other=0.0)
    else:
        b_p = tl.load(linear)
    if FULL_Q:
        b_qm = _matrix(gain, H, True, False, WIDTH)
    else:
        b_q = tl.load(gain)
    b_bend = tl.load(bend + o_h, mask=o_h < H, other=0.0)
    b_h = tl.load(start + o_bh, mask=m_bh, other=0.0)
    b_z = tl.load(z + o_bh, mask=m_bh, other=0.0).to(tl.float32)
    p_z, p_s, p_u = z + o_bh, states + o_bh, risen + o_bh
    for t in range(T):
        p_z += N
        b_next = tl.load(p_z, mask=(o_b < tl.where(t + 1 < T, B, 0)) & (o_h < H), other=0.0).to(tl.float32)
        b_u = activate(tl.dot(b_h, b_w, acc=b_z, input_precision=PRECISION), b_bend, CODE)
        b_h = tl.dot(b_h, b_pm, acc=b_p * b_h, input_precision=PRECISION) if FULL_P else b_p * b_h
        b_h = tl.dot(b_u, b_qm, acc=b_h, input_precision=PRECISION) if FULL_Q else b_h + b_q * b_u
        tl.store(p_s, b_h, mask=m_bh)
        if KEEP:
            tl.store(p_u, b_u, mask=m_bh)
        p_s += N
        p_u += N
        b_z = b_next
    tl.store(last + o_bh, b_h, mask=m_bh)


@no_type_check
@triton.jit(do_not_specialize=["T", "B", "H", "STRIDE"])
def _backward(
    weight, linear, gain, risen, d_states, d_last, d_z, d_start, bars, T, B, H, STRIDE,
    SUMMING: tl.constexpr, FULL_P: tl.constexpr, FULL_Q: tl.constexpr, CODE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    o_b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    o_h = tl.arange(0, WIDTH)[None, :]
    m_bh = (o_b < B) & (o_h < H)
    o_bh = o_b * H + o_h
    N = tl.cast(B, tl.int64) * H
    b_w = _matrix(weight, H, False, False, WIDTH)
    if FULL_P:
        b_pm = _matrix(linear, H, False, True, WIDTH)
        b_p = tl.load(linear + o_h * (H + 1), mask=o_h < H, other=0.0)
    else:
        b_p = tl.load(linear)
    if FULL_Q:
        b_qm = _matrix(gain, H, False, False, WIDTH)
    else:
        b_q = tl.load(gain)
    b_bar = tl.load(d_last + o_bh, mask=m_bh, other=0.0)
    end = (T - 1) * N + o_bh
    p_u, p_d, p_z, p_b = risen + end, d_states + (T - 1) * tl.cast(STRIDE, tl.int64) + o_bh, d_z + end, bars + end
    b_u, b_d = tl.load(p_u, mask=m_bh, other=0.0).to(tl.float32), tl.load(p_d, mask=m_bh, other=0.0)
    for t in range(T):
        p_u -= N
        p_d -= STRIDE
        m_more = (o_b < tl.where(t + 1 < T, B, 0)) & (o_h < H)
        b_u_more, b_d_more = tl.load(p_u, mask=m_more, other=0.0).to(tl.float32), tl.load(p_d, mask=m_more, other=0.0)
        b_bar = b_bar + b_d
        if SUMMING:
            tl.store(p_b, b_bar, mask=m_bh)
        if FULL_Q:
            b_z = tl.dot(b_bar, b_qm, input_precision=PRECISION) * slope(b_u, CODE)
        else:
            b_z = b_q * b_bar * slope(b_u, CODE)
        tl.store(p_z, b_z, mask=m_bh)
        b_bar = tl.dot(b_bar, b_pm, acc=b_p * b_bar, input_precision=PRECISION) if FULL_P else b_p * b_bar
        b_bar = tl.dot(b_z, b_w, acc=b_bar, input_precision=PRECISION)
        p_z -= N
        p_b -= N
        b_u, b_d = b_u_more, b_d_more
    tl.store(d_start + o_bh, b_bar, mask=m_bh)

"""The diagonal scans on the GPU: Triton, one thread a column, all of time in registers, in the oscillator scan's frame.

The rows of the next ``U`` steps are loaded before the current ones are computed, rows further ahead are called into the
L2 cache, and every column writes its own sums, added up outside. Whether there is a gate is a compile-time constant.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops._gpu.activation import activate, slope
from sostenuto.ops._gpu.columns import grid, load_rows, on_device
from sostenuto.ops.activation import ACTIVATIONS

STEPS = 8
"""Steps whose rows are loaded ahead."""


def forward(
    inputs: Float[Tensor, "T B H"],
    candidates: Float[Tensor, "T B H"] | None,
    start: Float[Tensor, "B H"],
    vectors: Float[Tensor, "4 H"],
    activation: str,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"]]:
    """Give every state and the last; ``vectors`` are w, p, q and the threshold; candidates make it the gated one."""
    T, B, H = inputs.shape
    z = inputs.contiguous()
    x = z if candidates is None else candidates.contiguous()
    states, last = (torch.empty(shape, device=z.device, dtype=start.dtype) for shape in ((T, B, H), (B, H)))
    with on_device(z):
        _forward[grid(B * H)](
            z, x, start.contiguous(), vectors.to(start.dtype).contiguous(), states, last, T, H,
            **_options(candidates, activation, B * H),
        )  # fmt: skip
    return states, last


def backward(
    inputs: Float[Tensor, "T B H"],
    candidates: Float[Tensor, "T B H"] | None,
    start: Float[Tensor, "B H"],
    vectors: Float[Tensor, "4 H"],
    activation: str,
    states: Float[Tensor, "T B H"],
    d_states: Float[Tensor, "T1 B H"],
    d_last: Float[Tensor, "B H"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of inputs, candidates (empty where there are none), start and vectors."""
    T, B, H = inputs.shape
    z = inputs.contiguous()
    x = z if candidates is None else candidates.contiguous()
    d_inputs, d_start = (torch.empty(shape, device=z.device, dtype=start.dtype) for shape in ((T, B, H), (B, H)))
    d_candidates = torch.empty((0,) if candidates is None else (T, B, H), device=z.device, dtype=start.dtype)
    sums = torch.empty((4, B, H), device=z.device, dtype=start.dtype)
    with on_device(z):
        _backward[grid(B * H)](
            z, x, start.contiguous(), vectors.to(start.dtype).contiguous(), states, d_states.contiguous(),
            d_last.contiguous(), d_inputs, d_candidates, d_start, sums, T, H, B * H if d_states.shape[0] > 1 else 0,
            **_options(candidates, activation, B * H),
        )  # fmt: skip
    return d_inputs, d_candidates, d_start, sums.sum(1)


def _options(candidates: Tensor | None, activation: str, columns: int) -> dict[str, Any]:
    code = ACTIVATIONS.index(activation)
    return {"N": columns, "CODE": code, "GATED": candidates is not None, "U": STEPS, "BLOCK": 32, "num_warps": 1}


@no_type_check
@triton.jit
def _advance(b_h, b_z, b_x, b_w, b_p, b_q, b_bend, CODE: tl.constexpr, GATED: tl.constexpr):
    b_u = activate(b_w * b_h + b_z, b_bend, CODE)
    return b_x + b_u * (b_h - b_x) if GATED else b_p * b_h + b_q * b_u


@no_type_check
@triton.jit(do_not_specialize=["T", "H"])
def _forward(
    z, x, start, vectors, states, last, T, H,
    N: tl.constexpr, CODE: tl.constexpr, GATED: tl.constexpr, U: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o_c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < N
    p_v = vectors + o_c % H
    b_w, b_p = tl.load(p_v, mask=m_c, other=0.0), tl.load(p_v + H, mask=m_c, other=0.0)
    b_q, b_bend = tl.load(p_v + 2 * H, mask=m_c, other=0.0), tl.load(p_v + 3 * H, mask=m_c, other=0.0)
    b_h = tl.load(start + o_c, mask=m_c, other=0.0)
    p_z, p_x, p_h = z + o_c, x + o_c, states + o_c
    blocks = T // U
    some = o_c < tl.where(blocks > 0, N, 0)
    z_rows, x_rows = load_rows(p_z, N, some, U), load_rows(p_x, N, some, U if GATED else 0)
    for k in range(blocks):
        p_z, p_x = p_z + U * N, p_x + U * N
        more = o_c < tl.where(k + 1 < blocks, N, 0)
        z_more, x_more = load_rows(p_z, N, more, U), load_rows(p_x, N, more, U if GATED else 0)
        for u in tl.static_range(U):
            b_h = _advance(b_h, z_rows[u], x_rows[u] if GATED else 0.0, b_w, b_p, b_q, b_bend, CODE, GATED)
            tl.store(p_h + u * N, b_h, mask=m_c)
        p_h += U * N
        z_rows, x_rows = z_more, x_more
    for t in range(blocks * U, T):
        o_t = tl.cast(t, tl.int64) * N + o_c
        b_z, b_x = tl.load(z + o_t, mask=m_c, other=0.0), tl.load(x + o_t, mask=m_c, other=0.0)
        b_h = _advance(b_h, b_z.to(tl.float32), b_x.to(tl.float32), b_w, b_p, b_q, b_bend, CODE, GATED)
        tl.store(states + o_t, b_h, mask=m_c)
    tl.store(last + o_c, b_h, mask=m_c)


@no_type_check
@triton.jit(do_not_specialize=["T", "H", "STRIDE"])
def _backward(
    z, x, start, vectors, states, d_states, d_last, d_z, d_x, d_start, sums, T, H, STRIDE,
    N: tl.constexpr, CODE: tl.constexpr, GATED: tl.constexpr, U: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o_c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < N
    p_v = vectors + o_c % H
    b_w, b_p = tl.load(p_v, mask=m_c, other=0.0), tl.load(p_v + H, mask=m_c, other=0.0)
    b_q, b_bend = tl.load(p_v + 2 * H, mask=m_c, other=0.0), tl.load(p_v + 3 * H, mask=m_c, other=0.0)
    b_bar = tl.load(d_last + o_c, mask=m_c, other=0.0)
    b_dw, b_dp, b_dq, b_db = tl.zeros_like(b_bar), tl.zeros_like(b_bar), tl.zeros_like(b_bar), tl.zeros_like(b_bar)
    for back in range(0, T, U):
        z_rows, x_rows, h_rows, o_rows = (), (), (), ()
        for u in tl.static_range(U):
            t = tl.cast(T - 1 - back - u, tl.int64)
            m_t = o_c < tl.where(t >= 0, N, 0)
            o_t = t * N + o_c
            z_rows = z_rows + (tl.load(z + o_t, mask=m_t, other=0.0).to(tl.float32),)
            x_rows = x_rows + (tl.load(x + o_t, mask=m_t, other=0.0).to(tl.float32) if GATED else 0.0,)
            b_h = tl.load(states + o_t - N, mask=o_c < tl.where(t > 0, N, 0), other=0.0)
            b_first = tl.load(start + o_c, mask=o_c < tl.where(t == 0, N, 0), other=0.0)
            h_rows = h_rows + (b_h + b_first,)
            o_rows = o_rows + (tl.load(d_states + t * STRIDE + o_c, mask=m_t, other=0.0),)
        for u in tl.static_range(U):
            t = tl.cast(T - 1 - back - u, tl.int64)
            m_t = o_c < tl.where(t >= 0, N, 0)
            b_u = activate(b_w * h_rows[u] + z_rows[u], b_bend, CODE)
            b_bar = b_bar + o_rows[u]
            if GATED:
                b_kept = b_bar * b_u
                tl.store(d_x + t * N + o_c, b_bar - b_kept, mask=m_t)
                b_ub = b_bar * (h_rows[u] - x_rows[u])
            else:
                b_kept = b_bar * b_p
                b_ub = b_bar * b_q
                b_dp += tl.where(m_t, b_bar * h_rows[u], 0.0)
                b_dq += tl.where(m_t, b_bar * b_u, 0.0)
            b_zb = b_ub * slope(b_u, CODE)
            tl.store(d_z + t * N + o_c, b_zb, mask=m_t)
            b_dw += tl.where(m_t, b_zb * h_rows[u], 0.0)
            b_db += tl.where(m_t, tl.where(b_u < 0.0, -b_zb, b_zb), 0.0)
            b_bar = tl.where(m_t, b_kept + b_w * b_zb, b_bar)
    tl.store(d_start + o_c, b_bar, mask=m_c)
    tl.store(sums + o_c, b_dw, mask=m_c)
    tl.store(sums + N + o_c, b_dp, mask=m_c)
    tl.store(sums + 2 * N + o_c, b_dq, mask=m_c)
    tl.store(sums + 3 * N + o_c, b_db, mask=m_c)

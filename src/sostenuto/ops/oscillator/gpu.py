"""The oscillator scan on the GPU: Triton, one thread a column (batch row and unit), all of time in registers.

Up to some hundred thousand columns latency bounds it: a step waits for the step before. So the loads of the next ``U``
steps are issued before the current ``U`` steps are computed, rows further ahead are called into the L2 cache, and there
is no atomic: every column writes its own sums, added up outside. Beyond, bytes bound it. Then the forward pass
checkpoints z at every eighth step, and the backward pass goes over the states from checkpoint to checkpoint again
instead of reading every y. Offsets are 64 bits wide.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops._gpu.columns import grid, load_rows, on_device, prefetch_l2
from sostenuto.ops._gpu.tanh import TWO_LOG2E, tanh, tanh_with_slope
from sostenuto.ops.oscillator.autograd import EVERY, WIDE

NARROW = 1 << 12
"""Up to so many columns nothing hides the latency of memory but asking for it early."""
TO_MARKS = {"BLOCK": 512, "U": 4, "AHEAD": 0, "num_warps": 4}
FROM_MARKS = {"BLOCK": 512, "num_warps": 8}
"""Columns a program, steps a block (a divisor of EVERY), rows called ahead and warps of a marked scan, both ways."""


def forward(
    x: Float[Tensor, "T B H"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    z: Float[Tensor, "B H"],
    timespans: Float[Tensor, "T B"] | None,
    checkpoints: Float[Tensor, "n B H"] | None = None,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"]]:
    """Give y at every step and z at the last; float32 state, x may be of lower precision.

    z before the steps 0, 8, 16 … is written into ``checkpoints``, where there are any.
    """
    T, B, H = x.shape
    outputs, last = (
        torch.empty((T, B, H), device=x.device, dtype=y.dtype),
        torch.empty_like(z, memory_format=torch.contiguous_format),
    )
    spans = x if timespans is None else timespans.to(y.dtype).contiguous()
    arguments = (
        x.contiguous(),
        weight.contiguous(),
        step.contiguous(),
        stiffness,
        y.contiguous(),
        z.contiguous(),
        spans,
    )
    marked = checkpoints is not None and len(checkpoints) > 0
    with on_device(x):
        _forward[grid(B * H)](
            *arguments, outputs, last, checkpoints if marked else last, T, B, H,
            HAS_SPANS=timespans is not None, N=B * H, EVERY=EVERY if marked else 0,
            **(TO_MARKS if marked else _shape(B * H, "forward")),
        )  # fmt: skip
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
    checkpoints: Float[Tensor, "n B H"] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of x, weight, step, y and z.

    z at each step is followed back from the last one; with ``checkpoints``, y and z are found again from each
    checkpoint on.
    """
    T, B, H = x.shape
    d_x = torch.empty((T, B, H), device=x.device, dtype=x.dtype)
    d_y, d_z = torch.empty((B, H), device=x.device, dtype=y.dtype), torch.empty((B, H), device=x.device, dtype=y.dtype)
    sums = torch.empty((B, 2, H), device=x.device, dtype=y.dtype)
    spans = x if timespans is None else timespans.to(y.dtype).contiguous()
    read = (
        x.contiguous(),
        outputs.contiguous(),
        d_outputs.contiguous(),
        weight.contiguous(),
        step.contiguous(),
        stiffness,
    )
    states = (y.contiguous(), last.contiguous(), d_last.contiguous(), spans)
    written, shape = (d_x, sums, d_y, d_z, T, B, H), {"HAS_SPANS": timespans is not None, "N": B * H}
    with on_device(x):
        if checkpoints is not None and len(checkpoints):
            _backward_marked[grid(B * H)](*read, *states, checkpoints, *written, EVERY=EVERY, **shape, **FROM_MARKS)
        else:
            _backward[grid(B * H)](*read, *states, *written, **shape, **_shape(B * H, "backward"))
    d_weight, d_step = sums.sum(0)
    return d_x, d_weight, d_step, d_y, d_z


@no_type_check
@triton.jit(do_not_specialize=["T", "B", "H"])
def _forward(
    x, weight, step, alpha, y0, z0, spans, outputs, last, checkpoints, T, B, H,
    HAS_SPANS: tl.constexpr, N: tl.constexpr, EVERY: tl.constexpr,
    BLOCK: tl.constexpr, U: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    o_c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < N
    o_h, o_b = o_c % H, o_c // H
    b_w = tl.load(weight + o_h, mask=m_c, other=0.0)
    b_w2 = b_w * TWO_LOG2E
    b_g0 = tl.load(step + o_h, mask=m_c, other=0.0)
    b_y = tl.load(y0 + o_c, mask=m_c, other=0.0)
    b_z = tl.load(z0 + o_c, mask=m_c, other=0.0)
    p_x, p_y, p_s, p_m = x + o_c, outputs + o_c, spans + o_b, checkpoints + o_c
    blocks = T // U
    rows = load_rows(p_x, N, o_c < tl.where(blocks > 0, N, 0), U)
    for k in range(blocks):
        p_x += U * N
        ahead = load_rows(p_x, N, o_c < tl.where(k + 1 < blocks, N, 0), U)
        if EVERY > 0:  # noqa: SIM102 - known when compiled, the other when run
            if k % (EVERY // U) == 0:
                tl.store(p_m, b_z, mask=m_c)
                p_m += N
        for u in tl.static_range(U):
            if AHEAD > 0:
                prefetch_l2(p_x + (AHEAD + u) * N)
            b_g = b_g0
            if HAS_SPANS:
                b_g = b_g0 * tl.load(p_s + u * B, mask=m_c, other=0.0)
            b_t = tanh(b_w * b_y + rows[u], b_w2 * b_y + rows[u] * TWO_LOG2E)
            b_z = (b_z - b_g * alpha * b_y) - b_g * b_t
            b_y = b_y + b_g * b_z
            tl.store(p_y + u * N, b_y, mask=m_c)
        p_y += U * N
        p_s += U * B
        rows = ahead
    p_x = x + o_c + blocks.to(tl.int64) * U * N
    for t in range(blocks * U, T):
        if EVERY > 0:  # noqa: SIM102
            if t % EVERY == 0:
                tl.store(p_m, b_z, mask=m_c)
        b_g = b_g0
        if HAS_SPANS:
            b_g = b_g0 * tl.load(p_s, mask=m_c, other=0.0)
        b_x = tl.load(p_x, mask=m_c, other=0.0).to(tl.float32)
        b_t = tanh(b_w * b_y + b_x, b_w2 * b_y + b_x * TWO_LOG2E)
        b_z = (b_z - b_g * alpha * b_y) - b_g * b_t
        b_y = b_y + b_g * b_z
        tl.store(p_y, b_y, mask=m_c)
        p_x, p_y, p_s = p_x + N, p_y + N, p_s + B
    tl.store(last + o_c, b_z, mask=m_c)


@no_type_check
@triton.jit
def _local(b_x, b_y, b_w, alpha):
    """Give tanh + αy and tanh's slope at one step: what the backward pass needs and no other step has a part in."""
    b_a = b_w * b_y + b_x
    b_t, b_slope = tanh_with_slope(b_a, b_a * TWO_LOG2E)
    return b_t + alpha * b_y, b_slope


@no_type_check
@triton.jit
def _adjoint(b_f, b_slope, b_y, b_o, b_w, b_g, b_s, alpha, b_z, b_yb, b_zb, b_dw, b_dg):
    """Take one step back; return the gradient of x and what is carried on."""
    b_k = -b_g * b_slope
    b_yb = b_yb + b_o
    b_zb = b_zb + b_g * b_yb
    b_dx = b_k * b_zb
    b_dw = b_dw + b_dx * b_y
    b_dg = b_dg + b_s * (b_yb * b_z - b_zb * b_f)
    b_z = b_z + b_g * b_f
    b_yb = b_yb + (b_w * b_k - b_g * alpha) * b_zb
    return b_dx, b_z, b_yb, b_zb, b_dw, b_dg


@no_type_check
@triton.jit
def _step_backward(
    x, outputs, d_outputs, d_x, y0, spans, t, o_c, o_b, B,
    b_w, b_g0, alpha, b_z, b_yb, b_zb, b_dw, b_dg, HAS_SPANS: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Load what belongs to step ``t`` and take it back; return what is carried on."""
    m_c = o_c < N
    o_t = tl.cast(t, tl.int64) * N + o_c
    b_s = 1.0
    b_g = b_g0
    if HAS_SPANS:
        b_s = tl.load(spans + tl.cast(t, tl.int64) * B + o_b, mask=m_c, other=0.0)
        b_g = b_g0 * b_s
    b_x = tl.load(x + o_t, mask=m_c, other=0.0).to(tl.float32)
    b_o = tl.load(d_outputs + o_t, mask=m_c, other=0.0).to(tl.float32)
    b_y = tl.load(outputs + o_t - N, mask=o_c < tl.where(t > 0, N, 0), other=0.0)
    b_y = tl.where(t > 0, b_y, tl.load(y0 + o_c, mask=m_c, other=0.0))
    b_f, b_slope = _local(b_x, b_y, b_w, alpha)
    b_dx, b_z, b_yb, b_zb, b_dw, b_dg = _adjoint(
        b_f, b_slope, b_y, b_o, b_w, b_g, b_s, alpha, b_z, b_yb, b_zb, b_dw, b_dg
    )
    tl.store(d_x + o_t, b_dx, mask=m_c)
    return b_z, b_yb, b_zb, b_dw, b_dg


@no_type_check
@triton.jit(do_not_specialize=["T", "B", "H"])
def _backward(
    x, outputs, d_outputs, weight, step, alpha, y0, last, d_last, spans,
    d_x, sums, d_y, d_z, T, B, H,
    HAS_SPANS: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, U: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    o_c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < N
    o_h, o_b = o_c % H, o_c // H
    b_w = tl.load(weight + o_h, mask=m_c, other=0.0)
    b_g0 = tl.load(step + o_h, mask=m_c, other=0.0)
    b_z = tl.load(last + o_c, mask=m_c, other=0.0)
    b_zb = tl.load(d_last + o_c, mask=m_c, other=0.0)
    b_yb = tl.zeros_like(b_zb)
    b_dw, b_dg = tl.zeros_like(b_zb), tl.zeros_like(b_zb)
    end = (T - 1).to(tl.int64) * N + o_c
    p_x, p_o, p_d = x + end, d_outputs + end, d_x + end
    p_y, p_s = outputs + end - N, spans + (T - 1).to(tl.int64) * B + o_b
    blocks = (T - 1) // U
    some = o_c < tl.where(blocks > 0, N, 0)
    x_rows, y_rows, o_rows = load_rows(p_x, -N, some, U), load_rows(p_y, -N, some, U), load_rows(p_o, -N, some, U)
    for k in range(blocks):
        p_x, p_y, p_o = p_x - U * N, p_y - U * N, p_o - U * N
        more = o_c < tl.where(k + 1 < blocks, N, 0)
        x_more, y_more, o_more = load_rows(p_x, -N, more, U), load_rows(p_y, -N, more, U), load_rows(p_o, -N, more, U)
        b_ws, b_gs = tl.zeros_like(b_zb), tl.zeros_like(b_zb)
        locals_ = ()
        for u in tl.static_range(U):
            locals_ = locals_ + (_local(x_rows[u], y_rows[u], b_w, alpha),)
        for u in tl.static_range(U):
            if AHEAD > 0:
                prefetch_l2(p_x - (AHEAD + u) * N)
                prefetch_l2(p_y - (AHEAD + u) * N)
                prefetch_l2(p_o - (AHEAD + u) * N)
            b_s = 1.0
            b_g = b_g0
            if HAS_SPANS:
                b_s = tl.load(p_s - u * B, mask=m_c, other=0.0)
                b_g = b_g0 * b_s
            b_dx, b_z, b_yb, b_zb, b_ws, b_gs = _adjoint(
                locals_[u][0], locals_[u][1], y_rows[u], o_rows[u], b_w, b_g, b_s, alpha, b_z, b_yb, b_zb, b_ws, b_gs
            )
            tl.store(p_d - u * N, b_dx, mask=m_c)
        b_dw, b_dg = b_dw + b_ws, b_dg + b_gs
        p_d, p_s = p_d - U * N, p_s - U * B
        x_rows, y_rows, o_rows = x_more, y_more, o_more
    for t in range(T - 1 - blocks * U, -1, -1):
        b_z, b_yb, b_zb, b_dw, b_dg = _step_backward(
            x, outputs, d_outputs, d_x, y0, spans, t, o_c, o_b, B,
            b_w, b_g0, alpha, b_z, b_yb, b_zb, b_dw, b_dg, HAS_SPANS, N,
        )  # fmt: skip
    p_sum = sums + o_b * 2 * H + o_h
    tl.store(p_sum, b_dw, mask=m_c)
    tl.store(p_sum + H, b_dg, mask=m_c)
    tl.store(d_y + o_c, b_yb, mask=m_c)
    tl.store(d_z + o_c, b_zb, mask=m_c)


@no_type_check
@triton.jit
def _first_y(outputs, y0, c, o_c, EVERY: tl.constexpr, N: tl.constexpr, more):
    """Load y before the first step of chunk ``c``; nothing where there is no such chunk."""
    o_y = (tl.cast(c, tl.int64) * EVERY - 1) * N + o_c
    b_y = tl.load(outputs + o_y, mask=more & (o_c < tl.where(c > 0, N, 0)), other=0.0)
    return b_y + tl.load(y0 + o_c, mask=more & (o_c < tl.where(c > 0, 0, N)), other=0.0)


@no_type_check
@triton.jit(do_not_specialize=["T", "B", "H"])
def _backward_marked(
    x, outputs, d_outputs, weight, step, alpha, y0, last, d_last, spans, checkpoints,
    d_x, sums, d_y, d_z, T, B, H,
    HAS_SPANS: tl.constexpr, N: tl.constexpr, EVERY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o_c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < N
    o_h, o_b = o_c % H, o_c // H
    b_w = tl.load(weight + o_h, mask=m_c, other=0.0)
    b_g0 = tl.load(step + o_h, mask=m_c, other=0.0)
    b_z = tl.load(last + o_c, mask=m_c, other=0.0)
    b_zb = tl.load(d_last + o_c, mask=m_c, other=0.0)
    b_yb = tl.zeros_like(b_zb)
    b_dw, b_dg = tl.zeros_like(b_zb), tl.zeros_like(b_zb)
    chunks = T // EVERY
    for t in range(T - 1, chunks * EVERY - 1, -1):
        b_z, b_yb, b_zb, b_dw, b_dg = _step_backward(
            x, outputs, d_outputs, d_x, y0, spans, t, o_c, o_b, B,
            b_w, b_g0, alpha, b_z, b_yb, b_zb, b_dw, b_dg, HAS_SPANS, N,
        )  # fmt: skip
    start = (chunks - 1).to(tl.int64) * EVERY * N + o_c
    p_x, p_o, p_d = x + start, d_outputs + start, d_x + start
    p_m, p_s = checkpoints + (chunks - 1).to(tl.int64) * N + o_c, spans + (chunks - 1).to(tl.int64) * EVERY * B + o_b
    more = o_c < tl.where(chunks > 0, N, 0)
    x_rows = load_rows(p_x, N, more, EVERY)
    y_first, z_first = _first_y(outputs, y0, chunks - 1, o_c, EVERY, N, more), tl.load(p_m, mask=more, other=0.0)
    for k in range(chunks):
        o_rows = load_rows(p_o, N, m_c, EVERY)
        p_x, p_m = p_x - EVERY * N, p_m - N
        more = o_c < tl.where(k + 1 < chunks, N, 0)
        x_more = load_rows(p_x, N, more, EVERY)
        y_more, z_more = _first_y(outputs, y0, chunks - 2 - k, o_c, EVERY, N, more), tl.load(p_m, mask=more, other=0.0)
        b_y, b_z = y_first, z_first
        locals_, s_rows = (), ()
        for u in tl.static_range(EVERY):
            b_s = 1.0
            b_g = b_g0
            if HAS_SPANS:
                b_s = tl.load(p_s + u * B, mask=m_c, other=0.0)
                b_g = b_g0 * b_s
            b_f, b_slope = _local(x_rows[u], b_y, b_w, alpha)
            b_z = b_z - b_g * b_f
            b_y = b_y + b_g * b_z
            locals_, s_rows = locals_ + ((b_f, b_slope),), s_rows + (b_s,)
        b_ws, b_gs = tl.zeros_like(b_zb), tl.zeros_like(b_zb)
        for v in tl.static_range(EVERY):
            b_s = s_rows[EVERY - 1 - v]
            b_g = b_g0
            if HAS_SPANS:
                b_g = b_g0 * b_s
            b_y = b_y - b_g * b_z
            b_dx, b_z, b_yb, b_zb, b_ws, b_gs = _adjoint(
                locals_[EVERY - 1 - v][0], locals_[EVERY - 1 - v][1], b_y, o_rows[EVERY - 1 - v],
                b_w, b_g, b_s, alpha, b_z, b_yb, b_zb, b_ws, b_gs,
            )  # fmt: skip
            tl.store(p_d + (EVERY - 1 - v) * N, b_dx, mask=m_c)
        b_dw, b_dg = b_dw + b_ws, b_dg + b_gs
        p_o, p_d, p_s = p_o - EVERY * N, p_d - EVERY * N, p_s - EVERY * B
        x_rows, y_first, z_first = x_more, y_more, z_more
    p_sum = sums + o_b * 2 * H + o_h
    tl.store(p_sum, b_dw, mask=m_c)
    tl.store(p_sum + H, b_dg, mask=m_c)
    tl.store(d_y + o_c, b_yb, mask=m_c)
    tl.store(d_z + o_c, b_zb, mask=m_c)


def _shape(columns: int, direction: str) -> dict[str, int]:
    """Choose columns a program, steps a block and rows called ahead by what bounds the scan, as measured on an H200."""
    if columns >= WIDE:
        return {"BLOCK": 256, "U": 4, "AHEAD": 0, "num_warps": 2 if direction == "forward" else 4}
    if direction == "forward":
        return {"BLOCK": 32, "U": 16, "AHEAD": 32, "num_warps": 1}
    if columns <= NARROW:
        return {"BLOCK": 32, "U": 8, "AHEAD": 32, "num_warps": 1}
    return {"BLOCK": 32, "U": 12, "AHEAD": 0, "num_warps": 1}

"""The scan of damped oscillators on the GPU: Triton, one thread per sequence and unit, its state in registers.

The rows of the next `STEPS` steps are loaded before they are needed. Coefficients that all steps share are loaded once.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.ops._gpu.columns import grid, on_device

STEPS = 8
"""Steps whose rows are loaded together."""


def forward(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    power: Float[Tensor, "2 T1 B1 H"],
    gain: Float[Tensor, "2 T1 B1 H"],
    readout: Float[Tensor, "2 H"],
    lengths: Int[Tensor, " B"] | None,
    keep: bool = True,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B S"], Float[Tensor, "T2 B S"]]:
    """Give the outputs, the last state and, if they are to be kept, every state."""
    (T, B, H), varying = inputs.shape, _varies(power, gain)
    x, (a, b), c = inputs.contiguous(), _laid_out(power, gain, T, B, varying), readout.to(start.dtype).contiguous()
    outputs = torch.empty((T, B, H), device=x.device, dtype=start.dtype)
    last = torch.empty((B, 2 * H), device=x.device, dtype=start.dtype)
    states = torch.empty((T if keep else 0, B, 2 * H), device=x.device, dtype=start.dtype)
    with on_device(x):
        _forward[grid(B * H)](
            x, start.contiguous(), a, b, c, _ends(lengths, x, T), outputs, last, states, T, H,
            **_options(B * H, varying), KEEP=keep, U=STEPS,
        )  # fmt: skip
    return outputs, last, states


def backward(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    power: Float[Tensor, "2 T1 B1 H"],
    gain: Float[Tensor, "2 T1 B1 H"],
    readout: Float[Tensor, "2 H"],
    lengths: Int[Tensor, " B"] | None,
    states: Float[Tensor, "T B S"],
    d_outputs: Float[Tensor, "T3 B H"],
    d_last: Float[Tensor, "B S"],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of inputs, start, power, gain and readout; ``d_outputs`` of one step are those of all."""
    (T, B, H), varying = inputs.shape, _varies(power, gain)
    x, (a, b), c = inputs.contiguous(), _laid_out(power, gain, T, B, varying), readout.to(start.dtype).contiguous()
    made = {"device": x.device, "dtype": start.dtype}
    d_x, d_start, sums = torch.empty((T, B, H), **made), torch.empty((B, 2 * H), **made), torch.empty((6, B, H), **made)
    each = torch.empty((4, T if varying else 0, B, H), **made)
    with on_device(x):
        _backward[grid(B * H)](
            x, start.contiguous(), a, b, c, _ends(lengths, x, T), states.contiguous(), d_outputs.contiguous(),
            d_last.contiguous(), d_x, d_start, sums, each, T, H, B * H if d_outputs.shape[0] > 1 else 0,
            **_options(B * H, varying),
        )  # fmt: skip
    totals = sums.sum(1)
    if varying:
        return d_x, d_start, _summed_like(each[:2], power), _summed_like(each[2:], gain), totals[4:]
    return d_x, d_start, totals[:2].reshape(power.shape), totals[2:4].reshape(gain.shape), totals[4:]


def _options(columns: int, varying: bool) -> dict[str, Any]:
    return {"N": columns, "VARYING": varying, "BLOCK": 32, "num_warps": 1}


def _varies(power: Tensor, gain: Tensor) -> bool:
    return any(size > 1 for size in (*power.shape[1:3], *gain.shape[1:3]))


def _laid_out(power: Tensor, gain: Tensor, T: int, B: int, varying: bool) -> Any:
    shape = (2, T, B, -1) if varying else (2, 1, 1, -1)
    return tuple(part.expand(shape).contiguous() for part in (power, gain))


def _ends(lengths: Tensor | None, x: Tensor, T: int) -> Tensor:
    if lengths is None:
        return torch.full((x.shape[1],), T, device=x.device, dtype=torch.int32)
    return lengths.to(x.device, torch.int32).contiguous()


def _summed_like(gradient: Tensor, like: Tensor) -> Tensor:
    shared = [axis for axis in (1, 2) if like.shape[axis] == 1]
    return gradient.sum(shared, keepdim=True) if shared else gradient


@no_type_check
@triton.jit
def _pair(p_v, o_v, distance, m_v):
    """Load a complex number: its real and its imaginary part lie a distance apart."""
    return tl.load(p_v + o_v, mask=m_v, other=0.0), tl.load(p_v + o_v + distance, mask=m_v, other=0.0)


@no_type_check
@triton.jit(do_not_specialize=["T", "H"])
def _forward(
    x, start, power, gain, readout, ends, outputs, last, states, T, H,
    N: tl.constexpr, VARYING: tl.constexpr, KEEP: tl.constexpr, U: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o_c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < N
    o_h, o_b = o_c % H, o_c // H
    o_s = o_b * 2 * H + o_h  # the place of the real part in a row of states
    b_cr, b_ci = _pair(readout, o_h, H, m_c)
    b_ar, b_ai = _pair(power, o_h, H, m_c)
    b_br, b_bi = _pair(gain, o_h, H, m_c)
    b_end = tl.load(ends + o_b, mask=m_c, other=0)
    b_re, b_im = _pair(start, o_s, H, m_c)
    span = tl.cast(T, tl.int64) * N
    for first in range(0, T, U):
        x_rows = ()
        for u in tl.static_range(U):
            t = tl.cast(first + u, tl.int64)
            m_t = o_c < tl.where(t < T, N, 0)
            x_rows = x_rows + (tl.load(x + t * N + o_c, mask=m_t, other=0.0).to(tl.float32),)
        for u in tl.static_range(U):
            t = tl.cast(first + u, tl.int64)
            m_t = o_c < tl.where(t < T, N, 0)
            runs = m_t & (t < b_end)
            if VARYING:
                b_ar, b_ai = _pair(power, t * N + o_c, span, m_t)
                b_br, b_bi = _pair(gain, t * N + o_c, span, m_t)
            b_next = b_ar * b_re - b_ai * b_im + b_br * x_rows[u]
            b_turn = b_ai * b_re + b_ar * b_im + b_bi * x_rows[u]
            b_re, b_im = tl.where(runs, b_next, b_re), tl.where(runs, b_turn, b_im)
            tl.store(outputs + t * N + o_c, tl.where(runs, b_cr * b_re + b_ci * b_im, 0.0), mask=m_t)
            if KEEP:
                tl.store(states + t * 2 * N + o_s, b_re, mask=m_t)
                tl.store(states + t * 2 * N + o_s + H, b_im, mask=m_t)
    tl.store(last + o_s, b_re, mask=m_c)
    tl.store(last + o_s + H, b_im, mask=m_c)


@no_type_check
@triton.jit(do_not_specialize=["T", "H", "STRIDE"])
def _backward(
    x, start, power, gain, readout, ends, states, d_outputs, d_last, d_x, d_start, sums, each, T, H, STRIDE,
    N: tl.constexpr, VARYING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o_c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < N
    o_h, o_b = o_c % H, o_c // H
    o_s = o_b * 2 * H + o_h
    b_cr, b_ci = _pair(readout, o_h, H, m_c)
    b_ar, b_ai = _pair(power, o_h, H, m_c)
    b_br, b_bi = _pair(gain, o_h, H, m_c)
    b_end = tl.load(ends + o_b, mask=m_c, other=0)
    b_re, b_im = _pair(d_last, o_s, H, m_c)
    b_dar, b_dai, b_dbr = tl.zeros_like(b_re), tl.zeros_like(b_re), tl.zeros_like(b_re)
    b_dbi, b_dcr, b_dci = tl.zeros_like(b_re), tl.zeros_like(b_re), tl.zeros_like(b_re)
    span = tl.cast(T, tl.int64) * N
    for back in range(T):
        t = tl.cast(T - 1 - back, tl.int64)
        runs = m_c & (t < b_end)
        o_t, p_t = t * N + o_c, states + t * 2 * N
        b_x = tl.load(x + o_t, mask=runs, other=0.0).to(tl.float32)
        b_y = tl.load(d_outputs + t * STRIDE + o_c, mask=runs, other=0.0)
        b_sr, b_si = _pair(p_t, o_s, H, runs)
        b_pr, b_pi = _pair(p_t - 2 * N, o_s, H, runs & (o_c < tl.where(t > 0, N, 0)))
        b_fr, b_fi = _pair(start, o_s, H, runs & (o_c < tl.where(t == 0, N, 0)))
        b_pr, b_pi = b_pr + b_fr, b_pi + b_fi
        if VARYING:
            b_ar, b_ai = _pair(power, o_t, span, m_c)
            b_br, b_bi = _pair(gain, o_t, span, m_c)
        b_dcr += b_y * b_sr
        b_dci += b_y * b_si
        b_re += b_cr * b_y
        b_im += b_ci * b_y
        tl.store(d_x + o_t, tl.where(runs, b_br * b_re + b_bi * b_im, 0.0), mask=m_c)
        b_gar, b_gai = b_re * b_pr + b_im * b_pi, b_im * b_pr - b_re * b_pi
        b_gbr, b_gbi = b_re * b_x, b_im * b_x
        if VARYING:
            tl.store(each + o_t, tl.where(runs, b_gar, 0.0), mask=m_c)
            tl.store(each + span + o_t, tl.where(runs, b_gai, 0.0), mask=m_c)
            tl.store(each + 2 * span + o_t, tl.where(runs, b_gbr, 0.0), mask=m_c)
            tl.store(each + 3 * span + o_t, tl.where(runs, b_gbi, 0.0), mask=m_c)
        else:
            b_dar += tl.where(runs, b_gar, 0.0)
            b_dai += tl.where(runs, b_gai, 0.0)
            b_dbr += tl.where(runs, b_gbr, 0.0)
            b_dbi += tl.where(runs, b_gbi, 0.0)
        b_new, b_turn = b_ar * b_re + b_ai * b_im, b_ar * b_im - b_ai * b_re
        b_re, b_im = tl.where(runs, b_new, b_re), tl.where(runs, b_turn, b_im)
    tl.store(d_start + o_s, b_re, mask=m_c)
    tl.store(d_start + o_s + H, b_im, mask=m_c)
    tl.store(sums + o_c, b_dar, mask=m_c)
    tl.store(sums + N + o_c, b_dai, mask=m_c)
    tl.store(sums + 2 * N + o_c, b_dbr, mask=m_c)
    tl.store(sums + 3 * N + o_c, b_dbi, mask=m_c)
    tl.store(sums + 4 * N + o_c, b_dcr, mask=m_c)
    tl.store(sums + 5 * N + o_c, b_dci, mask=m_c)

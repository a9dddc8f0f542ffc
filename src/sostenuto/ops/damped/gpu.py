"""The scan of damped oscillators on the GPU: Triton, one thread per sequence, unit and chunk of time.

The scan is linear: a program runs all `CHUNKS` chunks of its columns at once from the state 0, with the product of
their coefficients, finds the state before each chunk from these, and runs them again from there. The rows of `STEPS`
steps are loaded together. Coefficients that all steps share are loaded once.
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
CHUNKS = 16
"""Parts of the time that run side by side."""
_ONE_WARP: dict[str, Any] = {"BLOCK": 32, "num_warps": 1}


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
            x, start.contiguous(), a, b, c, _ends(lengths, x), outputs, last, states, T, B * H, H, _chunk(T),
            **_options(lengths, varying), KEEP=keep,
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
            x, start.contiguous(), a, b, c, _ends(lengths, x), states.contiguous(), d_outputs.contiguous(),
            d_last.contiguous(), d_x, d_start, sums, each, T, B * H, H, _chunk(T),
            B * H if d_outputs.shape[0] > 1 else 0, **_options(lengths, varying),
        )  # fmt: skip
    totals = sums.sum(1)
    if varying:
        return d_x, d_start, _summed_like(each[:2], power), _summed_like(each[2:], gain), totals[4:]
    return d_x, d_start, totals[:2].reshape(power.shape), totals[2:4].reshape(gain.shape), totals[4:]


def learned(logs: Float[Tensor, " S"], added: float) -> tuple[Tensor, Tensor]:
    """Give the power and the gain of a unit step, see `learned_coefficients`."""
    H, read = len(logs) // 2, logs.contiguous()
    power, gain = (torch.empty((2, 1, 1, H), device=read.device, dtype=read.dtype) for _ in range(2))
    with on_device(read):
        _coefficients[(triton.cdiv(H, 32),)](read, power, gain, added, H, **_ONE_WARP)
    return power, gain


def learned_backward(
    logs: Float[Tensor, " S"], added: float, d_power: Float[Tensor, "2 1 1 H"], d_gain: Float[Tensor, "2 1 1 H"]
) -> Tensor:
    """Give the gradient of the logarithms."""
    H, read, found = len(logs) // 2, logs.contiguous(), torch.empty_like(logs, memory_format=torch.contiguous_format)
    with on_device(read):
        _coefficients_backward[(triton.cdiv(H, 32),)](
            read, d_power.contiguous(), d_gain.contiguous(), found, added, H, **_ONE_WARP
        )
    return found


def _options(lengths: Tensor | None, varying: bool) -> dict[str, Any]:
    ragged = lengths is not None
    return {"VARYING": varying, "RAGGED": ragged, "U": STEPS, "C": CHUNKS, "BLOCK": 32, "num_warps": CHUNKS}


def _chunk(steps: int) -> int:
    """Give the steps of a chunk: so many that all chunks hold all time, in whole groups of rows."""
    return -(-steps // (CHUNKS * STEPS)) * STEPS


def _varies(power: Tensor, gain: Tensor) -> bool:
    return any(size > 1 for size in (*power.shape[1:3], *gain.shape[1:3]))


def _laid_out(power: Tensor, gain: Tensor, T: int, B: int, varying: bool) -> Any:
    shape = (2, T, B, -1) if varying else (2, 1, 1, -1)
    return tuple(part.expand(shape).contiguous() for part in (power, gain))


def _ends(lengths: Tensor | None, x: Tensor) -> Tensor:
    """Give where sequences end; nothing reads it where there are no lengths."""
    return x if lengths is None else lengths.to(x.device, torch.int32).contiguous()


def _summed_like(gradient: Tensor, like: Tensor) -> Tensor:
    shared = [axis for axis in (1, 2) if like.shape[axis] == 1]
    return gradient.sum(shared, keepdim=True) if shared else gradient


@no_type_check
@triton.jit
def _pair(p_v, o_v, distance, m_v):
    """Load a complex number: its real and its imaginary part lie a distance apart."""
    return tl.load(p_v + o_v, mask=m_v, other=0.0), tl.load(p_v + o_v + distance, mask=m_v, other=0.0)


@no_type_check
@triton.jit
def _times(b_ar, b_ai, b_re, b_im):
    """Multiply two complex numbers; what is 0 stays 0, even where the other has grown beyond all bounds."""
    zero = (b_re == 0.0) & (b_im == 0.0)
    b_new, b_turn = b_ar * b_re - b_ai * b_im, b_ai * b_re + b_ar * b_im
    return tl.where(zero, 0.0, b_new), tl.where(zero, 0.0, b_turn)


@no_type_check
@triton.jit
def _picked(b_x, here):
    """Give the row of a tile that is ``here``."""
    return tl.sum(tl.where(here, b_x, 0.0), 0)


@no_type_check
@triton.jit(do_not_specialize=["T", "N", "H", "L"])
def _forward(
    x, start, power, gain, readout, ends, outputs, last, states, T, N, H, L,
    VARYING: tl.constexpr, RAGGED: tl.constexpr, KEEP: tl.constexpr,
    U: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o_c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < N
    o_h, o_b = o_c % H, o_c // H
    o_s = o_b * 2 * H + o_h  # the place of the real part in a row of states
    b_cr, b_ci = _pair(readout, o_h, H, m_c)
    b_ar, b_ai = _pair(power, o_h, H, m_c)
    b_br, b_bi = _pair(gain, o_h, H, m_c)
    b_end = tl.load(ends + o_b, mask=m_c, other=0) if RAGGED else tl.where(m_c, T, 0)
    b_sr, b_si = _pair(start, o_s, H, m_c)
    o_r = tl.arange(0, C)[:, None]
    o_t, stride = o_r * L, tl.cast(N, tl.int64)
    o_x, span = o_t.to(tl.int64) * stride + o_c[None, :], tl.cast(T, tl.int64) * stride
    b_end, m_c = b_end[None, :], m_c[None, :]
    b_cr, b_ci, b_none = b_cr[None, :], b_ci[None, :], tl.zeros((C, BLOCK), tl.float32)
    b_ar, b_ai = b_ar[None, :] + b_none, b_ai[None, :] + b_none
    b_br, b_bi = b_br[None, :] + b_none, b_bi[None, :] + b_none
    # What each chunk multiplies a state by, and what it adds.
    b_re, b_im, b_pr, b_pi = b_none, b_none, b_none + 1.0, b_none
    for first in range(0, L, U):
        x_rows = ()
        for u in tl.static_range(U):
            runs = m_c & (o_t + (first + u) < b_end)
            x_rows = x_rows + (tl.load(x + (o_x + (first + u) * stride), mask=runs, other=0.0).to(tl.float32),)
        for u in tl.static_range(U):
            runs = m_c & (o_t + (first + u) < b_end)
            if VARYING:
                b_ar, b_ai = _pair(power, o_x + (first + u) * stride, span, runs)
                b_br, b_bi = _pair(gain, o_x + (first + u) * stride, span, runs)
            b_next = b_ar * b_re - b_ai * b_im + b_br * x_rows[u]
            b_turn = b_ai * b_re + b_ar * b_im + b_bi * x_rows[u]
            b_re, b_im = tl.where(runs, b_next, b_re), tl.where(runs, b_turn, b_im)
            b_next, b_turn = b_ar * b_pr - b_ai * b_pi, b_ai * b_pr + b_ar * b_pi
            b_pr, b_pi = tl.where(runs, b_next, b_pr), tl.where(runs, b_turn, b_pi)
    # The state before each chunk.
    b_er, b_ei, b_re, b_im = b_re, b_im, b_none, b_none
    for chunk in range(C):
        here = o_r == chunk
        b_re, b_im = tl.where(here, b_sr[None, :], b_re), tl.where(here, b_si[None, :], b_im)
        b_sr, b_si = _times(_picked(b_pr, here), _picked(b_pi, here), b_sr, b_si)
        b_sr, b_si = b_sr + _picked(b_er, here), b_si + _picked(b_ei, here)
    for first in range(0, L, U):
        x_rows = ()
        for u in tl.static_range(U):
            runs = m_c & (o_t + (first + u) < b_end)
            x_rows = x_rows + (tl.load(x + (o_x + (first + u) * stride), mask=runs, other=0.0).to(tl.float32),)
        for u in tl.static_range(U):
            m_t = m_c & (o_t + (first + u) < T)
            runs, o_at = m_c & (o_t + (first + u) < b_end), o_x + (first + u) * stride
            if VARYING:
                b_ar, b_ai = _pair(power, o_at, span, runs)
                b_br, b_bi = _pair(gain, o_at, span, runs)
            b_next = b_ar * b_re - b_ai * b_im + b_br * x_rows[u]
            b_turn = b_ai * b_re + b_ar * b_im + b_bi * x_rows[u]
            b_re, b_im = tl.where(runs, b_next, b_re), tl.where(runs, b_turn, b_im)
            tl.store(outputs + o_at, tl.where(runs, b_cr * b_re + b_ci * b_im, 0.0), mask=m_t)
            if KEEP:
                p_t = states + (o_t + (first + u)).to(tl.int64) * 2 * stride + o_s[None, :]
                tl.store(p_t, b_re, mask=m_t)
                tl.store(p_t + H, b_im, mask=m_t)
    tl.store(last + o_s, b_sr, mask=o_c < N)
    tl.store(last + o_s + H, b_si, mask=o_c < N)


@no_type_check
@triton.jit(do_not_specialize=["T", "N", "H", "L", "STRIDE"])
def _backward(
    x, start, power, gain, readout, ends, states, d_outputs, d_last, d_x, d_start, sums, each, T, N, H, L, STRIDE,
    VARYING: tl.constexpr, RAGGED: tl.constexpr, U: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o_c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < N
    o_h, o_b = o_c % H, o_c // H
    o_s = o_b * 2 * H + o_h
    b_cr, b_ci = _pair(readout, o_h, H, m_c)
    b_ar, b_ai = _pair(power, o_h, H, m_c)
    b_br, b_bi = _pair(gain, o_h, H, m_c)
    b_end = tl.load(ends + o_b, mask=m_c, other=0) if RAGGED else tl.where(m_c, T, 0)
    b_fr, b_fi = _pair(start, o_s, H, m_c)
    b_sr, b_si = _pair(d_last, o_s, H, m_c)
    o_r = tl.arange(0, C)[:, None]
    o_t, stride = o_r * L + (L - 1), tl.cast(N, tl.int64)  # the last step of each chunk, and backward from there
    o_x, span = o_t.to(tl.int64) * stride + o_c[None, :], tl.cast(T, tl.int64) * stride
    o_y, back = o_t.to(tl.int64) * STRIDE + o_c[None, :], tl.cast(STRIDE, tl.int64)
    b_end, m_c, b_fr, b_fi = b_end[None, :], m_c[None, :], b_fr[None, :], b_fi[None, :]
    b_cr, b_ci, b_none = b_cr[None, :], b_ci[None, :], tl.zeros((C, BLOCK), tl.float32)
    b_ar, b_ai = b_ar[None, :] + b_none, b_ai[None, :] + b_none
    b_br, b_bi = b_br[None, :] + b_none, b_bi[None, :] + b_none
    # What each chunk multiplies a gradient by on its way back, and what it adds.
    b_re, b_im, b_pr, b_pi = b_none, b_none, b_none + 1.0, b_none
    for first in range(0, L, U):
        y_rows = ()
        for u in tl.static_range(U):
            runs = m_c & (o_t - (first + u) < b_end)
            y_rows = y_rows + (tl.load(d_outputs + (o_y - (first + u) * back), mask=runs, other=0.0),)
        for u in tl.static_range(U):
            runs = m_c & (o_t - (first + u) < b_end)
            if VARYING:
                b_ar, b_ai = _pair(power, o_x - (first + u) * stride, span, runs)
            b_re += b_cr * y_rows[u]
            b_im += b_ci * y_rows[u]
            b_next, b_turn = b_ar * b_re + b_ai * b_im, b_ar * b_im - b_ai * b_re
            b_re, b_im = tl.where(runs, b_next, b_re), tl.where(runs, b_turn, b_im)
            b_next, b_turn = b_ar * b_pr + b_ai * b_pi, b_ar * b_pi - b_ai * b_pr
            b_pr, b_pi = tl.where(runs, b_next, b_pr), tl.where(runs, b_turn, b_pi)
    # The gradient of the state after each chunk.
    b_er, b_ei, b_re, b_im = b_re, b_im, b_none, b_none
    for chunk in range(C):
        here = o_r == C - 1 - chunk
        b_re, b_im = tl.where(here, b_sr[None, :], b_re), tl.where(here, b_si[None, :], b_im)
        b_sr, b_si = _times(_picked(b_pr, here), _picked(b_pi, here), b_sr, b_si)
        b_sr, b_si = b_sr + _picked(b_er, here), b_si + _picked(b_ei, here)
    b_dar, b_dai, b_dbr, b_dbi, b_dcr, b_dci = b_none, b_none, b_none, b_none, b_none, b_none
    for first in range(0, L, U):
        x_rows, y_rows, r_rows, i_rows = (), (), (), ()
        for u in tl.static_range(U):
            t = o_t - (first + u)
            runs = m_c & (t < b_end)
            x_rows = x_rows + (tl.load(x + (o_x - (first + u) * stride), mask=runs, other=0.0).to(tl.float32),)
            y_rows = y_rows + (tl.load(d_outputs + (o_y - (first + u) * back), mask=runs, other=0.0),)
            p_t = states + (t - 1).to(tl.int64) * 2 * stride + o_s[None, :]
            r_rows = r_rows + (tl.where(t == 0, b_fr, tl.load(p_t, mask=runs & (t > 0), other=0.0)),)
            i_rows = i_rows + (tl.where(t == 0, b_fi, tl.load(p_t + H, mask=runs & (t > 0), other=0.0)),)
        for u in tl.static_range(U):
            t = o_t - (first + u)
            m_t, o_at = m_c & (t < T), o_x - (first + u) * stride
            runs = m_c & (t < b_end)
            if VARYING:
                b_ar, b_ai = _pair(power, o_at, span, runs)
                b_br, b_bi = _pair(gain, o_at, span, runs)
            b_pr, b_pi = r_rows[u], i_rows[u]
            b_nr = b_ar * b_pr - b_ai * b_pi + b_br * x_rows[u]  # the state after the step, once more
            b_ni = b_ai * b_pr + b_ar * b_pi + b_bi * x_rows[u]
            b_dcr += y_rows[u] * b_nr
            b_dci += y_rows[u] * b_ni
            b_re += b_cr * y_rows[u]
            b_im += b_ci * y_rows[u]
            tl.store(d_x + o_at, tl.where(runs, b_br * b_re + b_bi * b_im, 0.0), mask=m_t)
            b_gar, b_gai = b_re * b_pr + b_im * b_pi, b_im * b_pr - b_re * b_pi
            b_gbr, b_gbi = b_re * x_rows[u], b_im * x_rows[u]
            if VARYING:
                tl.store(each + o_at, tl.where(runs, b_gar, 0.0), mask=m_t)
                tl.store(each + span + o_at, tl.where(runs, b_gai, 0.0), mask=m_t)
                tl.store(each + 2 * span + o_at, tl.where(runs, b_gbr, 0.0), mask=m_t)
                tl.store(each + 3 * span + o_at, tl.where(runs, b_gbi, 0.0), mask=m_t)
            else:
                b_dar += tl.where(runs, b_gar, 0.0)
                b_dai += tl.where(runs, b_gai, 0.0)
                b_dbr += tl.where(runs, b_gbr, 0.0)
                b_dbi += tl.where(runs, b_gbi, 0.0)
            b_new, b_turn = b_ar * b_re + b_ai * b_im, b_ar * b_im - b_ai * b_re
            b_re, b_im = tl.where(runs, b_new, b_re), tl.where(runs, b_turn, b_im)
    m_c = o_c < N
    tl.store(d_start + o_s, b_sr, mask=m_c)
    tl.store(d_start + o_s + H, b_si, mask=m_c)
    tl.store(sums + o_c, tl.sum(b_dar, 0), mask=m_c)
    tl.store(sums + stride + o_c, tl.sum(b_dai, 0), mask=m_c)
    tl.store(sums + 2 * stride + o_c, tl.sum(b_dbr, 0), mask=m_c)
    tl.store(sums + 3 * stride + o_c, tl.sum(b_dbi, 0), mask=m_c)
    tl.store(sums + 4 * stride + o_c, tl.sum(b_dcr, 0), mask=m_c)
    tl.store(sums + 5 * stride + o_c, tl.sum(b_dci, 0), mask=m_c)


@no_type_check
@triton.jit
def _rates(logs, added, o_h, H, m_h):
    """Give e^{−ν}, γ and ω, in float64."""
    b_slow, b_turn = _pair(logs, o_h, H, m_h)
    b_time = tl.exp(-b_slow.to(tl.float64))
    return b_time, 1.0 / (b_time + added), tl.exp(b_turn.to(tl.float64))


@no_type_check
@triton.jit
def _over_rate(b_re, b_im, b_decay, b_turn):
    """Divide a complex number by κ = −γ + iω."""
    b_size = b_decay * b_decay + b_turn * b_turn
    return (b_im * b_turn - b_re * b_decay) / b_size, -(b_im * b_decay + b_re * b_turn) / b_size


@no_type_check
@triton.jit(do_not_specialize=["H"])
def _coefficients(logs, power, gain, added, H, BLOCK: tl.constexpr):
    o_h = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m_h = o_h < H
    _, b_decay, b_turn = _rates(logs, added, o_h, H, m_h)
    b_size = tl.exp(-b_decay)
    b_ar, b_ai = b_size * tl.cos(b_turn), b_size * tl.sin(b_turn)
    b_br, b_bi = _over_rate(b_ar - 1.0, b_ai, b_decay, b_turn)
    b_scale = tl.sqrt(1.0 - b_size * b_size)
    tl.store(power + o_h, b_ar.to(tl.float32), mask=m_h)
    tl.store(power + H + o_h, b_ai.to(tl.float32), mask=m_h)
    tl.store(gain + o_h, (b_scale * b_br).to(tl.float32), mask=m_h)
    tl.store(gain + H + o_h, (b_scale * b_bi).to(tl.float32), mask=m_h)


@no_type_check
@triton.jit(do_not_specialize=["H"])
def _coefficients_backward(logs, d_power, d_gain, d_logs, added, H, BLOCK: tl.constexpr):
    o_h = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m_h = o_h < H
    b_time, b_decay, b_turn = _rates(logs, added, o_h, H, m_h)
    b_size = tl.exp(-b_decay)
    b_ar, b_ai = b_size * tl.cos(b_turn), b_size * tl.sin(b_turn)
    b_br, b_bi = _over_rate(b_ar - 1.0, b_ai, b_decay, b_turn)
    b_scale = tl.sqrt(1.0 - b_size * b_size)
    b_dar, b_dai = _pair(d_power, o_h, H, m_h)
    b_dbr, b_dbi = _pair(d_gain, o_h, H, m_h)
    b_dar, b_dai, b_dbr, b_dbi = b_dar.to(tl.float64), b_dai.to(tl.float64), b_dbr.to(tl.float64), b_dbi.to(tl.float64)
    # ∂b/∂κ = (a − b)/κ, or 1/2 + κ/3 + κ²/8 where that would cancel.
    b_pr, b_pi = _over_rate(b_ar - b_br, b_ai - b_bi, b_decay, b_turn)
    b_near = b_decay * b_decay + b_turn * b_turn < 1e-8
    b_pr = tl.where(b_near, 0.5 - b_decay / 3.0 + (b_decay * b_decay - b_turn * b_turn) / 8.0, b_pr)
    b_pi = tl.where(b_near, b_turn / 3.0 - b_decay * b_turn / 4.0, b_pi)
    b_kr = b_ar * b_dar + b_ai * b_dai + b_scale * (b_pr * b_dbr + b_pi * b_dbi)
    b_ki = b_ar * b_dai - b_ai * b_dar + b_scale * (b_pr * b_dbi - b_pi * b_dbr)
    b_faded = (b_br * b_dbr + b_bi * b_dbi) * b_size * b_size / b_scale - b_kr
    tl.store(d_logs + o_h, (b_faded * b_decay * b_decay * b_time).to(tl.float32), mask=m_h)
    tl.store(d_logs + H + o_h, (b_ki * b_turn).to(tl.float32), mask=m_h)

"""The recurrent NTK on the GPU: Triton, float64, a tile of pairs a program, all of time in registers.

Arithmetic is the bound: the README counts it. Profiles of both sides lie time-major, (time, column, n), so a step loads
a row of each side; what a thread computes needs no other thread. Sequences end at the last row, and a pair starts at
the row where the shorter one does.
"""

import math
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS, WARPS, UNROLL = 32, 32, 8, 1
"""Pairs of a program, its warps, and steps of one round: 8 pairs a thread hide what a multiply-add waits for."""
# The angle to the nearer end of C over 2π is √near · P(near): (2/2π) arcsin √(near/2), relative error 2e-16.

P0: tl.constexpr = tl.constexpr(0.22507907903927651)
P1: tl.constexpr = tl.constexpr(0.01875658991993782)
P2: tl.constexpr = tl.constexpr(0.004220232732212535)
P3: tl.constexpr = tl.constexpr(0.0012560216357264654)
P4: tl.constexpr = tl.constexpr(0.00042739652129661945)
P5: tl.constexpr = tl.constexpr(0.0001573554905868288)
P6: tl.constexpr = tl.constexpr(6.106775741394102e-05)
P7: tl.constexpr = tl.constexpr(2.4272397576686312e-05)
P8: tl.constexpr = tl.constexpr(1.1597729337715221e-05)
P9: tl.constexpr = tl.constexpr(-1.1436557480099898e-06)
P10: tl.constexpr = tl.constexpr(1.730209994911278e-05)
P11: tl.constexpr = tl.constexpr(-3.262663497453928e-05)
P12: tl.constexpr = tl.constexpr(5.5401636292990384e-05)
P13: tl.constexpr = tl.constexpr(-6.843812979757106e-05)
P14: tl.constexpr = tl.constexpr(6.377152069684736e-05)
P15: tl.constexpr = tl.constexpr(-4.278824093670833e-05)
P16: tl.constexpr = tl.constexpr(1.9775268851851785e-05)
P17: tl.constexpr = tl.constexpr(-5.6306400692012376e-06)
P18: tl.constexpr = tl.constexpr(7.63552370091429e-07)
BY_TURN: tl.constexpr = tl.constexpr(0.15915494309189535)
ROOT_TWO: tl.constexpr = tl.constexpr(1.4142135623730951)
BY_HALF: tl.constexpr = tl.constexpr(0.6366197723675814)
TINY: tl.constexpr = tl.constexpr(1e-36)


def pairs(
    left: Tensor,
    right: Tensor,
    lengths: tuple[Tensor, Tensor],
    identities: tuple[Tensor, Tensor],
    *,
    layers: int,
    parts: int,
    erf: bool,
    bias: bool,
    kind: str,
    mode: str,
) -> Tensor:
    """Return the kernel of last steps in units of exp(log_unit); tables are (time, column, n), sorted by length.

    ``mode`` is ``"all"`` or ``"upper"``: below the diagonal's tiles nothing is computed.
    """
    n1, n2 = left.shape[2], right.shape[2]
    one = _laid_out(left, parts, ROWS)
    two = one if right is left and ROWS == COLUMNS else _laid_out(right, parts, COLUMNS)
    out = torch.zeros(n1, n2, device=left.device, dtype=torch.float64)
    grid = (triton.cdiv(n1, ROWS), triton.cdiv(n2, COLUMNS))
    equal = all(bool((side == lengths[0][0]).all()) for side in lengths)
    shape: dict[str, Any] = {"BI": ROWS, "BJ": COLUMNS, "UNROLL": UNROLL, "num_warps": WARPS, "enable_fp_fusion": True}
    with _on(left):
        _pairs[grid](
            one, two, *lengths, *identities, out, n1, n2, one.shape[2], two.shape[2],
            left.shape[0], right.shape[0], left.shape[1], right.shape[1],
            LAYERS=layers, PARTS=parts, BIAS=int(bias), ERF=erf, NTK=kind == "ntk", UPPER=mode == "upper", EQUAL=equal,
            **shape,
        )  # fmt: skip
    return out


def _laid_out(table: Tensor, parts: int, tile: int) -> Tensor:
    """Scale the parts so that half a squared difference is a squared difference, and fill the last tile with zeros."""
    count = table.shape[2]
    padded = torch.zeros(*table.shape[:2], -(-count // tile) * tile, device=table.device, dtype=torch.float64)
    padded[:, :, :count] = table
    padded[:, :parts] *= math.sqrt(0.5)
    return padded


@no_type_check
@triton.jit
def _root(x, seed):
    """Return √x from 1/√x to 22 bits in float32: a step of third order, without the branches of a rounded root."""
    y = seed.to(tl.float64)
    w = x * y
    e = 1.0 - w * y
    return w + w * (e * (0.375 * e + 0.5))


@no_type_check
@triton.jit
def _arcsine(w, near):
    """Return (2/2π) arcsin √(near/2) for w = √near."""
    p = ((((P18 * near + P17) * near + P16) * near + P15) * near + P14) * near + P13
    p = (((((p * near + P12) * near + P11) * near + P10) * near + P9) * near + P8) * near + P7
    p = (((((p * near + P6) * near + P5) * near + P4) * near + P3) * near + P2) * near + P1
    return w * (p * near + P0)


@no_type_check
@triton.jit
def _relu(delta, epsilon):
    """Return the loss ½ − A and the slope A′ at C = 1 − δ = ε − 1; ψ is the angle to the nearer end over 2π."""
    low = delta < epsilon
    near = tl.where(low, delta, epsilon)
    near = tl.where(near > TINY, near, TINY)
    single = near.to(tl.float32)
    w = _root(near, tl.rsqrt(single))
    psi = _arcsine(w, near)
    sine = w * _root(2.0 - near, tl.rsqrt(2.0 - single))
    loss = tl.where(low, 0.5 * delta, 0.5) - BY_TURN * sine + psi * (1.0 - near)
    return loss, tl.where(low, 0.5 - psi, psi)


@no_type_check
@triton.jit
def _erf(cosine, near):
    """Return A = (2/π) arcsin C and A′, from C where |C| < ½ and elsewhere from ``near`` = 1 − |C|."""
    size = tl.abs(cosine)
    small = size < 0.5
    z = tl.where(small, 2.0 * cosine * cosine, near)
    w = tl.where(small, ROOT_TWO * size, tl.sqrt(near))
    psi = _arcsine(w, z)
    value = tl.where(small, 2.0 * psi, 1.0 - 4.0 * psi)
    squared = tl.where(small, 1.0 - cosine * cosine, near * (2.0 - near))
    return tl.where(cosine >= 0.0, value, -value), BY_HALF / tl.sqrt(squared)


@no_type_check
@triton.jit
def _column(p_row, c, stride, o):
    return tl.load(p_row + c * stride + o)


@no_type_check
@triton.jit
def _layer(
    p_x, p_y, n1, n2, o_i, o_j, loss, tangent, below, below_p, first_part, last_part,
    LAYER: tl.constexpr, LAYERS: tl.constexpr, PARTS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Move one layer by one step; with EXACT 1 + C is summed for itself, as a pair's first step needs."""
    apart, along = tl.zeros_like(loss), tl.zeros_like(loss)
    for c in range(first_part, last_part):
        x = _column(p_x, c, n1, o_i)[:, None]
        y = _column(p_y, c, n2, o_j)[None, :]
        apart += (x - y) * (x - y)
        if EXACT:
            # The last part is d·α, whose sum of squares and product come apart.
            along += tl.where(c + 1 < last_part, (x + y) * (x + y), x * x + y * y)
    d = _column(p_x, PARTS + LAYER, n1, o_i)[:, None] * _column(p_y, PARTS + LAYER, n2, o_j)[None, :]
    theta = d * tangent
    apart += d * loss
    if LAYER > 0:
        at = PARTS + LAYERS + LAYER
        e = _column(p_x, at, n1, o_i)[:, None] * _column(p_y, at, n2, o_j)[None, :]
        apart += e * below
        theta += e * below_p
    epsilon = 2.0 - apart
    if EXACT:
        epsilon = along + d * (0.5 - loss)
    theta += 1.0 - apart
    new, slope = _relu(apart, epsilon)
    return new, slope * theta


@no_type_check
@triton.jit
def _erf_layer(
    p_x, p_y, n1, n2, o_i, o_j, value, tangent, below, below_p, first_part, last_part,
    LAYER: tl.constexpr, LAYERS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Move one layer of error functions by one step: C from products, then 1 − |C| from squares, as on the CPU."""
    d = _column(p_x, PARTS + LAYER, n1, o_i)[:, None] * _column(p_y, PARTS + LAYER, n2, o_j)[None, :]
    cosine, theta = d * value, d * tangent
    # The parts are scaled by √½: a product of two is half of what it was.
    last = last_part - 1
    near = 2.0 * _column(p_x, last, n1, o_i)[:, None] * _column(p_y, last, n2, o_j)[None, :] - cosine
    start = first_part
    if LAYER > 0:
        at = PARTS + LAYERS + LAYER
        e = _column(p_x, at, n1, o_i)[:, None] * _column(p_y, at, n2, o_j)[None, :]
        cosine += e * below
        theta += e * below_p
        near += 2.0 * _column(p_x, start, n1, o_i)[:, None] * _column(p_y, start, n2, o_j)[None, :] - e * below
        start = first_part + 1
    for c in range(start, last):
        cosine += 2.0 * _column(p_x, c, n1, o_i)[:, None] * _column(p_y, c, n2, o_j)[None, :]
    sign = tl.where(cosine >= 0.0, 1.0, -1.0)
    at_gap = PARTS + 2 * LAYERS + LAYER
    gap = 0.5 * (_column(p_x, at_gap, n1, o_i)[:, None] + _column(p_y, at_gap, n2, o_j)[None, :])
    near = sign * near + gap
    for c in range(first_part, last_part):
        difference = _column(p_x, c, n1, o_i)[:, None] - sign * _column(p_y, c, n2, o_j)[None, :]
        near += difference * difference
    new, slope = _erf(cosine, tl.maximum(near, gap))
    return new, slope * (cosine + theta)


@no_type_check
@triton.jit
def _step(
    p_x, p_y, n1, n2, o_i, o_j, losses, tangents,
    LAYERS: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr, ERF: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Move all layers by one step; of error functions ``losses`` holds A itself."""
    new_losses, new_tangents = (), ()
    for layer in tl.static_range(LAYERS):
        first = 0 if layer == 0 else PARTS - (LAYERS - layer) * (2 + BIAS)
        last = PARTS - (LAYERS - 1 - layer) * (2 + BIAS)
        below = new_losses[layer - 1] if layer > 0 else losses[0]
        below_p = new_tangents[layer - 1] if layer > 0 else tangents[0]
        if ERF:
            loss, tangent = _erf_layer(
                p_x, p_y, n1, n2, o_i, o_j, losses[layer], tangents[layer], below, below_p, first, last,
                layer, LAYERS, PARTS,
            )  # fmt: skip
        else:
            loss, tangent = _layer(
                p_x, p_y, n1, n2, o_i, o_j, losses[layer], tangents[layer], below, below_p, first, last,
                layer, LAYERS, PARTS, EXACT and layer == 0,
            )  # fmt: skip
        new_losses, new_tangents = new_losses + (loss,), new_tangents + (tangent,)
    return new_losses, new_tangents


@no_type_check
@triton.jit
def _started(
    p_x, p_y, n1, n2, o_i, o_j, losses, tangents, begins, same,
    LAYERS: tl.constexpr, PARTS: tl.constexpr, ERF: tl.constexpr,
):  # fmt: skip
    """Give pairs that begin at this row their start: A is 0, or the start's own where the sequences are equal."""
    new_losses, new_tangents = (), ()
    for layer in tl.static_range(LAYERS):
        roots = tl.full(same.shape, 0.5, tl.float64)
        if ERF:
            at = PARTS + 4 * LAYERS + layer
            roots = _column(p_x, at, n1, o_i)[:, None] * _column(p_y, at, n2, o_j)[None, :]
        fresh = tl.where(same, roots, 0.0) if ERF else tl.where(same, 0.0, roots)
        new_losses = new_losses + (tl.where(begins, fresh, losses[layer]),)
        new_tangents = new_tangents + (tl.where(begins, 0.0, tangents[layer]),)
    return new_losses, new_tangents


@no_type_check
@triton.jit
def _pairs(
    left, right, lengths1, lengths2, identities1, identities2, out, n1, n2, s1, s2, T1, T2, Q1, Q2,
    LAYERS: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr, ERF: tl.constexpr, NTK: tl.constexpr,
    UPPER: tl.constexpr, EQUAL: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    i_i, i_j = tl.program_id(0), tl.program_id(1)
    wanted = (i_j + 1) * BJ > i_i * BI if UPPER else True
    if wanted:
        o_i, o_j = i_i * BI + tl.arange(0, BI), i_j * BJ + tl.arange(0, BJ)
        m_i, m_j = o_i < n1, o_j < n2
        b_ti, b_tj = tl.load(lengths1 + o_i, mask=m_i, other=0), tl.load(lengths2 + o_j, mask=m_j, other=0)
        same = (
            tl.load(identities1 + o_i, mask=m_i, other=-1)[:, None]
            == tl.load(identities2 + o_j, mask=m_j, other=-2)[None, :]
        )
        starts = tl.minimum(b_ti[:, None], b_tj[None, :])
        steps = tl.max(tl.max(starts, 1), 0)
        zero = tl.zeros([BI, BJ], tl.float64)
        losses, tangents = (), ()
        for _layer_index in tl.static_range(LAYERS):
            losses, tangents = losses + (zero,), tangents + (zero,)
        p_x = left + tl.cast(T1 - steps, tl.int64) * Q1 * s1
        p_y = right + tl.cast(T2 - steps, tl.int64) * Q2 * s2
        if EQUAL:
            losses, tangents = _started(
                p_x, p_y, s1, s2, o_i, o_j, losses, tangents, starts == steps, same, LAYERS, PARTS, ERF
            )
            losses, tangents = _step(p_x, p_y, s1, s2, o_i, o_j, losses, tangents, LAYERS, PARTS, BIAS, ERF, True)
            for _k in tl.range(1, steps, loop_unroll_factor=UNROLL):
                p_x, p_y = p_x + Q1 * s1, p_y + Q2 * s2
                losses, tangents = _step(p_x, p_y, s1, s2, o_i, o_j, losses, tangents, LAYERS, PARTS, BIAS, ERF, False)
        else:
            for k in range(steps):
                losses, tangents = _started(
                    p_x, p_y, s1, s2, o_i, o_j, losses, tangents, starts == steps - k, same,
                    LAYERS, PARTS, ERF,
                )  # fmt: skip
                losses, tangents = _step(p_x, p_y, s1, s2, o_i, o_j, losses, tangents, LAYERS, PARTS, BIAS, ERF, True)
                p_x, p_y = p_x + Q1 * s1, p_y + Q2 * s2
        value = losses[LAYERS - 1] if ERF else 0.5 - losses[LAYERS - 1]
        if NTK:
            value += tangents[LAYERS - 1]
        p_out = out + tl.cast(o_i, tl.int64)[:, None] * n2 + o_j[None, :]
        tl.store(p_out, value, mask=m_i[:, None] & m_j[None, :])


def _on(x: Tensor) -> Any:
    return torch.cuda.device(x.device) if x.is_cuda else torch.no_grad()

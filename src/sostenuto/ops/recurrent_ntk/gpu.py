"""The recurrent NTK on the GPU: Triton, float64, a tile of pairs a program, all of time in registers.

Arithmetic is the bound: the README counts it. Profiles of both sides lie time-major, (time, column, n), so a step loads
a row of each side; what a thread computes needs no other thread. Sequences end at the last row, and a pair starts at
the row where the shorter one does.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS, WARPS = 32, 32, 4
"""Pairs of a program, and its warps: 8 pairs a thread keep the multipliers busy while square roots wait."""

C1: tl.constexpr = tl.constexpr(0.16666666666664987)
C2: tl.constexpr = tl.constexpr(0.07500000000401816)
C3: tl.constexpr = tl.constexpr(0.044642856762615)
C4: tl.constexpr = tl.constexpr(0.030381963396751827)
C5: tl.constexpr = tl.constexpr(0.022371584779320355)
C6: tl.constexpr = tl.constexpr(0.017364281439103527)
C7: tl.constexpr = tl.constexpr(0.01380344589589198)
C8: tl.constexpr = tl.constexpr(0.013191002571753903)
C9: tl.constexpr = tl.constexpr(-0.002601537848299688)
C10: tl.constexpr = tl.constexpr(0.07871611357002127)
C11: tl.constexpr = tl.constexpr(-0.2968705430689824)
C12: tl.constexpr = tl.constexpr(1.0082016650534187)
C13: tl.constexpr = tl.constexpr(-2.4908808126226116)
C14: tl.constexpr = tl.constexpr(4.6420689099888435)
C15: tl.constexpr = tl.constexpr(-6.229299875397985)
C16: tl.constexpr = tl.constexpr(5.7579408313146985)
C17: tl.constexpr = tl.constexpr(-3.278933156739812)
C18: tl.constexpr = tl.constexpr(0.8892904367638688)
PI: tl.constexpr = tl.constexpr(3.141592653589793)
BY_TURN: tl.constexpr = tl.constexpr(0.15915494309189535)
BY_HALF: tl.constexpr = tl.constexpr(0.6366197723675814)


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
    out = torch.zeros(n1, n2, device=left.device, dtype=torch.float64)
    grid = (triton.cdiv(n1, ROWS), triton.cdiv(n2, COLUMNS))
    equal = all(bool((side == lengths[0][0]).all()) for side in lengths)
    shape: dict[str, Any] = {"BI": ROWS, "BJ": COLUMNS, "num_warps": WARPS}
    with _on(left):
        _pairs[grid](
            left, right, *lengths, *identities, out, n1, n2,
            left.shape[0], right.shape[0], left.shape[1], right.shape[1],
            LAYERS=layers, PARTS=parts, BIAS=int(bias), ERF=erf, NTK=kind == "ntk", UPPER=mode == "upper", EQUAL=equal,
            **shape,
        )  # fmt: skip
    return out


@no_type_check
@triton.jit
def _half_angle(z):
    """Return w = √z and φ = 2 arcsin w."""
    w = tl.sqrt(z)
    p = ((((C18 * z + C17) * z + C16) * z + C15) * z + C14) * z + C13
    p = (((((p * z + C12) * z + C11) * z + C10) * z + C9) * z + C8) * z + C7
    p = (((((p * z + C6) * z + C5) * z + C4) * z + C3) * z + C2) * z + C1
    return w, 2.0 * (w + w * (z * p))


@no_type_check
@triton.jit
def _dual(delta, epsilon, floor, roots, ERF: tl.constexpr):
    """Return the loss αα′ − A and the slope A′ at C = 1 − δ = ε − 1."""
    near = tl.maximum(tl.minimum(delta, epsilon), 0.0)
    z = 0.5 * near
    w, phi = _half_angle(z)
    low = delta < epsilon
    if ERF:
        theta = tl.where(low, phi, PI - phi)
        loss = roots + BY_HALF * theta - 1.0
        slope = BY_HALF / tl.sqrt(tl.maximum(delta * epsilon, floor))
    else:
        sine = 2.0 * w * tl.sqrt(1.0 - z)
        loss = tl.maximum(BY_TURN * (PI * tl.minimum(delta, 1.0) - (sine - phi * (1.0 - near))), 0.0)
        slope = BY_TURN * tl.where(low, PI - phi, phi)
    return loss, slope


@no_type_check
@triton.jit
def _column(p_row, c, stride, o, m):
    return tl.load(p_row + c * stride + o, mask=m, other=0.0)


@no_type_check
@triton.jit
def _layer(
    p_x, p_y, n1, n2, o_i, o_j, m_i, m_j, loss, tangent, below, below_p, first_part, last_part,
    LAYER: tl.constexpr, LAYERS: tl.constexpr, PARTS: tl.constexpr, ERF: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Move one layer by one step; with EXACT 1 + C is summed for itself, as a pair's first step needs."""
    apart, along = tl.zeros_like(loss), tl.zeros_like(loss)
    for c in range(first_part, last_part):
        x = _column(p_x, c, n1, o_i, m_i)[:, None]
        y = _column(p_y, c, n2, o_j, m_j)[None, :]
        apart += 0.5 * (x - y) * (x - y)
        if EXACT:
            # The last part is d·α, whose sum of squares and product come apart.
            along += tl.where(c + 1 < last_part, 0.5 * (x + y) * (x + y), 0.5 * (x * x + y * y))
    d = _column(p_x, PARTS + LAYER, n1, o_i, m_i)[:, None] * _column(p_y, PARTS + LAYER, n2, o_j, m_j)[None, :]
    theta = d * tangent
    apart += d * loss
    if LAYER > 0:
        at = PARTS + LAYERS + LAYER
        e = _column(p_x, at, n1, o_i, m_i)[:, None] * _column(p_y, at, n2, o_j, m_j)[None, :]
        apart += e * below
        theta += e * below_p
    roots, floor = 0.5, 0.0
    if ERF:
        gap, root = PARTS + 2 * LAYERS + LAYER, PARTS + 3 * LAYERS + LAYER
        floor = 0.5 * (_column(p_x, gap, n1, o_i, m_i)[:, None] + _column(p_y, gap, n2, o_j, m_j)[None, :])
        roots = _column(p_x, root, n1, o_i, m_i)[:, None] * _column(p_y, root, n2, o_j, m_j)[None, :]
        apart += floor
    epsilon = 2.0 - apart
    if EXACT:
        epsilon = along + d * (0.5 - loss)
    theta += 1.0 - apart
    new, slope = _dual(apart, epsilon, floor, roots, ERF)
    return new, slope * theta


@no_type_check
@triton.jit
def _step(
    p_x, p_y, n1, n2, o_i, o_j, m_i, m_j, losses, tangents,
    LAYERS: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr, ERF: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Move all layers by one step."""
    new_losses, new_tangents = (), ()
    for layer in tl.static_range(LAYERS):
        first = 0 if layer == 0 else PARTS - (LAYERS - layer) * (2 + BIAS)
        last = PARTS - (LAYERS - 1 - layer) * (2 + BIAS)
        below = new_losses[layer - 1] if layer > 0 else losses[0]
        below_p = new_tangents[layer - 1] if layer > 0 else tangents[0]
        loss, tangent = _layer(
            p_x, p_y, n1, n2, o_i, o_j, m_i, m_j, losses[layer], tangents[layer], below, below_p, first, last,
            layer, LAYERS, PARTS, ERF, EXACT and layer == 0 and not ERF,
        )  # fmt: skip
        new_losses, new_tangents = new_losses + (loss,), new_tangents + (tangent,)
    return new_losses, new_tangents


@no_type_check
@triton.jit
def _started(
    p_x, p_y, n1, n2, o_i, o_j, m_i, m_j, losses, tangents, begins, same,
    LAYERS: tl.constexpr, PARTS: tl.constexpr, ERF: tl.constexpr,
):  # fmt: skip
    """Give pairs that begin at this row their start: A is 0, or the start's own where the sequences are equal."""
    new_losses, new_tangents = (), ()
    for layer in tl.static_range(LAYERS):
        roots = tl.full(same.shape, 0.5, tl.float64)
        if ERF:
            at = PARTS + 4 * LAYERS + layer
            roots = _column(p_x, at, n1, o_i, m_i)[:, None] * _column(p_y, at, n2, o_j, m_j)[None, :]
        fresh = tl.where(same, 0.0, roots)
        new_losses = new_losses + (tl.where(begins, fresh, losses[layer]),)
        new_tangents = new_tangents + (tl.where(begins, 0.0, tangents[layer]),)
    return new_losses, new_tangents


@no_type_check
@triton.jit
def _pairs(
    left, right, lengths1, lengths2, identities1, identities2, out, n1, n2, T1, T2, Q1, Q2,
    LAYERS: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr, ERF: tl.constexpr, NTK: tl.constexpr,
    UPPER: tl.constexpr, EQUAL: tl.constexpr, BI: tl.constexpr, BJ: tl.constexpr,
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
        p_x = left + tl.cast(T1 - steps, tl.int64) * Q1 * n1
        p_y = right + tl.cast(T2 - steps, tl.int64) * Q2 * n2
        if EQUAL:
            losses, tangents = _started(
                p_x, p_y, n1, n2, o_i, o_j, m_i, m_j, losses, tangents, starts == steps, same, LAYERS, PARTS, ERF
            )
            losses, tangents = _step(
                p_x, p_y, n1, n2, o_i, o_j, m_i, m_j, losses, tangents, LAYERS, PARTS, BIAS, ERF, True
            )
            for _k in range(1, steps):
                p_x, p_y = p_x + Q1 * n1, p_y + Q2 * n2
                losses, tangents = _step(
                    p_x, p_y, n1, n2, o_i, o_j, m_i, m_j, losses, tangents, LAYERS, PARTS, BIAS, ERF, False
                )
        else:
            for k in range(steps):
                losses, tangents = _started(
                    p_x, p_y, n1, n2, o_i, o_j, m_i, m_j, losses, tangents, starts == steps - k, same,
                    LAYERS, PARTS, ERF,
                )  # fmt: skip
                losses, tangents = _step(
                    p_x, p_y, n1, n2, o_i, o_j, m_i, m_j, losses, tangents, LAYERS, PARTS, BIAS, ERF, True
                )
                p_x, p_y = p_x + Q1 * n1, p_y + Q2 * n2
        roots = tl.full([BI, BJ], 0.5, tl.float64)
        if ERF:
            at = PARTS + 4 * LAYERS - 1
            p_x, p_y = left + tl.cast(T1 - 1, tl.int64) * Q1 * n1, right + tl.cast(T2 - 1, tl.int64) * Q2 * n2
            roots = _column(p_x, at, n1, o_i, m_i)[:, None] * _column(p_y, at, n2, o_j, m_j)[None, :]
        value = roots - losses[LAYERS - 1]
        if NTK:
            value += tangents[LAYERS - 1]
        p_out = out + tl.cast(o_i, tl.int64)[:, None] * n2 + o_j[None, :]
        tl.store(p_out, value, mask=m_i[:, None] & m_j[None, :])


def _on(x: Tensor) -> Any:
    return torch.cuda.device(x.device) if x.is_cuda else torch.no_grad()

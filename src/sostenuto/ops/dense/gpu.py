"""The dense scan on the GPU: Triton, a few batch rows a program, matrices on the chip for all of time.

A step waits for the step before, so latency is the bound. A program holds the matrices as the left factors of its
products, W h with h of 8 rows: so they go to the tensor cores from shared memory as they lie there, and a batch spreads
over many multiprocessors. The next step's inputs are asked for before the current products. The diagonal of a full P is
applied in float32 beside the product, so that rounding to tf32 touches only what is off it: of I + εA the part ε.

Matrices too large for one multiprocessor are cut into slices of units, a program each; the programs of the same rows
publish their part of the state to each other (`ops._gpu.publish`).
"""

from collections.abc import Iterator
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops._gpu.activation import activate, slope
from sostenuto.ops._gpu.columns import on_device, prefetch_l2
from sostenuto.ops._gpu.publish import empty, publish, spin_load
from sostenuto.ops._gpu.tile_product import matrix, parts, product
from sostenuto.ops.activation import ACTIVATIONS
from sostenuto.ops.dense.plan import Plan, planned

AHEAD = 8
"""Steps whose inputs are prefetched into the L2 cache at once: a product waits for all loads issued before it."""


def forward(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    weight: Float[Tensor, "H S"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "..."],
    threshold: Float[Tensor, " H"] | None,
    activation: str,
    precision: str,
    keep: bool,
) -> tuple[Float[Tensor, "T B S"], Float[Tensor, "B S"], Float[Tensor, "..."]]:
    """Give every state, the last one and, where ``keep``, σ at every step, in the precision of the inputs."""
    T, B, H = inputs.shape
    cut: Any = planned(start, weight, linear, gain, precision)
    states = empty(start, T, shared=cut.slices > 1)
    passed = empty(start[:, :H], T, shared=True) if cut.slices > 1 and gain.ndim == 2 else states
    last = start.new_empty(start.shape)
    activated = inputs.new_empty((T, B, H) if keep else (0,))
    bend = start.new_zeros(H) if threshold is None else threshold
    matrices = _prepared(weight, linear, gain, linear.shape[0] == start.shape[1], precision)
    with on_device(inputs):
        _forward[_grid(B, cut)](
            inputs.contiguous(), start.contiguous(), *matrices, bend.contiguous(), states, last, activated, passed,
            T, B, H, KEEP=keep, **_options(H, cut, start, linear, gain, activation, precision),
        )  # fmt: skip
    return states, last, activated


def backward(
    start: Float[Tensor, "B S"],
    weight: Float[Tensor, "H S"],
    linear: Float[Tensor, "P P"],
    gain: Float[Tensor, "..."],
    activation: str,
    precision: str,
    states: Float[Tensor, "T B S"],
    activated: Float[Tensor, "T B H"],
    d_states: Float[Tensor, "T1 B S"],
    d_last: Float[Tensor, "B S"],
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of inputs, start, weight, linear and gain; the last three only where ``wanted``."""
    T, B, H = activated.shape
    cut: Any = planned(start, weight, linear, gain, precision)
    d_inputs, d_start = activated.new_empty((T, B, H)), start.new_empty(start.shape)
    full, summing = linear.shape[0] == start.shape[1], any(wanted[1:])
    shared = cut.slices > 1 and (full or gain.ndim == 2)
    cotangents = empty(start, T if summing or shared else 0, shared=shared)
    apart = cut.slices > 1 and activated.dtype != start.dtype
    if cut.slices > 1 and not apart:
        d_inputs = empty(start[:, :H], T, shared=True)
    passed = empty(start[:, :H], T, shared=True) if apart else d_inputs
    turned = weight.T, linear.T if full else linear, gain.T if gain.ndim == 2 else gain
    matrices = _prepared(*turned, full, precision)
    with on_device(start):
        _backward[_grid(B, cut)](
            *matrices, activated, d_states.contiguous(), d_last.contiguous(), d_inputs, d_start, cotangents, passed,
            T, B, H, B * start.shape[1] * (len(d_states) > 1),
            SUMMING=summing, APART=apart, **_options(H, cut, start, linear, gain, activation, precision),
        )  # fmt: skip
    return d_inputs, d_start, *_weight_gradients(start, linear, gain, states, activated, d_inputs, cotangents, wanted)  # pyright: ignore[reportReturnType]


def _weight_gradients(
    start: Tensor, linear: Tensor, gain: Tensor, states: Tensor, activated: Tensor, d_inputs: Tensor,
    cotangents: Tensor, wanted: list[bool],
) -> Iterator[Tensor]:  # fmt: skip
    """Give the gradients of W, P and Q: products over all time and the batch at once."""
    H, none = activated.shape[-1], start.new_empty(0)
    full = linear.shape[0] == start.shape[1]
    yield _outer(d_inputs, start, states) if wanted[0] else none
    if full or not wanted[1]:
        yield _outer(cotangents, start, states) if wanted[1] else none
    else:
        before = torch.cat([start[None], states[:-1]]).split(H, -1)
        yield torch.stack([_inner(a, b) for a in cotangents.split(H, -1) for b in before]).view(linear.shape)
    if gain.ndim == 2 or not wanted[2]:
        yield cotangents.flatten(0, 1).T @ activated.to(start.dtype).flatten(0, 1) if wanted[2] else none
    else:
        yield torch.stack([_inner(cotangent, activated) for cotangent in cotangents.split(H, -1)])


def _outer(left: Tensor, start: Tensor, states: Tensor) -> Tensor:
    """Sum the outer products with the state before, over time and batch: one large product, and the first step's."""
    left = left.to(start.dtype)
    return torch.addmm(left[0].T @ start, left[1:].flatten(0, 1).T, states[:-1].flatten(0, 1))


def _inner(left: Tensor, right: Tensor) -> Tensor:
    """Sum the products of the entries; in float64, because they cancel."""
    return (left * right).sum(dtype=torch.float64).to(left.dtype)


def _prepared(
    weight: Tensor, linear: Tensor, gain: Tensor, full: bool, precision: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give W, P, its diagonal and Q as the kernels load them; coefficients stay as they are."""
    exact = precision != "tf32"
    return (
        parts(weight, exact=exact),
        parts(linear, exact=exact) if full else linear.contiguous(),
        linear.diagonal().contiguous(),
        parts(gain, exact=exact) if gain.ndim == 2 else gain.contiguous(),
    )


def _grid(batch: int, cut: Plan) -> tuple[int]:
    return (triton.cdiv(batch, cut.rows) * cut.slices,)


def _options(
    H: int, cut: Plan, start: Tensor, linear: Tensor, gain: Tensor, activation: str, precision: str
) -> dict[str, Any]:
    options = {
        "K": start.shape[1] // H,
        "FULL_P": linear.shape[0] == start.shape[1],
        "FULL_Q": gain.ndim == 2,
        "CODE": ACTIVATIONS.index(activation),
        "EXACT": precision != "tf32",
        "BLOCK": cut.rows,
        "WIDTH": cut.width,
        "UNITS": cut.units,
        "SLICES": cut.slices,
        "AHEAD": AHEAD,
        "num_warps": 8 if cut.units >= 128 else 4,
    }
    return options | ({"launch_cooperative_grid": True} if start.is_cuda and cut.slices > 1 else {})


@no_type_check
@triton.jit
def _lines(H, N, AHEAD: tl.constexpr, BLOCK: tl.constexpr, UNITS: tl.constexpr, SLICES: tl.constexpr):
    """Give the offsets of the cache lines that a program reads in AHEAD steps, a multiple of N apart."""
    LINES: tl.constexpr = 1 if UNITS < 32 else UNITS // 32
    o_i = tl.arange(0, AHEAD * BLOCK * LINES)
    o_b = tl.program_id(0) // SLICES * BLOCK + o_i // LINES % BLOCK
    return (o_i // (LINES * BLOCK)) * N + o_b * H + tl.program_id(0) % SLICES * UNITS + 32 * (o_i % LINES)


@no_type_check
@triton.jit(do_not_specialize=["T", "B"])
def _forward(  # noqa: C901 (branches of the compiler, not of the program)
    z, start, weight, linear, diagonal, gain, bend, states, last, activated, passed, T, B, H,
    KEEP: tl.constexpr, K: tl.constexpr, FULL_P: tl.constexpr, FULL_Q: tl.constexpr, CODE: tl.constexpr,
    EXACT: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr, SLICES: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    o_b = tl.program_id(0) // SLICES * BLOCK + tl.arange(0, BLOCK)[None, :]
    o_k = tl.arange(0, WIDTH)[:, None]
    o_n = tl.program_id(0) % SLICES * UNITS + tl.arange(0, UNITS)[:, None]
    m_bk, m_bn = (o_b < B) & (o_k < H), (o_b < B) & (o_n < H)
    S = K * H
    N, NS = tl.cast(B, tl.int64) * H, tl.cast(B, tl.int64) * S
    b_w = matrix(weight, o_n, o_k, H, S, False)
    b_w_rest = matrix(weight + H * S, o_n, o_k, H, S, False) if EXACT else b_w
    if K == 2:
        b_wv = matrix(weight + H, o_n, o_k, H, S, False)
        b_wv_rest = matrix(weight + H * S + H, o_n, o_k, H, S, False) if EXACT else b_wv
        b_yy, b_yv, b_vy, b_vv = tl.load(linear), tl.load(linear + 1), tl.load(linear + 2), tl.load(linear + 3)
        b_qv = tl.load(gain + 1)
        b_v = tl.load(start + o_b * S + H + o_k, mask=m_bk, other=0.0)
        b_vn = tl.load(start + o_b * S + H + o_n, mask=m_bn, other=0.0)
    elif FULL_P:
        b_pm = matrix(linear, o_n, o_k, H, H, True)
        b_pm_rest = matrix(linear + H * H, o_n, o_k, H, H, True) if EXACT else b_pm
        b_p = tl.load(diagonal + o_n, mask=o_n < H, other=0.0)
    else:
        b_p = tl.load(linear)
    if FULL_Q:
        b_qm = matrix(gain, o_n, o_k, H, H, False)
        b_qm_rest = matrix(gain + H * H, o_n, o_k, H, H, False) if EXACT else b_qm
    else:
        b_q = tl.load(gain)
    b_bend = tl.load(bend + o_n, mask=o_n < H, other=0.0)
    b_y = tl.load(start + o_b * S + o_k, mask=m_bk, other=0.0)
    b_yn = tl.load(start + o_b * S + o_n, mask=m_bn, other=0.0)
    p_z, p_u, p_s, p_all = z + o_b * H + o_n, activated + o_b * H + o_n, states + o_b * S + o_n, states + o_b * S + o_k
    p_q, p_q_all = passed + o_b * H + o_n, passed + o_b * H + o_k
    p_line = z + _lines(H, N, AHEAD, BLOCK, UNITS, SLICES)
    b_z = tl.load(p_z, mask=m_bn, other=0.0).to(tl.float32)
    for t in range(T):
        if t % AHEAD == 0:
            prefetch_l2(p_line + (t + AHEAD) * N)
        b_a = product(b_w, b_w_rest, b_y, b_z, EXACT)
        if K == 2:
            b_a = product(b_wv, b_wv_rest, b_v, b_a, EXACT)
        if FULL_P:
            b_yn = product(b_pm, b_pm_rest, b_y, b_p * b_yn, EXACT)
        p_z += N
        b_z = tl.load(p_z, mask=(o_b < tl.where(t + 1 < T, B, 0)) & (o_n < H), other=0.0).to(tl.float32)
        b_u = activate(b_a, b_bend, CODE)
        if K == 2:
            b_new = b_yy * b_yn + b_yv * b_vn + b_q * b_u
            b_vn = b_vy * b_yn + b_vv * b_vn + b_qv * b_u
            b_yn = b_new
        elif FULL_Q:
            b_all = b_u
            if SLICES > 1:
                publish(p_q, b_u, m_bn)
                b_all = spin_load(p_q_all, m_bk)
            b_yn = product(b_qm, b_qm_rest, b_all, b_yn if FULL_P else b_p * b_yn, EXACT)
            p_q += N
            p_q_all += N
        else:
            b_yn = (b_yn if FULL_P else b_p * b_yn) + b_q * b_u
        if SLICES > 1:
            publish(p_s, b_yn, m_bn)
            if K == 2:
                publish(p_s + H, b_vn, m_bn)
                b_v = spin_load(p_all + H, m_bk)
            b_y = spin_load(p_all, m_bk)
        else:
            tl.store(p_s, b_yn, mask=m_bn)
            b_y = b_yn
            if K == 2:
                tl.store(p_s + H, b_vn, mask=m_bn)
                b_v = b_vn
        if KEEP:
            tl.store(p_u, b_u, mask=m_bn)
        p_s += NS
        p_all += NS
        p_u += N
    tl.store(last + o_b * S + o_n, b_yn, mask=m_bn)
    if K == 2:
        tl.store(last + o_b * S + H + o_n, b_vn, mask=m_bn)


@no_type_check
@triton.jit(do_not_specialize=["T", "B"])
def _backward(  # noqa: C901 (branches of the compiler, not of the program)
    weight, linear, diagonal, gain, activated, d_states, d_last, d_z, d_start, cotangents, passed, T, B, H, STRIDE,
    SUMMING: tl.constexpr, APART: tl.constexpr, K: tl.constexpr, FULL_P: tl.constexpr, FULL_Q: tl.constexpr,
    CODE: tl.constexpr, EXACT: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr,
    SLICES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    o_b = tl.program_id(0) // SLICES * BLOCK + tl.arange(0, BLOCK)[None, :]
    o_k = tl.arange(0, WIDTH)[:, None]
    o_n = tl.program_id(0) % SLICES * UNITS + tl.arange(0, UNITS)[:, None]
    m_bk, m_bn = (o_b < B) & (o_k < H), (o_b < B) & (o_n < H)
    S = K * H
    N, NS = tl.cast(B, tl.int64) * H, tl.cast(B, tl.int64) * S
    b_w = matrix(weight, o_n, o_k, H, H, False)
    b_w_rest = matrix(weight + H * S, o_n, o_k, H, H, False) if EXACT else b_w
    end, end_s = (T - 1) * N + o_b * H, (T - 1) * NS + o_b * S
    p_d = d_states + (T - 1) * tl.cast(STRIDE, tl.int64) + o_b * S + o_n
    b_bn = tl.load(d_last + o_b * S + o_n, mask=m_bn, other=0.0) + tl.load(p_d, mask=m_bn, other=0.0)
    if K == 2:
        b_wv = matrix(weight + H * H, o_n, o_k, H, H, False)
        b_wv_rest = matrix(weight + H * S + H * H, o_n, o_k, H, H, False) if EXACT else b_wv
        b_yy, b_yv, b_vy, b_vv = tl.load(linear), tl.load(linear + 1), tl.load(linear + 2), tl.load(linear + 3)
        b_qv = tl.load(gain + 1)
        b_cn = tl.load(d_last + o_b * S + H + o_n, mask=m_bn, other=0.0) + tl.load(p_d + H, mask=m_bn, other=0.0)
    elif FULL_P:
        b_pm = matrix(linear, o_n, o_k, H, H, True)
        b_pm_rest = matrix(linear + H * H, o_n, o_k, H, H, True) if EXACT else b_pm
        b_p = tl.load(diagonal + o_n, mask=o_n < H, other=0.0)
    else:
        b_p = tl.load(linear)
    if FULL_Q:
        b_qm = matrix(gain, o_n, o_k, H, H, False)
        b_qm_rest = matrix(gain + H * H, o_n, o_k, H, H, False) if EXACT else b_qm
    else:
        b_q = tl.load(gain)
    p_u, p_z = activated + end + o_n, d_z + end + o_n
    p_b, p_b_all = cotangents + end_s + o_n, cotangents + end_s + o_k
    p_q, p_q_all = passed + end + o_n, passed + end + o_k
    p_line_u = activated + (T - 1) * N + _lines(H, -N, AHEAD, BLOCK, UNITS, SLICES)
    p_line_d = d_states + (T - 1) * NS + _lines(S, -NS, AHEAD, BLOCK, UNITS, SLICES)
    b_u = tl.load(p_u, mask=m_bn, other=0.0).to(tl.float32)
    p_u -= N
    p_d -= STRIDE
    m_more = o_b < tl.where(T > 1, B, 0)
    b_u_more = tl.load(p_u, mask=m_more & (o_n < H), other=0.0).to(tl.float32)
    b_d = tl.load(p_d, mask=m_more & (o_n < H), other=0.0)
    if K == 2:
        b_e = tl.load(p_d + H, mask=m_more & (o_n < H), other=0.0)
    for t in range(T):
        if t % AHEAD == 0:
            prefetch_l2(p_line_u - (t + AHEAD) * N)
            if STRIDE != 0:
                prefetch_l2(p_line_d - (t + AHEAD) * NS)
        if SLICES > 1 and (FULL_P or FULL_Q):
            publish(p_b, b_bn, m_bn)
        elif SUMMING:
            tl.store(p_b, b_bn, mask=m_bn)
            if K == 2:
                tl.store(p_b + H, b_cn, mask=m_bn)
        if FULL_Q:
            b_b = spin_load(p_b_all, m_bk) if SLICES > 1 else b_bn
            b_z = product(b_qm, b_qm_rest, b_b, tl.zeros_like(b_bn), EXACT) * slope(b_u, CODE)
        elif K == 2:
            b_z = (b_q * b_bn + b_qv * b_cn) * slope(b_u, CODE)
        else:
            b_z = b_q * b_bn * slope(b_u, CODE)
        if SLICES > 1:
            publish(p_q, b_z, m_bn)
            if FULL_P and not FULL_Q:
                b_b = spin_load(p_b_all, m_bk)
            b_g = spin_load(p_q_all, m_bk)
        else:
            b_b, b_g = b_bn, b_z
        if SLICES == 1 or APART:
            tl.store(p_z, b_z, mask=m_bn)
        if FULL_P:
            b_bn = product(b_pm, b_pm_rest, b_b, b_p * b_bn, EXACT)
        if K == 2:
            b_new = product(b_w, b_w_rest, b_g, b_yy * b_bn + b_vy * b_cn, EXACT)
            b_cn = product(b_wv, b_wv_rest, b_g, b_yv * b_bn + b_vv * b_cn, EXACT)
            b_bn = b_new
            b_cn += b_e
        else:
            b_bn = product(b_w, b_w_rest, b_g, b_bn if FULL_P else b_p * b_bn, EXACT)
        b_bn += b_d
        b_u = b_u_more
        p_u -= N
        p_d -= STRIDE
        m_more = o_b < tl.where(t + 2 < T, B, 0)
        b_u_more = tl.load(p_u, mask=m_more & (o_n < H), other=0.0).to(tl.float32)
        b_d = tl.load(p_d, mask=m_more & (o_n < H), other=0.0)
        if K == 2:
            b_e = tl.load(p_d + H, mask=m_more & (o_n < H), other=0.0)
        p_z -= N
        p_b -= NS
        p_b_all -= NS
        p_q -= N
        p_q_all -= N
    tl.store(d_start + o_b * S + o_n, b_bn, mask=m_bn)
    if K == 2:
        tl.store(d_start + o_b * S + H + o_n, b_cn, mask=m_bn)

"""The oscillator bank on the GPU: Triton, one warp a block of units and sequence, states and counts in registers."""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.ops._gpu.columns import on_device
from sostenuto.ops.oscillator_bank.bank import LANES, PARTS, THRESHOLDS, OscillatorBank, in_blocks
from sostenuto.ops.oscillator_bank.reference import slopes


def pool(
    values: Float[Tensor, "S C"], borders: Int[Tensor, " N1"], spans: Float[Tensor, " S"] | None, bank: OscillatorBank
) -> Float[Tensor, "N K U"]:
    """Give the shares of time above thresholds, for all sequences in one launch."""
    device, blocks, count = values.device, len(bank.kind), len(borders) - 1
    edges = borders.to(device)
    starts = torch.repeat_interleave(edges[:-1], edges.diff(), output_size=len(values))
    if spans is None:
        distinct, index = torch.ones(1, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    else:
        distinct, index = torch.unique(spans.to(device).float(), return_inverse=True)
    drive = torch.stack([values.float(), *slopes(values.float(), distinct[index].expand(len(values)), starts)])
    table, constants, mix = (
        torch.from_numpy(in_blocks(part)).to(device)
        for part in (
            bank.coefficients(distinct.cpu()),
            torch.cat([bank.readout(), bank.thresholds.double()], 1)[None],
            bank.mix.double()[None],
        )
    )
    out = torch.empty(count, THRESHOLDS, blocks * LANES, device=device)
    channels, kind, order = (part.to(device).int().contiguous() for part in (bank.channels, bank.kind, bank.order))
    sizes: Any = {"K": THRESHOLDS, "L": LANES, "P": PARTS, "WIDTH": channels.shape[1], "num_warps": 1}
    with on_device(values):
        _pool[(count * blocks,)](
            drive, edges, index.int(), distinct, table, constants, mix, channels, kind, order, out,
            len(values), values.shape[1], blocks, REGULAR=len(distinct) == 1, **sizes,
        )  # fmt: skip
    return out[:, :, : bank.n_units]


@no_type_check
@triton.jit(do_not_specialize=["S", "C", "blocks"])
def _pool(
    drive, borders, index, spans, table, constants, mix, channels, kind, order, out, S, C, blocks,
    K: tl.constexpr, L: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, REGULAR: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    n, block = program // blocks, program % blocks
    low, high = tl.load(borders + n).to(tl.int64), tl.load(borders + n + 1).to(tl.int64)
    o_l, o_k = tl.arange(0, L), tl.arange(0, K)
    p_c = constants + block * (P + K) * L
    b_p, b_q, b_g = tl.load(p_c + o_l), tl.load(p_c + L + o_l), tl.load(p_c + 2 * L + o_l)
    b_threshold = tl.load(p_c + (P + o_k[:, None]) * L + o_l[None, :])
    is_single, is_cascade = tl.load(kind + block) == 0, tl.load(kind + block) == 1
    rows = drive + tl.load(order + block).to(tl.int64) * S * C
    p_t = table + block * 8 * L + o_l
    a0, a1, a2, a3 = tl.load(p_t), tl.load(p_t + L), tl.load(p_t + 2 * L), tl.load(p_t + 3 * L)
    a4, a5, a6, a7 = tl.load(p_t + 4 * L), tl.load(p_t + 5 * L), tl.load(p_t + 6 * L), tl.load(p_t + 7 * L)
    span = tl.load(spans)
    zero = tl.zeros([L], tl.float32)
    sr, si, vr, vi = zero, zero, zero, zero
    above = tl.zeros([K, L], tl.float32)
    total = span * 0.0
    for t in range(low, high):
        if not REGULAR:
            place = tl.load(index + t)
            span = tl.load(spans + place)
            p_j = p_t + place.to(tl.int64) * blocks * 8 * L
            a0, a1, a2, a3 = tl.load(p_j), tl.load(p_j + L), tl.load(p_j + 2 * L), tl.load(p_j + 3 * L)
            a4, a5, a6, a7 = tl.load(p_j + 4 * L), tl.load(p_j + 5 * L), tl.load(p_j + 6 * L), tl.load(p_j + 7 * L)
        u = zero
        for c in tl.static_range(WIDTH):
            value = tl.load(rows + t * C + tl.load(channels + block * WIDTH + c))
            u += tl.load(mix + (block * WIDTH + c) * L + o_l) * value
        real = a0 * sr - a1 * si + a2 * u
        si = a1 * sr + a0 * si + a3 * u
        sr = real
        size = tl.sqrt(sr * sr + si * si) * b_g
        er, ei = tl.where(is_cascade, sr, size), tl.where(is_cascade, si, 0.0)
        real = a4 * vr - a5 * vi + a6 * er - a7 * ei
        vi = a5 * vr + a4 * vi + a7 * er + a6 * ei
        vr = real
        y = tl.where(is_single, b_p * sr + b_q * si, b_p * vr + b_q * vi)
        above += tl.where(y[None, :] > b_threshold, span, 0.0)
        total += span
    o_out = n.to(tl.int64) * K * blocks * L + o_k[:, None] * blocks * L + block * L + o_l[None, :]
    tl.store(out + o_out, above / total)

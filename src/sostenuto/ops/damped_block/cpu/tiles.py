"""The block around damped oscillators on the CPU: Numba, all parts of the block in tiles that stay in the cache.

A tile is some steps of a group of sequences, one sequence after the other. Forward it is normalized, multiplied by V,
scanned, mixed, multiplied by the gate's matrix and added; backward the same in turn, where states are scanned again
from the one before the tile. Products run row by row, everything else column by column (`column_loop`): coefficients,
states and sums stay in registers. What is saved lies by group, then by tile. Rows are filled up to whole vectors; what
fills them takes part in nothing.
"""

import math
from typing import Any, no_type_check

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.column_loop import column_loop, row_sums
from sostenuto.ops._cpu.columns import array, copy_row, empty
from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.panel_product import ROWS, multiply, multiply_rows, pack, padded
from sostenuto.ops._cpu.prefetch import add_prefetch, new_prefetch_list, worth_prefetching
from sostenuto.ops._cpu.threads import run_blocks
from sostenuto.ops._cpu.vector_loop import address
from sostenuto.ops._cpu.workspace import new
from sostenuto.ops.damped.cpu import held, held_back
from sostenuto.ops.damped_block.reference import BlockWeights

TILE = 64
"""Rows of a tile, steps times sequences."""
SEQUENCES = 4
"""Sequences of a group, where there are steps enough to fill a tile."""
EPSILON = 1e-5
"""Of the norm, as `torch.nn.LayerNorm`'s."""
_BEND, _SLOPE = 0.044715, math.sqrt(2 / math.pi)

# Rows of the vectors that kernels read, in one array. C is the read-out times the scale. With time spans, decays,
# frequencies and scales lie in the place of the coefficients. The last two are 1 and 0.
NORM, NORM_BIAS, ENTER_BIAS, A_RE, A_IM, B_RE, B_IM, C_RE, C_IM, DIRECT, VALUE_BIAS, GATE_BIAS, ONE, ZERO = range(14)
# Rows of the sums over steps and sequences; the last one is for what counts nowhere.
D_NORM, D_NORM_BIAS, D_ENTER, D_A_RE, D_A_IM, D_B_RE, D_B_IM, MIX_RE, MIX_IM, D_DIRECT, D_VALUE, D_GATE, NONE = range(
    13
)
SUMS = 13


def forward(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    weights: BlockWeights,
    lengths: Int[Tensor, " B"] | None,
    keep: bool = True,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Give the outputs, the last state, and if it is to be kept what the backward pass reads.

    That is the sequences of a group, the vectors, the norms' moments, drives and gates of each row, and the state
    before each tile.
    """
    (T, B, H), dtype = inputs.shape, start.dtype
    wide, (group, block) = padded(H, dtype), _shares(T, B)
    rows = T * B if keep else 0
    outputs, last = new((T, B, H), dtype), torch.empty((B, 2 * H), dtype=dtype)
    kept = tuple(new((rows, width), dtype) for width in (2, wide, padded(2 * H, dtype)))
    states = new((B if keep else 0, -(-T // _steps(group)), 2 * wide), dtype)
    vectors = vectors_of(weights, wide, dtype)
    read = (
        array(inputs, dtype), array(start, dtype), vectors.numpy(), _spans(weights, dtype),
        pack(weights.enter.mT), pack(weights.gate.mT), _ends(lengths, T, B),
    )  # fmt: skip
    written = (part.numpy() for part in (outputs, last, *kept, states))
    every = (*read, *written, group)
    kernel: Any = _forward
    run_blocks(lambda first, stop: kernel(*every, first, stop), B, block)
    return outputs, last, (torch.tensor(group), vectors, *kept, states)


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
    (T, B, H), dtype = inputs.shape, start.dtype
    wide, group, spans = padded(H, dtype), int(kept[0]), weights.spans
    block = group * -(-B // (group * max(torch.get_num_threads(), 1)))
    blocks = -(-B // block)
    d_inputs, d_start = new((T, B, H), dtype), torch.empty((B, 2 * H), dtype=dtype)
    d_enter, d_gate = (torch.empty((blocks, _fours(rows), wide), dtype=dtype) for rows in (H, 2 * H))
    sums = torch.zeros((blocks, SUMS, wide), dtype=torch.float64)
    d_spans = torch.empty((T, B) if spans is not None and spans.requires_grad else (0, 0), dtype=dtype)
    read = (
        array(inputs, dtype), _spans(weights, dtype), pack(weights.enter), pack(weights.gate),
        _ends(lengths, T, B), *(part.numpy() for part in kept[1:]), array(d_outputs, dtype), array(d_last, dtype),
    )  # fmt: skip
    written = (part.numpy() for part in (d_inputs, d_start, d_enter, d_gate, sums, d_spans))
    every = (*read, *written, group, block)
    kernel: Any = _backward
    run_blocks(lambda first, stop: kernel(*every, first, stop), B, block)
    total = _added(sums)[:, :H].to(dtype)
    mix, scale, readout = total[MIX_RE : MIX_IM + 1], weights.scale, weights.readout
    d_power, d_gain = (total[row : row + 2].view(2, 1, 1, H) for row in (D_A_RE, D_B_RE))
    return (
        d_inputs,
        d_start,
        BlockWeights(
            d_power, d_gain[: len(weights.gain)], scale * mix, total[D_NORM], total[D_NORM_BIAS],
            _added(d_enter)[:H, :H], total[D_ENTER], (readout * mix).sum(0), total[D_DIRECT],
            _added(d_gate)[: 2 * H, :H], total[D_VALUE : D_GATE + 1].flatten(), d_spans if len(d_spans) > 0 else None,
        ),
    )  # fmt: skip


def _shares(T: int, B: int) -> tuple[int, int]:
    """Choose the sequences of a group, and those of a thread, which are whole groups."""
    threads = max(torch.get_num_threads(), 1)
    most = min(-(-B // threads), max(TILE // T, SEQUENCES))
    group = -(-B // -(-B // most))
    return group, group * -(-B // (group * threads))


def _fours(rows: int) -> int:
    """Round up to whole blocks of a product."""
    return -(-rows // ROWS) * ROWS


def _added(parts: Float[Tensor, "blocks _ _"]) -> Tensor:
    return parts[0] if len(parts) == 1 else parts.sum(0)


def _ends(lengths: Tensor | None, T: int, B: int) -> Any:
    return np.full(B, T) if lengths is None else lengths.detach().long().numpy()


def _spans(weights: BlockWeights, dtype: torch.dtype) -> Any:
    """Give the time spans, or None: then kernels are compiled without them."""
    return None if weights.spans is None else array(weights.spans, dtype)


def vectors_of(weights: BlockWeights, wide: int, dtype: torch.dtype) -> Tensor:
    """Give all vectors as rows of one array; an oscillator at rest fills the coefficients up, as 0 / 0 is no number."""
    H = len(weights.norm)
    tensor = torch.zeros((ZERO + 1, wide), dtype=dtype)
    vectors = tensor.numpy()
    if weights.spans is not None:
        vectors[A_RE : B_RE + 1] = 1
    vectors[NORM, :H], vectors[NORM_BIAS, :H] = array(weights.norm, dtype), array(weights.norm_bias, dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # weights that diverge are told of by the outputs, as in torch
        vectors[C_RE : C_IM + 1, :H] = array(weights.readout, dtype) * array(weights.scale, dtype)
    vectors[A_RE : A_IM + 1, :H] = array(weights.power, dtype).reshape(2, H)
    vectors[B_RE : B_RE + len(weights.gain), :H] = array(weights.gain, dtype).reshape(-1, H)
    vectors[DIRECT, :H], vectors[ONE] = array(weights.direct, dtype), 1
    if weights.enter_bias is not None:
        vectors[ENTER_BIAS, :H] = array(weights.enter_bias, dtype)
    if weights.gate_bias is not None:
        vectors[VALUE_BIAS : GATE_BIAS + 1, :H] = array(weights.gate_bias, dtype).reshape(2, H)
    return tensor


# Formulas of one number: what all rows share, what a row hands on to the next, and what each row has.


@row_sums(1)
def _sum(_, narrow, __):
    return narrow


@row_sums(1)
def _square_sum(_, narrow, single):
    (x,), (mean,) = narrow, single
    return ((x - mean) * (x - mean),)


@row_sums(2)
def _norm_sums(shared, narrow, single):
    (d_normed, weight), (x,), (mean, inverse) = shared, narrow, single
    d = d_normed * weight
    return d, d * ((x - mean) * inverse)


@row_sums(1)
def _sum_inside(shared, *_):
    return shared


@column_loop(narrow_read=1)
def _normalize(shared, _, read, single):
    (weight, bias), (x,), (mean, inverse) = shared, read, single
    return (), ((x - mean) * inverse * weight + bias,)


@column_loop(narrow_read=2, narrow_written=1)
def _normalize_back(shared, carried, read, single):
    (weight,), (sum_weight, sum_bias), (x, around, d_normed) = shared, carried, read
    mean, inverse, own, part = single
    normal = (x - mean) * inverse
    d = around + inverse * (d_normed * weight - own - normal * part)
    return (sum_weight + d_normed * normal, sum_bias + d_normed), (d,)


def _gelu(a):
    """Give GELU in its tanh form, and its slope."""
    square = a * a
    bent, slope = (a * (square * (_BEND * _SLOPE) + _SLOPE)).tanh()
    half = a * 0.5
    return half + half * bent, 0.5 + 0.5 * bent + half * slope * (square * (3 * _BEND * _SLOPE) + _SLOPE)


def _advance(state, coefficients, drive, bias):
    (real, imaginary), (a_re, a_im, b_re, b_im), u = state, coefficients, drive + bias
    return a_re * real - a_im * imaginary + b_re * u, a_im * real + a_re * imaginary + b_im * u


def _advance_back(d_state, state, coefficients, drive, bias):
    """Give the gradients of the state, of the drive, and of the coefficients."""
    (d_re, d_im), (real, imaginary), (a_re, a_im, b_re, b_im), u = d_state, state, coefficients, drive + bias
    before = a_re * d_re + a_im * d_im, a_re * d_im - a_im * d_re
    power = d_re * real + d_im * imaginary, d_im * real - d_re * imaginary
    return before, b_re * d_re + b_im * d_im, (*power, d_re * u, d_im * u)


def _mix(mixing, state, normed):
    c_re, c_im, direct = mixing
    return _gelu(c_re * state[0] + c_im * state[1] + direct * normed)


def _mix_back(mixing, d_state, d, state, normed, sums):
    """Give the gradients of the state and of the input, and the sums for those of the read-out and of q."""
    (c_re, c_im, direct), (d_re, d_im), (real, imaginary) = mixing, d_state, state
    sums = sums[0] + d * real, sums[1] + d * imaginary, sums[2] + d * normed
    return (d_re + d * c_re, d_im + d * c_im), d * direct, sums


@column_loop()
def scan(shared, state, read, _):
    """Advance the state a step of equal length, and mix."""
    (*coefficients, bias), mixing, (drive, normed) = shared[:5], shared[5:], read
    state = _advance(state, coefficients, drive, bias)
    return state, _mix(mixing, state, normed)[:1]


@column_loop()
def _scan_over(shared, state, read, single):
    (*rates, bias), mixing, (drive, normed) = shared[:4], shared[4:], read
    state = _advance(state, held(*rates, *single), drive, bias)
    return state, _mix(mixing, state, normed)[:1]


@column_loop()
def _scan_again(shared, state, read, _):
    (*coefficients, bias), mixing, (drive, normed) = shared[:5], shared[5:], read
    state = _advance(state, coefficients, drive, bias)
    return state, (*_mix(mixing, state, normed), *state)


@column_loop()
def _scan_over_again(shared, state, read, single):
    (*rates, bias), mixing, (drive, normed) = shared[:4], shared[4:], read
    state = _advance(state, held(*rates, *single), drive, bias)
    return state, (*_mix(mixing, state, normed), *state)


@column_loop()
def _scan_back(shared, carried, read, _):
    (*coefficients, bias), mixing, (d_mixed, slope, normed, drive, *states) = shared[:5], shared[5:], read
    d_state, normed_back, mixed = _mix_back(mixing, carried[:2], d_mixed * slope, states[:2], normed, carried[2:5])
    d_state, d_drive, found = _advance_back(d_state, states[2:], coefficients, drive, bias)
    sums = [total + part for total, part in zip(carried[5:], (*found, d_drive), strict=True)]
    return (*d_state, *mixed, *sums), (normed_back, d_drive)


@column_loop()
def _scan_over_back(shared, carried, read, single):
    (*rates, bias), mixing, (d_mixed, slope, normed, drive, *states) = shared[:4], shared[4:], read
    d_state, normed_back, mixed = _mix_back(mixing, carried[:2], d_mixed * slope, states[:2], normed, carried[2:5])
    coefficients = held(*rates, *single)
    d_state, d_drive, found = _advance_back(d_state, states[2:], coefficients, drive, bias)
    d_span, *sums = held_back(*rates, *single, *coefficients, *found, *carried[5:8])  # pyright: ignore[reportCallIssue]
    return (*d_state, *mixed, *sums, carried[8] + d_drive), (normed_back, d_drive, d_span)


def _logistic(a):
    bent, slope = (a * 0.5).tanh()
    return 0.5 + 0.5 * bent, 0.25 * slope


@column_loop(narrow_read=3, narrow_written=1)
def leave(shared, _, read, __):
    """Add what passes the gate to what the block read."""
    (value_bias, gate_bias), (x, value, gate) = shared, read
    return (), (x + (value + value_bias) * _logistic(gate + gate_bias)[0],)


@column_loop(narrow_read=3, narrow_written=2)
def _leave_back(shared, carried, read, _):
    (value_bias, gate_bias), (d_output, value, gate) = shared, read
    open_, slope = _logistic(gate + gate_bias)
    d_value, d_gate = d_output * open_, d_output * (value + value_bias) * slope
    return (carried[0] + d_value, carried[1] + d_gate), (d_value, d_gate)


@no_type_check
@njit(**OPTIONS)
def _zeros(like, rows, columns, place):
    """Give rows of zeros at a place of a page; what fills them up to whole vectors stays zero."""
    memory = empty(like, rows, columns, place)
    memory[:] = 0
    return memory


@no_type_check
@njit(**OPTIONS)
def _steps(group):
    """Give the steps of a tile, if it can be so that a product has no rows left over."""
    steps = max(TILE // group, 1)
    return steps // ROWS * ROWS if steps >= ROWS else steps


@no_type_check
@njit(**OPTIONS)
def _mixing(v, width, runs):
    """Give the addresses of the read-out and of q; a state that no longer runs is not read."""
    if runs:
        return v + C_RE * width, v + C_IM * width, v + DIRECT * width
    return v + ZERO * width, v + ZERO * width, v + DIRECT * width


@no_type_check
@njit(**OPTIONS)
def equal_steps(v, width, runs):
    """Give the addresses of what a scan of equal steps shares; a state that no longer runs stays as it is."""
    a, one, zero = v + A_RE * width, v + ONE * width, v + ZERO * width
    if runs:
        return a, a + width, a + 2 * width, a + 3 * width, v + ENTER_BIAS * width, *_mixing(v, width, True)
    return one, zero, zero, zero, zero, *_mixing(v, width, False)


@no_type_check
@njit(**OPTIONS)
def _unequal_steps(v, width):
    """Give the addresses of what a scan over time spans shares."""
    a = v + A_RE * width
    return a, a + width, a + 2 * width, v + ENTER_BIAS * width, *_mixing(v, width, True)


@no_type_check
@procedure
def enter_tile(x, vectors, stats, at, fresh, begin, count, low, n, normed):
    """Normalize the rows of a tile; ``fresh`` ones have no moments yet."""
    (_, B, H), size, zero, one = x.shape, x.itemsize, x.dtype.type(0.0), x.dtype.type(1.0)
    width, share, v = normed.shape[1] * size, one / x.dtype.type(H), address(vectors)
    for r in range(count):
        source, row = address(x) + (low * B + begin + r) * H * size, at + r * n
        if fresh:
            for s in range(n):
                read = (source + s * B * H * size,)
                mean = _sum(zero, width, H, (), read, ())[0] * share
                square = _square_sum(zero, width, H, (), read, (mean,))[0] * share
                stats[row + s, 0], stats[row + s, 1] = mean, one / math.sqrt(square + x.dtype.type(EPSILON))
        moments = address(stats) + 2 * row * size
        _normalize(
            zero, width, H, n, (v + NORM * width, v + NORM_BIAS * width), (), ((source,), (B * H * size,)),
            ((moments, moments + size), (2 * size, 2 * size)), ((address(normed) + r * n * width,), (width,)),
        )  # fmt: skip


@no_type_check
@procedure
def _scan_tile(vectors, spans, ends, begin, count, low, n, drive, normed, state, mixed):
    """Advance the states of a tile, and mix."""
    zero, size, (wide, B) = vectors.dtype.type(0.0), vectors.itemsize, (vectors.shape[1], len(ends))
    width, v = wide * size, address(vectors)
    for r in range(count):
        running, row, h = min(max(ends[begin + r] - low, 0), n), r * n, address(state) + 2 * r * width
        for runs in (True, False):
            rows, shift = running if runs else n - running, row * width
            read = (drive + shift, address(normed) + shift), (width, width)
            written = (address(mixed) + shift,), (width,)
            if spans is not None and runs:
                span = (address(spans) + (low * B + begin + r) * size,), (B * size,)
                _scan_over(zero, width, wide, rows, _unequal_steps(v, width), (h, h + width), read, span, written)
            if spans is None or not runs:
                scan(zero, width, wide, rows, equal_steps(v, width, runs), (h, h + width), read, ((), ()), written)
            row += rows


@no_type_check
@procedure
def _scan_tile_again(vectors, spans, ends, begin, count, low, n, drive, normed, states, mixed, slope):
    """Compute a tile's states anew from those before it, what the gate's matrix was multiplied by, and its slope."""
    zero, size, (wide, B) = vectors.dtype.type(0.0), vectors.itemsize, (vectors.shape[1], len(ends))
    width, v = wide * size, address(vectors)
    for r in range(count):
        running, row, state = min(max(ends[begin + r] - low, 0), n), r * n, address(states[r])
        h = address(states[r, -1])
        copy_row(states[r, -1], states[r, 0])
        for runs in (True, False):
            rows, shift = running if runs else n - running, row * width
            now = state + (1 + row - r * n) * 2 * width
            read = (drive + shift, address(normed) + shift), (width, width)
            written = (
                (address(mixed) + shift, address(slope) + shift, now, now + width),
                (width, width, 2 * width, 2 * width),
            )
            if spans is not None and runs:
                over, span = (
                    _unequal_steps(v, width),
                    ((address(spans) + (low * B + begin + r) * size,), (B * size,)),
                )
                _scan_over_again(zero, width, wide, rows, over, (h, h + width), read, span, written)
            if spans is None or not runs:
                equal = equal_steps(v, width, runs)
                _scan_again(zero, width, wide, rows, equal, (h, h + width), read, ((), ()), written)
            row += rows


@no_type_check
@njit(**OPTIONS)
def _forward(
    x, start, vectors, spans, enter, gate, ends, outputs, last, stats, drives, gates, states, group, first, stop
):
    (T, B, H), wide, size, zero = x.shape, vectors.shape[1], x.itemsize, x.dtype.type(0.0)
    keep, steps, width, step = len(drives) > 0, _steps(group), wide * size, B * H * size
    both, v, m = gates.shape[1] * size, address(vectors), steps * group
    normed, mixed, state = _zeros(x, m, wide, 1), _zeros(x, m, wide, 2), _zeros(x, group, 2 * wide, 3)
    own = 0 if keep else m  # what is not kept has room for a tile
    own_drive, own_gates, own_stats = empty(x, own, wide, 4), empty(x, own, gates.shape[1], 5), empty(x, own, 2, 6)
    for begin in range(first, stop, group):
        count = min(group, stop - begin)
        for r in range(count):
            copy_row(state[r], start[begin + r, :H])
            copy_row(state[r, wide:], start[begin + r, H:])
        for low in range(0, T, steps):
            n = min(steps, T - low)
            at, rows = begin * T + low * count, n * count
            drive, opened = address(own_drive), address(own_gates)
            if keep:
                drive, opened = address(drives) + at * width, address(gates) + at * both
                for r in range(count):
                    copy_row(states[begin + r, low // steps], state[r])
            enter_tile(x, vectors, stats if keep else own_stats, at if keep else 0, True, begin, count, low, n, normed)
            multiply(zero, address(normed), width, size, rows, address(enter), H, drive, width, H, False, None)
            _scan_tile(vectors, spans, ends, begin, count, low, n, drive, normed, state, mixed)
            multiply(zero, address(mixed), width, size, rows, address(gate), H, opened, both, H, False, None)
            for r in range(count):
                o, place = opened + r * n * both, (low * B + begin + r) * H * size
                leave(
                    zero, width, H, n, (v + VALUE_BIAS * width, v + GATE_BIAS * width), (),
                    ((address(x) + place, o, o + H * size), (step, both, both)), ((), ()),
                    ((address(outputs) + place,), (step,)),
                )  # fmt: skip
        for r in range(count):
            copy_row(last[begin + r, :H], state[r, :H])
            copy_row(last[begin + r, H:], state[r, wide : wide + H])


@no_type_check
@procedure
def _leave_back_tile(vectors, count, n, H, opened, arriving, step, d_gates, partial):
    """Give the gradient of a tile's gates."""
    size, zero, width = vectors.itemsize, vectors.dtype.type(0.0), vectors.shape[1] * vectors.itemsize
    both, v, p = d_gates.shape[1] * size, address(vectors), address(partial)
    for r in range(count):
        o, d = opened + r * n * both, address(d_gates) + r * n * both
        _leave_back(
            zero, width, H, n, (v + VALUE_BIAS * width, v + GATE_BIAS * width),
            (p + D_VALUE * width, p + D_GATE * width),
            ((arriving + r * H * size, o, o + H * size), (step, both, both)), ((), ()),
            ((d, d + H * size), (both, both)),
        )  # fmt: skip


@no_type_check
@procedure
def _scan_back_tile(
    vectors, spans, ends, states, begin, count, low, n, H, drive, d_mixed, slope, normed, d_state, d_normed, d_drive,
    each_span, d_spans, partial,
):  # fmt: skip
    """Give the gradients of a tile's drives, of what they were made of, and of the states before; backward in time."""
    size, zero, B = normed.itemsize, normed.dtype.type(0.0), len(ends)
    width, v, p = normed.shape[1] * size, address(vectors), address(partial)
    mix, power, none = p + MIX_RE * width, p + D_A_RE * width, p + NONE * width
    direct, bias = p + D_DIRECT * width, p + D_ENTER * width
    for r in range(count):
        running, stop = min(max(ends[begin + r] - low, 0), n), n
        h = address(d_state) + 2 * r * width
        for runs in (False, True):
            rows = running if runs else n - running
            row = r * n + stop - 1
            now, shift = address(states[r]) + stop * 2 * width, row * width
            read = (
                (address(d_mixed) + shift, address(slope) + shift, address(normed) + shift, drive + shift,
                 now, now + width, now - 2 * width, now - width),
                (-width, -width, -width, -width, -2 * width, -2 * width, -2 * width, -2 * width),
            )  # fmt: skip
            written = (address(d_normed) + shift, address(d_drive) + shift), (-width, -width)
            if spans is not None and runs:
                span = ((address(spans) + ((low + stop - 1) * B + begin + r) * size,), (-B * size,))
                _scan_over_back(
                    zero, width, H, rows, _unequal_steps(v, width),
                    (h, h + width, mix, mix + width, direct, power, power + width, power + 2 * width, bias),
                    read, span, ((*written[0], address(each_span) + shift), (-width, -width, -width)),
                )  # fmt: skip
            if spans is None or not runs:
                sums = mix, mix + width, direct, power, power + width, power + 2 * width, power + 3 * width, bias
                if not runs:
                    sums = none, none, direct, none, none, none, none, none
                _scan_back(
                    zero, width, H, rows, equal_steps(v, width, runs), (h, h + width, *sums), read, ((), ()), written
                )
            stop -= rows
        if spans is not None:
            for s in range(n if len(d_spans) > 0 else 0):
                row = (address(each_span) + (r * n + s) * width,)
                d_spans[low + s, begin + r] = _sum_inside(zero, width, H, row, (), ())[0] if s < running else zero


@no_type_check
@procedure
def _enter_back(x, vectors, stats, at, begin, count, low, n, arriving, step, d_normed, means, d_x, partial):
    """Give the gradient of a tile's inputs: through the norm, and around it."""
    (_, B, H), size, zero, one = x.shape, x.itemsize, x.dtype.type(0.0), x.dtype.type(1.0)
    width, share, v, p = d_normed.shape[1] * size, one / x.dtype.type(H), address(vectors), address(partial)
    for r in range(count):
        place, d = (low * B + begin + r) * H * size, address(d_normed) + r * n * width
        for s in range(n):
            row = at + r * n + s
            sums = _norm_sums(
                zero, width, H, (d + s * width, v + NORM * width), (address(x) + place + s * B * H * size,),
                (stats[row, 0], stats[row, 1]),
            )  # fmt: skip
            means[s, 0], means[s, 1] = sums[0] * share, sums[1] * share
        moments, m = address(stats) + 2 * (at + r * n) * size, address(means)
        _normalize_back(
            zero, width, H, n, (v + NORM * width,), (p + D_NORM * width, p + D_NORM_BIAS * width),
            ((address(x) + place, arriving + r * H * size, d), (B * H * size, step, width)),
            ((moments, moments + size, m, m + size), (2 * size, 2 * size, 2 * size, 2 * size)),
            ((address(d_x) + place,), (B * H * size,)),
        )  # fmt: skip


@no_type_check
@procedure
def _ask_ahead(asked, x, stats, drives, gates, d_outputs, d_x, group, begin, count, low, n):
    """List what the tile before reads, or the last one of the next group, and where this one writes."""
    (T, B, H), size, steps = x.shape, x.itemsize, _steps(group)
    line, step = H * size, B * H * size
    add_prefetch(asked, 0, address(d_x) + low * step + begin * line, step, count * line, n)
    if low > 0:
        low, n = low - steps, steps
    else:
        begin, low = begin + count, (T - 1) // steps * steps
        n, count = T - low, min(group, B - begin)
    at, rows, place = begin * T + low * count, n * count, low * step + begin * line
    wide, both = drives.shape[1] * size, gates.shape[1] * size
    add_prefetch(asked, 1, address(gates) + at * both, 0, rows * both, 1)
    add_prefetch(asked, 2, address(x) + place, step, count * line, n)
    if len(d_outputs) > 1:
        add_prefetch(asked, 3, address(d_outputs) + place, step, count * line, n)
    add_prefetch(asked, 4, address(drives) + at * wide, 0, rows * wide, 1)
    add_prefetch(asked, 5, address(stats) + at * 2 * size, 0, rows * 2 * size, 1)


@no_type_check
@njit(**OPTIONS)
def _backward(
    x, spans, enter, gate, ends, vectors, stats, drives, gates, states, d_outputs, d_last,
    d_x, d_start, d_enter, d_gate, sums, d_spans, group, block, first, stop,
):  # fmt: skip
    (T, B, H), wide, size, zero = x.shape, vectors.shape[1], x.itemsize, x.dtype.type(0.0)
    steps, width, both, m = _steps(group), wide * size, gates.shape[1] * size, _steps(group) * group
    step = B * H * size if len(d_outputs) > 1 else 0
    normed, mixed, slope = _zeros(x, m, wide, 1), _zeros(x, m, wide, 2), _zeros(x, m, wide, 3)
    d_gates, d_mixed, d_drive = _zeros(x, m, gates.shape[1], 4), _zeros(x, m, wide, 5), _zeros(x, m, wide, 6)
    d_normed, d_state, means = _zeros(x, m, wide, 7), _zeros(x, group, 2 * wide, 8), empty(x, steps, 2, 9)
    again = _zeros(x, group * (steps + 2), 2 * wide, 12).reshape((group, steps + 2, 2 * wide))
    each_span = _zeros(x, m if spans is not None else 0, wide, 10)
    partial, total = _zeros(x, SUMS, wide, 11), sums[first // block]
    own_enter, own_gate = d_enter[first // block], d_gate[first // block]
    asked = worth_prefetching(new_prefetch_list(6), T * B * both, 2 * H)
    for begin in range(first, stop, group):
        count = min(group, stop - begin)
        for r in range(count):
            copy_row(d_state[r], d_last[begin + r, :H])
            copy_row(d_state[r, wide:], d_last[begin + r, H:])
        for low in range((T - 1) // steps * steps, -1, -steps):
            n, more = min(steps, T - low), begin > first or low + steps < T
            at, rows = begin * T + low * count, n * count
            drive, opened = address(drives) + at * width, address(gates) + at * both
            arriving = address(d_outputs) + low * step + begin * H * size
            enter_tile(x, vectors, stats, at, False, begin, count, low, n, normed)
            _ask_ahead(asked, x, stats, drives, gates, d_outputs, d_x, group, begin, count, low, n)
            for r in range(count):
                copy_row(again[r, 0], states[begin + r, low // steps])
            _scan_tile_again(vectors, spans, ends, begin, count, low, n, drive, normed, again, mixed, slope)
            _leave_back_tile(vectors, count, n, H, opened, arriving, step, d_gates, partial)
            multiply_rows(
                zero, address(d_gates), size, both, len(own_gate), address(mixed), width, address(own_gate), width,
                rows, more, asked,
            )  # fmt: skip
            multiply(
                zero, address(d_gates), both, size, rows, address(gate), 2 * H, address(d_mixed), width, 2 * H, False,
                asked,
            )  # fmt: skip
            _scan_back_tile(
                vectors, spans, ends, again, begin, count, low, n, H, drive, d_mixed, slope, normed, d_state,
                d_normed, d_drive, each_span, d_spans, partial,
            )  # fmt: skip
            multiply(
                zero, address(d_drive), width, size, rows, address(enter), H, address(d_normed), width, H, True, asked
            )
            multiply_rows(
                zero, address(d_drive), size, width, len(own_enter), address(normed), width, address(own_enter), width,
                rows, more, asked,
            )  # fmt: skip
            _enter_back(x, vectors, stats, at, begin, count, low, n, arriving, step, d_normed, means, d_x, partial)
            for part in range(SUMS):
                for i in range(wide):
                    total[part, i] += partial[part, i]
                    partial[part, i] = 0
        for r in range(count):
            copy_row(d_start[begin + r, :H], d_state[r, :H])
            copy_row(d_start[begin + r, H:], d_state[r, wide : wide + H])

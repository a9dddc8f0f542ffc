"""The block around damped oscillators on the CPU: Numba, all parts of the block in tiles that stay in the cache.

A tile is a few steps of some rows of the batch. Forward it is normalized, multiplied by V, scanned, mixed, multiplied
by the gate's matrix and added; backward the same in turn. What is saved lies by block of rows, then by step, and rows
are filled up to whole vectors; what fills them takes part in nothing.
"""

import math
from typing import Any, no_type_check

import torch
from jaxtyping import Float, Int
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.columns import array, copy_row, empty
from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.panel_product import multiply, multiply_rows, pack, padded
from sostenuto.ops._cpu.threads import run_blocks
from sostenuto.ops._cpu.vector_loop import address, vector_loop
from sostenuto.ops._cpu.workspace import new
from sostenuto.ops.damped.cpu import held, held_back
from sostenuto.ops.damped_block.reference import BlockWeights

ROWS = 64
"""Rows of a tile, steps times sequences."""
EPSILON = 1e-5
"""Of the norm, as `torch.nn.LayerNorm`'s."""
_SUMMED: Any = {**OPTIONS, "fastmath": {"contract", "reassoc"}}
_BEND, _SLOPE = 0.044715, math.sqrt(2 / math.pi)

# Rows of the vectors that kernels read, in one array; the last one is zero. With time spans, decays, frequencies and
# scales lie in the place of the coefficients.
NORM, NORM_BIAS, ENTER_BIAS, A_RE, A_IM, B_RE, B_IM, C_RE, C_IM, SCALE, DIRECT, VALUE_BIAS, GATE_BIAS, ZERO = range(14)
# Rows of the sums over steps and sequences.
D_NORM, D_NORM_BIAS, D_ENTER, D_A_RE, D_A_IM, D_B_RE, D_B_IM, MIX_RE, MIX_IM, D_DIRECT, D_VALUE, D_GATE = range(12)
SUMS = 12


def forward(
    inputs: Float[Tensor, "T B H"],
    start: Float[Tensor, "B S"],
    weights: BlockWeights,
    lengths: Int[Tensor, " B"] | None,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Give the outputs, the last state, and what the backward pass reads: norms, drives, states and gates."""
    (T, B, H), dtype = inputs.shape, start.dtype
    wide, rows = padded(H, dtype), _rows(B)
    outputs, last = new((T, B, H), dtype), torch.empty((B, 2 * H), dtype=dtype)
    kept = tuple(new((T * B, width), dtype) for width in (2, wide, 2 * wide, 2 * wide))
    matrices = pack(weights.enter.mT), pack(_parted(weights.gate, wide).mT)
    read = (
        array(inputs, dtype),
        array(start, dtype),
        _vectors(weights, wide, dtype),
        _spans(weights, dtype),
        *matrices,
        _ends(lengths, T, B),
    )
    every = (*read, outputs.numpy(), last.numpy(), *(part.numpy() for part in kept))
    kernel: Any = _forward
    run_blocks(lambda first, stop: kernel(*every, first, stop), B, rows)
    return outputs, last, kept


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
    wide, rows = padded(H, dtype), _rows(B)
    blocks, spans = -(-B // rows), weights.spans
    d_inputs, d_start = new((T, B, H), dtype), torch.empty((B, 2 * H), dtype=dtype)
    d_enter, d_gate = torch.empty((blocks, H, wide), dtype=dtype), torch.empty((blocks, 2 * wide, wide), dtype=dtype)
    sums = torch.zeros((blocks, SUMS, wide), dtype=torch.float64)
    d_spans = torch.empty((T, B) if spans is not None and spans.requires_grad else (0, 0), dtype=dtype)
    matrices = pack(weights.enter), pack(_parted(weights.gate, wide))
    read = (
        array(inputs, dtype), array(start, dtype), _vectors(weights, wide, dtype), _spans(weights, dtype), *matrices,
        _ends(lengths, T, B), *(part.numpy() for part in kept), array(d_outputs, dtype), array(d_last, dtype),
    )  # fmt: skip
    written = (part.numpy() for part in (d_inputs, d_start, d_enter, d_gate, sums, d_spans))
    every = (*read, *written, rows)
    kernel: Any = _backward
    run_blocks(lambda first, stop: kernel(*every, first, stop), B, rows)
    total, values = sums.sum(0)[:, :H].to(dtype), d_gate.sum(0)
    mix, scale, readout = total[MIX_RE : MIX_IM + 1], weights.scale, weights.readout
    d_power, d_gain = (total[row : row + 2].view(2, 1, 1, H) for row in (D_A_RE, D_B_RE))
    return (
        d_inputs,
        d_start,
        BlockWeights(
            d_power, d_gain[: len(weights.gain)], scale * mix, total[D_NORM], total[D_NORM_BIAS],
            d_enter.sum(0)[:, :H], total[D_ENTER],
            (readout * mix).sum(0), total[D_DIRECT], torch.cat([values[:H, :H], values[wide : wide + H, :H]]),
            total[D_VALUE : D_GATE + 1].flatten(), d_spans if len(d_spans) > 0 else None,
        ),
    )  # fmt: skip


def _rows(batch: int) -> int:
    """Sequences of a block: no more than a tile has, and enough blocks for all threads."""
    return min(ROWS, -(-batch // max(torch.get_num_threads(), 1)))


def _ends(lengths: Tensor | None, T: int, B: int) -> Any:
    return (torch.full((B,), T) if lengths is None else lengths.detach().long()).numpy()


def _spans(weights: BlockWeights, dtype: torch.dtype) -> Any:
    """Give the time spans, or nothing."""
    return torch.empty((0, 0), dtype=dtype).numpy() if weights.spans is None else array(weights.spans, dtype)


def _parted(gate: Float[Tensor, "G H"], wide: int) -> Tensor:
    """Fill the rows of M and N up to whole vectors each."""
    H = gate.shape[1]
    return torch.nn.functional.pad(gate.detach().view(2, H, H), (0, 0, 0, wide - H)).view(2 * wide, H)


@torch.no_grad()
def _vectors(weights: BlockWeights, wide: int, dtype: torch.dtype) -> Any:
    """Give all vectors as rows of one array; an oscillator at rest fills the coefficients up, as 0 / 0 is no number."""
    H = len(weights.norm)
    vectors = torch.zeros((ZERO + 1, wide), dtype=dtype)
    if weights.spans is not None:
        vectors[A_RE : B_RE + 1] = 1
    vectors[NORM, :H], vectors[NORM_BIAS, :H] = weights.norm, weights.norm_bias
    vectors[SCALE, :H], vectors[DIRECT, :H] = weights.scale, weights.direct
    vectors[C_RE : C_IM + 1, :H] = weights.readout
    vectors[A_RE : A_IM + 1, :H] = weights.power.view(2, H)
    vectors[B_RE : B_RE + len(weights.gain), :H] = weights.gain.view(-1, H)
    if weights.enter_bias is not None:
        vectors[ENTER_BIAS, :H] = weights.enter_bias
    if weights.gate_bias is not None:
        vectors[VALUE_BIAS : GATE_BIAS + 1, :H] = weights.gate_bias.view(2, H)
    return vectors.numpy()


@vector_loop
def _scaled(normal, weight, bias):
    return (normal * weight + bias,)


@vector_loop
def _copied(row):
    return (row,)


def _advance(real, imaginary, drive, bias, a_re, a_im, b_re, b_im):
    u = drive + bias
    return a_re * real - a_im * imaginary + b_re * u, a_im * real + a_re * imaginary + b_im * u


@vector_loop
def _advance_over(real, imaginary, drive, bias, decay, frequency, scale, span):
    return _advance(real, imaginary, drive, bias, *held(decay, frequency, scale, span))


_advance_one = vector_loop(_advance)


def _gelu(a):
    """Give GELU in its tanh form, and its slope."""
    square = a * a
    bent, slope = (a * (square * (_BEND * _SLOPE) + _SLOPE)).tanh()
    half = a * 0.5
    return half + half * bent, 0.5 + 0.5 * bent + half * slope * (square * (3 * _BEND * _SLOPE) + _SLOPE)


@vector_loop
def _mix(real, imaginary, c_re, c_im, normed, scale, direct):
    return _gelu(scale * (c_re * real + c_im * imaginary) + direct * normed)[:1]


@vector_loop
def _mix_with_slope(real, imaginary, c_re, c_im, normed, scale, direct):
    return _gelu(scale * (c_re * real + c_im * imaginary) + direct * normed)


def _logistic(a):
    bent, slope = (a * 0.5).tanh()
    return 0.5 + 0.5 * bent, 0.25 * slope


@vector_loop
def _leave(x, value, gate, value_bias, gate_bias):
    return (x + (value + value_bias) * _logistic(gate + gate_bias)[0],)


@vector_loop
def _leave_back(value, gate, value_bias, gate_bias, d_output, d_value_sum, d_gate_sum):
    open_, slope = _logistic(gate + gate_bias)
    d_value = d_output * open_
    d_gate = d_output * (value + value_bias) * slope
    return d_value, d_gate, d_value_sum + d_value, d_gate_sum + d_gate


@vector_loop
def _mix_back(
    d_mixed, slope, normed, real, imaginary, c_re, c_im, scale, direct, d_re, d_im, sum_re, sum_im, sum_direct
):
    d = d_mixed * slope
    past = d * scale
    sums = sum_re + d * real, sum_im + d * imaginary, sum_direct + d * normed
    return d_re + past * c_re, d_im + past * c_im, d * direct, *sums


def _advance_back(d_re, d_im, real, imaginary, drive, bias, a_re, a_im, b_re, b_im):
    """Give the gradients of the state, of the drive, and of the coefficients."""
    u = drive + bias
    state = a_re * d_re + a_im * d_im, a_re * d_im - a_im * d_re
    power = d_re * real + d_im * imaginary, d_im * real - d_re * imaginary
    return *state, b_re * d_re + b_im * d_im, *power, d_re * u, d_im * u


@vector_loop
def _advance_one_back(
    d_re, d_im, real, imaginary, drive, bias, a_re, a_im, b_re, b_im, d_a_re, d_a_im, d_b_re, d_b_im, d_bias
):
    *state, d_drive, s_re, s_im, g_re, g_im = _advance_back(
        d_re, d_im, real, imaginary, drive, bias, a_re, a_im, b_re, b_im
    )
    return *state, d_drive, d_a_re + s_re, d_a_im + s_im, d_b_re + g_re, d_b_im + g_im, d_bias + d_drive


@vector_loop
def _advance_over_back(
    d_re, d_im, real, imaginary, drive, bias, decay, frequency, scale, span, d_decay, d_frequency, d_scale, d_bias
):
    rates = decay, frequency, scale, span
    coefficients = held(*rates)
    *state, d_drive, s_re, s_im, g_re, g_im = _advance_back(d_re, d_im, real, imaginary, drive, bias, *coefficients)
    d_span, *sums = held_back(*rates, *coefficients, s_re, s_im, g_re, g_im, d_decay, d_frequency, d_scale)
    return *state, d_drive, *sums, d_bias + d_drive, d_span


@vector_loop
def _scaled_back(d_normed, normal, d_weight, d_bias):
    return d_weight + d_normed * normal, d_bias + d_normed


@no_type_check
@njit(**_SUMMED)
def _moments(row):
    """Give the mean and the inverse deviation of a row."""
    one, total = row.dtype.type(1.0), row.dtype.type(0.0)
    share = one / row.dtype.type(row.shape[0])
    for i in range(row.shape[0]):
        total += row[i]
    mean, total = total * share, row.dtype.type(0.0)
    for i in range(row.shape[0]):
        total += (row[i] - mean) * (row[i] - mean)
    return mean, one / math.sqrt(total * share + row.dtype.type(EPSILON))


@no_type_check
@njit(**_SUMMED)
def _means(d_normed, weight, normal, count):
    """Give the means of d ⊙ w and of d ⊙ w ⊙ x̂ over a row."""
    one, two = weight.dtype.type(0.0), weight.dtype.type(0.0)
    share = weight.dtype.type(1.0) / weight.dtype.type(count)
    for i in range(count):
        d = d_normed[i] * weight[i]
        one += d
        two += d * normal[i]
    return one * share, two * share


@no_type_check
@njit(**OPTIONS)
def _zeros(like, rows, columns, place):
    """Give rows of zeros at a place of a page; what fills them up to whole vectors stays zero."""
    memory = empty(like, rows, columns, place)
    memory[:] = 0
    return memory


@no_type_check
@procedure
def _enter(x, vectors, stats, first, stop, low, high, at, fresh, normal, normed):
    """Normalize the rows of a tile, x̂ and x̂ w + b; ``fresh`` ones have no moments yet."""
    H, width = x.shape[2], normed.shape[1] * x.itemsize
    weight, bias = address(vectors) + NORM * width, address(vectors) + NORM_BIAS * width
    row = 0
    for t in range(low, high):
        for r in range(first, stop):
            source, target = x[t, r], normal[row]
            if fresh:
                stats[at + row, 0], stats[at + row, 1] = _moments(source)
            mean, inverse = stats[at + row, 0], stats[at + row, 1]
            for i in range(H):
                target[i] = (source[i] - mean) * inverse
            row += 1
    places = address(normal), weight, bias
    for row in range((high - low) * (stop - first)):
        shift = row * width
        _scaled(x.dtype.type(0.0), width, (places[0] + shift, weight, bias), (address(normed) + shift,))


@no_type_check
@njit(**OPTIONS)
def _forward(x, start, vectors, spans, enter, gate, ends, outputs, last, stats, drives, states, gates, first, stop):
    (T, _, H), R, wide, size = x.shape, stop - first, vectors.shape[1], x.itemsize
    zero, width, steps = x.dtype.type(0.0), wide * size, max(ROWS // R, 1)
    m = steps * R
    normal, normed, mixed = _zeros(x, m, wide, 1), _zeros(x, m, wide, 2), _zeros(x, m, wide, 3)
    before, row_in, span = _zeros(x, R, 2 * wide, 4), _zeros(x, 2, wide, 6), _zeros(x, 1, wide, 7)
    v = address(vectors)
    a = v + A_RE * width
    for r in range(R):
        copy_row(before[r], start[first + r, :H])
        copy_row(before[r, wide:], start[first + r, H:])
    for low in range(0, T, steps):
        high = min(low + steps, T)
        at, rows = first * T + low * R, (high - low) * R
        _enter(x, vectors, stats, first, stop, low, high, at, True, normal, normed)
        drive, state, opened = (
            address(drives) + at * width,
            address(states) + 2 * at * width,
            address(gates) + 2 * at * width,
        )
        multiply(zero, address(normed), width, size, rows, address(enter), H, drive, width, H, False, None)
        for row in range(rows):
            t, r = low + row // R, row % R
            previous = address(before) + 2 * r * width if t == 0 else address(states) + 2 * (at + row - R) * width
            now, c = state + 2 * row * width, v + C_RE * width
            c_next = width
            if t < ends[first + r]:
                if len(spans) > 0:
                    span[:] = spans[t, first + r]
                    _advance_over(
                        zero, width,
                        (previous, previous + width, drive + row * width, v + ENTER_BIAS * width,
                         a, a + width, a + 2 * width, address(span)),
                        (now, now + width),
                    )  # fmt: skip
                else:
                    _advance_one(
                        zero, width,
                        (previous, previous + width, drive + row * width, v + ENTER_BIAS * width,
                         a, a + width, a + 2 * width, a + 3 * width),
                        (now, now + width),
                    )  # fmt: skip
            else:
                _copied(zero, 2 * width, (previous,), (now,))
                c, c_next = v + ZERO * width, 0
            _mix(
                zero, width,
                (now, now + width, c, c + c_next, address(normed) + row * width, v + SCALE * width, v + DIRECT * width),
                (address(mixed) + row * width,),
            )  # fmt: skip
        multiply(zero, address(mixed), width, size, rows, address(gate), H, opened, 2 * width, H, False, None)
        for row in range(rows):
            t, r = low + row // R, first + row % R
            copy_row(row_in[0], x[t, r])
            o = opened + 2 * row * width
            _leave(
                zero, width,
                (address(row_in), o, o + width, v + VALUE_BIAS * width, v + GATE_BIAS * width),
                (address(row_in) + width,),
            )  # fmt: skip
            copy_row(outputs[t, r], row_in[1, :H])
    for r in range(R):
        row = first * T + (T - 1) * R + r
        copy_row(last[first + r], states[row, :H])
        copy_row(last[first + r, H:], states[row, wide : wide + H])


@no_type_check
@procedure
def _leave_back_tile(
    vectors, ends, low, first, R, rows, state, opened, d_outputs, normed, through, d_gates, mixed, slope, partial
):
    """Give the gradient of a tile's gates, and compute anew what the gate's matrix was multiplied by, and its slope."""
    width, zero = normed.shape[1] * normed.itemsize, normed.dtype.type(0.0)
    v, p = address(vectors), address(partial)
    for row in range(rows):
        t, r = low + row // R, first + row % R
        copy_row(through[row], d_outputs[min(t, d_outputs.shape[0] - 1), r])
        o, d_o = opened + 2 * row * width, address(d_gates) + 2 * row * width
        _leave_back(
            zero, width,
            (o, o + width, v + VALUE_BIAS * width, v + GATE_BIAS * width, address(through) + row * width,
             p + D_VALUE * width, p + D_GATE * width),
            (d_o, d_o + width, p + D_VALUE * width, p + D_GATE * width),
        )  # fmt: skip
        now, c, c_next = state + 2 * row * width, v + C_RE * width, width
        if t >= ends[r]:
            c, c_next = v + ZERO * width, 0
        _mix_with_slope(
            zero, width,
            (now, now + width, c, c + c_next, address(normed) + row * width, v + SCALE * width, v + DIRECT * width),
            (address(mixed) + row * width, address(slope) + row * width),
        )  # fmt: skip


@no_type_check
@njit(**OPTIONS)
def _backward(
    x, start, vectors, spans, enter, gate, ends, stats, drives, states, gates, d_outputs, d_last,
    d_x, d_start, d_enter, d_gate, sums, d_spans, block, first, stop,
):  # fmt: skip
    (T, _, H), R, wide, size = x.shape, stop - first, vectors.shape[1], x.itemsize
    zero, width, steps = x.dtype.type(0.0), wide * size, max(ROWS // R, 1)
    m = steps * R
    normal, normed, mixed, slope = (
        _zeros(x, m, wide, 1),
        _zeros(x, m, wide, 2),
        _zeros(x, m, wide, 3),
        _zeros(x, m, wide, 4),
    )
    through, d_gates, d_mixed, d_drive = (
        _zeros(x, m, wide, 5),
        _zeros(x, m, 2 * wide, 6),
        _zeros(x, m, wide, 7),
        _zeros(x, m, wide, 8),
    )
    d_normed, before, d_state, span = (
        _zeros(x, m, wide, 9),
        _zeros(x, R, 2 * wide, 10),
        _zeros(x, R, 2 * wide, 11),
        _zeros(x, 2, wide, 12),
    )
    partial, total = _zeros(x, SUMS, wide, 13), sums[first // block]
    own_enter, own_gate = d_enter[first // block], d_gate[first // block]
    v, p = address(vectors), address(partial)
    a, s = v + A_RE * width, p + D_A_RE * width
    for r in range(R):
        copy_row(before[r], start[first + r, :H])
        copy_row(before[r, wide:], start[first + r, H:])
        copy_row(d_state[r], d_last[first + r, :H])
        copy_row(d_state[r, wide:], d_last[first + r, H:])
    for k in range(0, T, steps):
        high = T - k
        low = max(high - steps, 0)
        at, rows = first * T + low * R, (high - low) * R
        _enter(x, vectors, stats, first, stop, low, high, at, False, normal, normed)
        drive, state, opened = (
            address(drives) + at * width,
            address(states) + 2 * at * width,
            address(gates) + 2 * at * width,
        )
        _leave_back_tile(
            vectors,
            ends,
            low,
            first,
            R,
            rows,
            state,
            opened,
            d_outputs,
            normed,
            through,
            d_gates,
            mixed,
            slope,
            partial,
        )
        multiply_rows(
            zero, address(d_gates), size, 2 * width, 2 * wide, address(mixed), width, address(own_gate), width,
            rows, k > 0, None,
        )  # fmt: skip
        multiply(
            zero, address(d_gates), 2 * width, size, rows, address(gate), 2 * wide, address(d_mixed), width,
            2 * wide, False, None,
        )  # fmt: skip
        for back in range(rows):
            row = rows - 1 - back
            t, r = low + row // R, row % R
            shift, now, d = row * width, state + 2 * row * width, address(d_state) + 2 * r * width
            runs = t < ends[first + r]
            c, c_next = v + C_RE * width, width
            past, past_next = now, width
            if not runs:
                c, c_next, past, past_next = v + ZERO * width, 0, v + ZERO * width, 0
            _mix_back(
                zero, width,
                (address(d_mixed) + shift, address(slope) + shift, address(normed) + shift, past, past + past_next,
                 c, c + c_next, v + SCALE * width, v + DIRECT * width, d, d + width,
                 p + MIX_RE * width, p + MIX_IM * width, p + D_DIRECT * width),
                (d, d + width, address(d_normed) + shift, p + MIX_RE * width, p + MIX_IM * width, p + D_DIRECT * width),
            )  # fmt: skip
            if runs:
                previous = address(before) + 2 * r * width if t == 0 else now - 2 * R * width
                if len(spans) > 0:
                    span[0] = spans[t, first + r]
                    _advance_over_back(
                        zero, width,
                        (d, d + width, previous, previous + width, drive + shift, v + ENTER_BIAS * width,
                         a, a + width, a + 2 * width, address(span),
                         s, s + width, s + 2 * width, p + D_ENTER * width),
                        (d, d + width, address(d_drive) + shift, s, s + width, s + 2 * width, p + D_ENTER * width,
                         address(span) + width),
                    )  # fmt: skip
                else:
                    _advance_one_back(
                        zero, width,
                        (d, d + width, previous, previous + width, drive + shift, v + ENTER_BIAS * width,
                         a, a + width, a + 2 * width, a + 3 * width,
                         s, s + width, s + 2 * width, s + 3 * width, p + D_ENTER * width),
                        (d, d + width, address(d_drive) + shift, s, s + width, s + 2 * width, s + 3 * width,
                         p + D_ENTER * width),
                    )  # fmt: skip
            else:
                d_drive[row] = 0
                span[1] = 0
            if len(d_spans) > 0:
                d_spans[t, first + r] = span[1, :H].sum()
        multiply(zero, address(d_drive), width, size, rows, address(enter), H, address(d_normed), width, H, True, None)
        multiply_rows(
            zero, address(d_drive), size, width, H, address(normed), width, address(own_enter), width, rows, k > 0, None
        )
        _leave_norm(vectors[NORM], stats, at, low, first, R, rows, normal, d_normed, through, d_x, partial)
        for part in range(SUMS):
            for i in range(wide):
                total[part, i] += partial[part, i]
                partial[part, i] = 0
    for r in range(R):
        copy_row(d_start[first + r], d_state[r, :H])
        copy_row(d_start[first + r, H:], d_state[r, wide : wide + H])


@no_type_check
@procedure
def _leave_norm(weight, stats, at, low, first, R, rows, normal, d_normed, through, d_x, partial):
    """Give the gradient of a tile's inputs: through the norm, and around it."""
    H, width = d_x.shape[2], normal.shape[1] * normal.itemsize
    p = address(partial)
    for row in range(rows):
        mean, part = _means(d_normed[row], weight, normal[row], H)
        inverse, arriving, own, around, target = (
            stats[at + row, 1],
            d_normed[row],
            normal[row],
            through[row],
            d_x[low + row // R, first + row % R],
        )
        for i in range(H):
            target[i] = around[i] + inverse * (arriving[i] * weight[i] - mean - own[i] * part)
        _scaled_back(
            normal.dtype.type(0.0), width,
            (address(d_normed) + row * width, address(normal) + row * width,
             p + D_NORM * width, p + D_NORM_BIAS * width),
            (p + D_NORM * width, p + D_NORM_BIAS * width),
        )  # fmt: skip

"""The scan of damped oscillators on the CPU: Numba, rows of the batch in blocks, one pass over time each way.

Inner loops run over the units of one row and write one or two arrays each, so that they vectorize: the compiler checks
that arrays do not overlap, and gives up where there are many. Everything a row needs stays in the first cache.
"""

import math
from typing import Any, no_type_check

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.columns import FLUSH, array, block_of, copy_row, empty
from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops._cpu.panel_product import padded
from sostenuto.ops._cpu.threads import run_blocks
from sostenuto.ops._cpu.vector_loop import address, vector_loop
from sostenuto.ops._cpu.workspace import new


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
    (T, B, H), dtype = inputs.shape, start.dtype
    outputs, last = new((T, B, H), dtype), start.detach().clone(memory_format=torch.contiguous_format)
    states = new((T if keep else 0, B, 2 * H), dtype)
    read = array(inputs, dtype), array(power, dtype), array(gain, dtype), array(readout, dtype), _ends(lengths, T, B)
    written = outputs.numpy(), last.numpy(), states.numpy()

    def kernel(first: int, stop: int) -> None:
        _forward(*read, *written, first, stop)

    run_blocks(kernel, B, _rows_of(B, H, dtype))
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
    (T, B, H), dtype = inputs.shape, start.dtype
    varying = power.shape[1] > 1 or power.shape[2] > 1 or gain.shape[1] > 1 or gain.shape[2] > 1
    d_inputs, d_start = new((T, B, H), dtype), d_last.detach().to(dtype).clone(memory_format=torch.contiguous_format)
    # Rows in turn: power, gain, read-out, real and imaginary; those that vary are written at every step instead.
    sums, each = np.zeros((B, 6, H)), new((4, T, B, H) if varying else (4, 0, B, H), dtype)
    read = (
        array(inputs, dtype), array(start, dtype), array(power, dtype), array(gain, dtype), array(readout, dtype),
        _ends(lengths, T, B), array(states, dtype), array(d_outputs, dtype),
    )  # fmt: skip
    written = d_inputs.numpy(), d_start.numpy(), each.numpy(), sums

    def kernel(first: int, stop: int) -> None:
        _backward(*read, *written, first, stop)

    run_blocks(kernel, B, _rows_of(B, H, dtype))
    totals = torch.from_numpy(sums).sum(0).to(dtype)
    if varying:
        d_power, d_gain = _summed_like(each[:2], power), _summed_like(each[2:], gain)
    else:
        d_power, d_gain = totals[:2].reshape(power.shape), totals[2:4].reshape(gain.shape)
    return d_inputs, d_start, d_power, d_gain, totals[4:].clone()


def _summed_like(gradient: Tensor, like: Tensor) -> Tensor:
    """Add up what went to all steps or sequences that shared a coefficient."""
    shared = [axis for axis in (1, 2) if like.shape[axis] == 1]
    return gradient.sum(shared, keepdim=True) if shared else gradient


def coefficients(
    decay: Float[Tensor, " H"], frequency: Float[Tensor, " H"], scale: Float[Tensor, " H"], spans: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Give the coefficients of a step, of the state and of the input; one for each span where there are spans."""
    vectors, over, dtype = _laid_out(decay, frequency, scale), _spans(spans, decay), decay.dtype
    shape = (2, *over.shape, len(decay))
    power, gain = new(shape, dtype), new(shape, dtype)
    read: Any = vectors.numpy(), array(over, dtype), power.numpy(), gain.numpy()
    kernel: Any = _coefficients
    run_blocks(lambda first, stop: kernel(*read, first, stop), len(over), _steps_of(over))
    return power, gain


def coefficients_backward(
    decay: Float[Tensor, " H"],
    frequency: Float[Tensor, " H"],
    scale: Float[Tensor, " H"],
    spans: Tensor | None,
    d_power: Float[Tensor, "2 T1 B1 H"],
    d_gain: Float[Tensor, "2 T1 B1 H"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of decays, frequencies, scales and spans."""
    vectors, over, dtype = _laid_out(decay, frequency, scale), _spans(spans, decay), decay.dtype
    block = _steps_of(over)
    sums = torch.zeros((-(-len(over) // block), 3, vectors.shape[1]), dtype=torch.float64)
    d_spans = new(tuple(over.shape), dtype)
    read: Any = vectors.numpy(), array(over, dtype), array(d_power, dtype), array(d_gain, dtype), sums.numpy()
    arguments = (*read, d_spans.numpy(), block)
    kernel: Any = _coefficients_backward
    run_blocks(lambda first, stop: kernel(*arguments, first, stop), len(over), block)
    d_decay, d_frequency, d_scale = sums.sum(0)[:, : len(decay)].to(dtype).unbind()
    return d_decay, d_frequency, d_scale, d_spans


def learned(logs: Float[Tensor, " S"], added: float) -> tuple[Tensor, Tensor]:
    """Give the coefficients of a unit step from what is learned; see `learned_coefficients`."""
    H, dtype = len(logs) // 2, logs.dtype
    power, gain = torch.empty((2, 1, 1, H), dtype=dtype), torch.empty((2, 1, 1, H), dtype=dtype)
    vectors = np.ones((3, padded(H, dtype)), power.numpy().dtype)
    kernel: Any = _learned
    kernel(array(logs, dtype), added, vectors, np.ones((1, 1), vectors.dtype), power.numpy(), gain.numpy())
    return power, gain


def learned_backward(
    logs: Float[Tensor, " S"], added: float, d_power: Float[Tensor, "2 1 1 H"], d_gain: Float[Tensor, "2 1 1 H"]
) -> Float[Tensor, " S"]:
    """Give the gradient of what is learned."""
    dtype, d_logs = logs.dtype, torch.empty_like(logs)
    vectors = np.ones((3, padded(len(logs) // 2, dtype)), d_logs.numpy().dtype)
    read: Any = array(logs, dtype), added, vectors, np.ones((1, 1), vectors.dtype)
    kernel: Any = _learned_backward
    kernel(*read, array(d_power, dtype), array(d_gain, dtype), np.zeros((1, *vectors.shape)), d_logs.numpy())
    return d_logs


@torch.no_grad()
def _laid_out(decay: Tensor, frequency: Tensor, scale: Tensor) -> Float[Tensor, "3 _"]:
    """Give all vectors as rows, filled up to whole vectors by an oscillator at rest."""
    vectors = torch.ones((3, padded(len(decay), decay.dtype)), dtype=decay.dtype)
    vectors[0, : len(decay)], vectors[1, : len(decay)], vectors[2, : len(decay)] = decay, frequency, scale
    return vectors


def _spans(spans: Tensor | None, like: Tensor) -> Float[Tensor, "T B"]:
    return like.new_ones((1, 1)) if spans is None else spans.detach()


def _steps_of(over: Tensor) -> int:
    return max(-(-len(over) // max(torch.get_num_threads(), 1)), 1)


def _ends(lengths: Tensor | None, T: int, B: int) -> Any:
    return np.full(B, T) if lengths is None else lengths.detach().long().numpy()


def _rows_of(B: int, H: int, dtype: torch.dtype) -> int:
    return max(block_of(B * H, dtype) // H, 1)


@no_type_check
@njit(**OPTIONS)
def _rotate(a_real, a_imaginary, real, imaginary):
    """Multiply s by a in place."""
    for i in range(real.shape[0]):
        turned = a_real[i] * real[i] - a_imaginary[i] * imaginary[i]
        imaginary[i] = a_imaginary[i] * real[i] + a_real[i] * imaginary[i]
        real[i] = turned


@no_type_check
@njit(**OPTIONS)
def _add(b, x, out):
    for i in range(out.shape[0]):
        out[i] += b[i] * x[i]


@no_type_check
@njit(**OPTIONS)
def _combine(b, x, c, y, out):
    for i in range(out.shape[0]):
        out[i] = b[i] * x[i] + c[i] * y[i]


@no_type_check
@njit(**OPTIONS)
def _add_pair(b, x, c, y, sign, out):
    for i in range(out.shape[0]):
        out[i] += b[i] * x[i] + sign * c[i] * y[i]


@no_type_check
@njit(**OPTIONS)
def _forward(x, power, gain, readout, ends, outputs, last, states, first, stop):
    T, H = x.shape[0], x.shape[2]
    keep = states.shape[0] > 0
    c_real, c_imaginary = readout[0], readout[1]
    for t in range(T):
        t_a, t_b = min(t, power.shape[1] - 1), min(t, gain.shape[1] - 1)
        for r in range(first, stop):
            real, imaginary, u = last[r, :H], last[r, H:], x[t, r]
            if t < ends[r]:
                r_a, r_b = min(r, power.shape[2] - 1), min(r, gain.shape[2] - 1)
                _rotate(power[0, t_a, r_a], power[1, t_a, r_a], real, imaginary)
                _add(gain[0, t_b, r_b], u, real)
                _add(gain[1, t_b, r_b], u, imaginary)
                _combine(c_real, real, c_imaginary, imaginary, outputs[t, r])
            else:
                outputs[t, r, :] = 0
            if keep:
                states[t, r, :] = last[r]


@no_type_check
@njit(**OPTIONS)
def _backward(x, start, power, gain, readout, ends, states, d_outputs, d_x, d_start, each, sums, first, stop):
    T, H = x.shape[0], x.shape[2]
    varying = each.shape[1] > 0
    one = x.dtype.type(1.0)
    partial = np.zeros((stop - first, 6, H), x.dtype)
    for k in range(T):
        t = T - 1 - k
        t_a, t_b = min(t, power.shape[1] - 1), min(t, gain.shape[1] - 1)
        for r in range(first, stop):
            own = partial[r - first]
            if t >= ends[r]:
                d_x[t, r, :] = 0
                if varying:
                    each[:, t, r, :] = 0
                continue
            r_a, r_b = min(r, power.shape[2] - 1), min(r, gain.shape[2] - 1)
            before = states[t - 1, r] if t > 0 else start[r]
            real, imaginary, arriving = d_start[r, :H], d_start[r, H:], d_outputs[min(t, d_outputs.shape[0] - 1), r]
            _add(arriving, states[t, r, :H], own[4])
            _add(arriving, states[t, r, H:], own[5])
            _add(readout[0], arriving, real)
            _add(readout[1], arriving, imaginary)
            _combine(gain[0, t_b, r_b], real, gain[1, t_b, r_b], imaginary, d_x[t, r])
            if varying:
                own[:4] = 0
            _add(x[t, r], real, own[2])
            _add(x[t, r], imaginary, own[3])
            _add_pair(real, before[:H], imaginary, before[H:], one, own[0])
            _add_pair(imaginary, before[:H], real, before[H:], -one, own[1])
            if varying:
                each[:, t, r] = own[:4]
            _rotate_back(power[0, t_a, r_a], power[1, t_a, r_a], real, imaginary)
        if k % FLUSH == FLUSH - 1 or t == 0:
            sums[first:stop] += partial
            partial[:] = 0


@no_type_check
@njit(**OPTIONS)
def _rotate_back(a_real, a_imaginary, real, imaginary):
    """Multiply s by the conjugate of a in place."""
    for i in range(real.shape[0]):
        turned = a_real[i] * real[i] + a_imaginary[i] * imaginary[i]
        imaginary[i] = a_real[i] * imaginary[i] - a_imaginary[i] * real[i]
        real[i] = turned


def held(decay, frequency, scale, span):
    """Give the coefficients of a step over a span, a and then b, as a formula of vectors."""
    left, lost_size = (decay * span).faded()
    sine, cosine = (frequency * span).half_angle()
    versed = sine * sine * 2.0
    real, imaginary = left * (1.0 - versed), left * sine * cosine * 2.0
    lost = lost_size * (1.0 - versed) - versed
    each = scale / (decay * decay + frequency * frequency)
    return (
        real,
        imaginary,
        (imaginary * frequency - lost * decay) * each,
        (imaginary * decay + lost * frequency) * each * -1.0,
    )


_held = vector_loop(held)
_SMALL, _TERMS = 0.36, 16
_SERIES = [(k + 1) / math.factorial(k + 2) for k in range(_TERMS)]


def held_back(
    decay, frequency, scale, span, re, im, held_re, held_im, d_re, d_im, d_held_re, d_held_im,
    sum_decay, sum_frequency, sum_scale,
):  # fmt: skip
    """Give κ̄ = (δa)* ā + (gψ)* b̄ and the rest; ψ = ∂b/∂κ = (δa − b)/κ, by its series in κδ where that is small."""
    one = scale / scale
    b_re, b_im = held_re / scale, held_im / scale
    x, y = decay * span * -1.0, frequency * span
    far_re, far_im = span * re - b_re, span * im - b_im
    each = one / (decay * decay + frequency * frequency)
    far_re, far_im = (far_im * frequency - far_re * decay) * each, (far_im * decay + far_re * frequency) * each * -1.0
    near_re, near_im = one * _SERIES[-1], one * 0.0
    for term in reversed(_SERIES[:-1]):
        near_re, near_im = near_re * x - near_im * y + term, near_re * y + near_im * x
    square, area = x * x + y * y, span * span
    psi_re = square.where_below(_SMALL, near_re * area, far_re) * scale
    psi_im = square.where_below(_SMALL, near_im * area, far_im) * scale
    d_kappa_re = span * (re * d_re + im * d_im) + psi_re * d_held_re + psi_im * d_held_im
    d_kappa_im = span * (re * d_im - im * d_re) + psi_re * d_held_im - psi_im * d_held_re
    rate_re, rate_im = (re * decay + im * frequency) * -1.0, re * frequency - im * decay
    d_span = rate_re * d_re + rate_im * d_im + scale * (re * d_held_re + im * d_held_im)
    d_scale = b_re * d_held_re + b_im * d_held_im
    return d_span, sum_decay - d_kappa_re, sum_frequency + d_kappa_im, sum_scale + d_scale


_held_back = vector_loop(held_back)


@no_type_check
@njit(**OPTIONS)
def _coefficients(vectors, spans, power, gain, first, stop):
    H, wide = power.shape[3], vectors.shape[1]
    own, v, width = empty(vectors, 5, wide, 1), address(vectors), wide * vectors.itemsize
    o = address(own)
    for t in range(first, stop):
        for r in range(spans.shape[1]):
            own[4, :] = spans[t, r]
            _held(
                vectors.dtype.type(0.0), width, (v, v + width, v + 2 * width, o + 4 * width),
                (o, o + width, o + 2 * width, o + 3 * width),
            )  # fmt: skip
            for part in range(2):
                copy_row(power[part, t, r], own[part, :H])
                copy_row(gain[part, t, r], own[2 + part, :H])


@no_type_check
@njit(**OPTIONS)
def _coefficients_backward(vectors, spans, d_power, d_gain, sums, d_spans, block, first, stop):
    H, wide = d_power.shape[3], vectors.shape[1]
    own, v, width = empty(vectors, 13, wide, 1), address(vectors), wide * vectors.itemsize
    own[:] = 0
    o, total, zero = address(own), sums[first // block], vectors.dtype.type(0.0)
    for t in range(first, stop):
        for r in range(spans.shape[1]):
            own[4, :] = spans[t, r]
            _held(
                zero, width, (v, v + width, v + 2 * width, o + 4 * width), (o, o + width, o + 2 * width, o + 3 * width)
            )
            for part in range(2):
                copy_row(own[5 + part], d_power[part, t, r])
                copy_row(own[7 + part], d_gain[part, t, r])
            _held_back(
                zero, width,
                (v, v + width, v + 2 * width, o + 4 * width, o, o + width, o + 2 * width, o + 3 * width,
                 o + 5 * width, o + 6 * width, o + 7 * width, o + 8 * width,
                 o + 9 * width, o + 10 * width, o + 11 * width),
                (o + 12 * width, o + 9 * width, o + 10 * width, o + 11 * width),
            )  # fmt: skip
            d_span = 0.0
            for i in range(H):
                d_span += own[12, i]
            d_spans[t, r] = d_span
        for part in range(3):
            for i in range(wide):
                total[part, i] += own[9 + part, i]
                own[9 + part, i] = 0


@no_type_check
@njit(**OPTIONS)
def _rates(logs, added, vectors):
    """Compute decays, frequencies and scales, in float64 inside."""
    H = len(logs) // 2
    for i in range(H):
        decay = 1 / (math.exp(-float(logs[i])) + added)
        vectors[0, i], vectors[1, i] = decay, math.exp(float(logs[H + i]))
        vectors[2, i] = math.sqrt(-math.expm1(-2 * decay))


@no_type_check
@njit(**OPTIONS)
def _learned(logs, added, vectors, spans, power, gain):
    _rates(logs, added, vectors)
    _coefficients(vectors, spans, power, gain, 0, 1)


@no_type_check
@njit(**OPTIONS)
def _learned_backward(logs, added, vectors, spans, d_power, d_gain, sums, d_logs):
    _rates(logs, added, vectors)
    _coefficients_backward(vectors, spans, d_power, d_gain, sums, np.empty((1, 1), spans.dtype), 1, 0, 1)
    H, (d_decay, d_frequency, d_scale) = len(logs) // 2, sums[0]
    for i in range(H):
        inverse = math.exp(-float(logs[i]))
        decay = 1 / (inverse + added)
        grown = d_scale[i] * math.exp(-2 * decay) / math.sqrt(-math.expm1(-2 * decay))
        d_logs[i] = (d_decay[i] + grown) * decay * decay * inverse
        d_logs[H + i] = d_frequency[i] * math.exp(float(logs[H + i]))

"""The diagonal scans on the CPU: Numba, the columns of batch and units in blocks, as in the oscillator scan.

A step is three passes over a block in the first cache: the product w⊙h, the nonlinearity, the new state. The gate is
the logistic nonlinearity; only the third pass, and its adjoint, know which of the two recurrences runs.
"""

from typing import Any, no_type_check

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.activation import activate_tile, slope_into
from sostenuto.ops._cpu.columns import FLUSH, block_of, flat, rows
from sostenuto.ops._cpu.compiled import OPTIONS, procedure
from sostenuto.ops._cpu.threads import run_blocks
from sostenuto.ops._cpu.workspace import new
from sostenuto.ops.activation import ACTIVATIONS


def forward(
    inputs: Float[Tensor, "T B H"],
    candidates: Float[Tensor, "T B H"] | None,
    start: Float[Tensor, "B H"],
    vectors: Float[Tensor, "4 H"],
    activation: str,
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "B H"]]:
    """Give every state and the last; ``vectors`` are w, p, q and the threshold; candidates make it the gated one."""
    (T, B, H), dtype = inputs.shape, start.dtype
    states = new((T, B, H), dtype)
    read = rows(inputs, dtype), _candidates(candidates, dtype), flat(start, dtype), _repeated(vectors, B, dtype)
    out, code = states.view(T, B * H).numpy(), ACTIVATIONS.index(activation)

    def kernel(first: int, stop: int) -> None:
        _forward(*read, code, out, first, stop)

    run_blocks(kernel, B * H, block_of(B * H, dtype))
    return states, states[-1].clone()


def backward(
    inputs: Float[Tensor, "T B H"],
    candidates: Float[Tensor, "T B H"] | None,
    start: Float[Tensor, "B H"],
    vectors: Float[Tensor, "4 H"],
    activation: str,
    states: Float[Tensor, "T B H"],
    d_states: Float[Tensor, "T1 B H"],
    d_last: Float[Tensor, "B H"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give the gradients of inputs, candidates (empty where there are none), start and vectors."""
    (T, B, H), dtype = inputs.shape, start.dtype
    d_inputs, d_start = new((T, B, H), dtype), d_last.detach().clone().contiguous()
    d_candidates = new((0,) if candidates is None else (T, B, H), dtype)
    sums = np.zeros((4, B * H))
    read = (
        rows(inputs, dtype), _candidates(candidates, dtype), flat(start, dtype), _repeated(vectors, B, dtype),
        ACTIVATIONS.index(activation), rows(states, dtype), rows(d_states, dtype),
    )  # fmt: skip
    gated = d_candidates.view(0, 0) if candidates is None else d_candidates.view(T, B * H)
    written = d_inputs.view(T, B * H).numpy(), gated.numpy(), d_start.view(-1).numpy(), sums

    def kernel(first: int, stop: int) -> None:
        _backward(*read, *written, first, stop)

    run_blocks(kernel, B * H, block_of(B * H, dtype))
    return d_inputs, d_candidates, d_start, torch.from_numpy(sums).view(4, B, H).sum(1).to(dtype)


@no_type_check
@njit(**OPTIONS)
def _forward(z, x, start, vectors, code, states, first, stop):
    n, gated = stop - first, x.shape[0] > 0
    w, p = vectors[0, first:stop].copy(), vectors[1, first:stop].copy()
    q, threshold = vectors[2, first:stop].copy(), vectors[3, first:stop].copy()
    h, product, u = start[first:stop].copy(), np.empty((1, n), z.dtype), np.empty(n, z.dtype)
    for t in range(z.shape[0]):
        for i in range(n):
            product[0, i] = w[i] * h[i]
        activate_tile(code, product, z[t, first:stop], threshold, u, 1)
        out = states[t, first:stop]
        if gated:
            x_t = x[t, first:stop]
            for i in range(n):
                h[i] = x_t[i] + u[i] * (h[i] - x_t[i])
                out[i] = h[i]
        else:
            for i in range(n):
                h[i] = p[i] * h[i] + q[i] * u[i]
                out[i] = h[i]


@no_type_check
@njit(**OPTIONS)
def _backward(z, x, start, vectors, code, states, d_states, d_z, d_x, d_start, sums, first, stop):
    T, n, gated = z.shape[0], stop - first, x.shape[0] > 0
    w, p = vectors[0, first:stop].copy(), vectors[1, first:stop].copy()
    q, threshold = vectors[2, first:stop].copy(), vectors[3, first:stop].copy()
    product, u, u_bar = np.empty((1, n), z.dtype), np.empty(n, z.dtype), np.empty(n, z.dtype)
    cotangent, partial = d_start[first:stop].copy(), np.zeros((4, n), z.dtype)
    for k in range(T):
        t = T - 1 - k
        before = states[t - 1, first:stop] if t > 0 else start[first:stop]
        arriving, z_bar = d_states[t if d_states.shape[0] > 1 else 0, first:stop], d_z[t, first:stop]
        for i in range(n):
            product[0, i] = w[i] * before[i]
            cotangent[i] += arriving[i]
        activate_tile(code, product, z[t, first:stop], threshold, u, 1)
        if gated:
            _through_gate(before, x[t, first:stop], u, cotangent, u_bar, d_x[t, first:stop])
        else:
            _through_sum(before, u, p, q, cotangent, u_bar, partial)
        slope_into(code, u, u_bar)
        _through_unit(before, u, w, cotangent, u_bar, z_bar, partial)
        if k % FLUSH == FLUSH - 1 or t == 0:
            for j in range(4):
                for i in range(n):
                    sums[j, first + i] += partial[j, i]
                    partial[j, i] = 0
    d_start[first:stop] = cotangent


@no_type_check
@procedure
def _through_gate(before, x, u, cotangent, u_bar, x_bar):
    """Go back through c = x̃ + f(c′ − x̃)."""
    for i in range(before.shape[0]):
        u_bar[i] = cotangent[i] * (before[i] - x[i])
        kept = cotangent[i] * u[i]
        x_bar[i] = cotangent[i] - kept
        cotangent[i] = kept


@no_type_check
@procedure
def _through_sum(before, u, p, q, cotangent, u_bar, partial):
    """Go back through h = p h′ + q u."""
    for i in range(before.shape[0]):
        u_bar[i] = cotangent[i] * q[i]
        partial[1, i] += cotangent[i] * before[i]
        partial[2, i] += cotangent[i] * u[i]
        cotangent[i] *= p[i]


@no_type_check
@procedure
def _through_unit(before, u, w, cotangent, u_bar, z_bar, partial):
    """Go back through a = w h′ + z and, for modrelu, its threshold."""
    zero = u.dtype.type(0.0)
    for i in range(before.shape[0]):
        z_bar[i] = u_bar[i]
        partial[0, i] += u_bar[i] * before[i]
        partial[3, i] += -u_bar[i] if u[i] < zero else u_bar[i]
        cotangent[i] += w[i] * u_bar[i]


def _candidates(candidates: Tensor | None, dtype: torch.dtype) -> Any:
    return torch.empty((0, 0), dtype=dtype).numpy() if candidates is None else rows(candidates, dtype)


def _repeated(vectors: Tensor, B: int, dtype: torch.dtype) -> Any:
    return vectors.detach().to(dtype).repeat(1, B).numpy()

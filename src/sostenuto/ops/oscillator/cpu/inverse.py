"""The inverse of the oscillator scan on the CPU: Numba, one pass backwards over memory, blocks as in the scan."""

from typing import no_type_check

import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.columns import array, block_of, rows
from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops._cpu.tanh import tanh
from sostenuto.ops._cpu.threads import run_blocks
from sostenuto.ops._cpu.workspace import new
from sostenuto.ops.oscillator.reference import Inverted


def inverse(
    x: Float[Tensor, "T B H"],
    weight: Float[Tensor, " H"],
    step: Float[Tensor, " H"],
    stiffness: float,
    y: Float[Tensor, "B H"],
    z: Float[Tensor, "B H"],
    timespans: Float[Tensor, "T B"] | None = None,
    velocities: bool = False,
) -> Inverted:
    """Give the states at every step and the first one from the last one (y, z)."""
    T, B, H = x.shape
    dtype = y.dtype
    ys = new((T, B, H), dtype)
    zs = new((T, B, H), dtype) if velocities else None
    first, first_z = (part.detach().clone(memory_format=torch.contiguous_format) for part in (y, z))
    peaks = first.abs(), first_z.abs()
    repeated = (array(vector.detach().expand(B, H), dtype).reshape(-1) for vector in (weight, step))
    read = (rows(x, dtype), *repeated, None if timespans is None else array(timespans, dtype))
    written = (ys.view(T, B * H).numpy(), None if zs is None else zs.view(T, B * H).numpy())
    states = tuple(part.view(-1).numpy() for part in (first, first_z, *peaks))
    alpha = ys.new_tensor(stiffness).numpy()[()]

    def kernel(start: int, stop: int) -> None:
        _inverse(*read, alpha, H, *written, *states, start, stop)  # pyright: ignore[reportCallIssue]

    run_blocks(kernel, B * H, block_of(B * H, dtype))
    return Inverted(ys, zs, first, first_z, *peaks)


@no_type_check
@njit(**OPTIONS)
def _inverse(x, weight, step, spans, alpha, H, ys, zs, y, z, y_peak, z_peak, start, stop):
    T, n = x.shape[0], stop - start
    w, g0, g = weight[start:stop].copy(), step[start:stop].copy(), step[start:stop].copy()
    y_now, z_now = y[start:stop].copy(), z[start:stop].copy()
    y_most, z_most = y_peak[start:stop].copy(), z_peak[start:stop].copy()
    for k in range(T):
        t = T - 1 - k
        if spans is not None:
            for i in range(n):
                g[i] = g0[i] * spans[t, (start + i) // H]
        if zs is not None:
            zs[t, start:stop] = z_now
        x_t, y_t = x[t, start:stop], ys[t, start:stop]
        for i in range(n):
            y_i, z_i = y_now[i], z_now[i]
            y_t[i] = y_i
            y_i = y_i - g[i] * z_i
            z_i = z_i + g[i] * (tanh(w[i] * y_i + x_t[i]) + alpha * y_i)
            y_now[i] = y_i
            z_now[i] = z_i
            y_most[i] = max(y_most[i], abs(y_i))
            z_most[i] = max(z_most[i], abs(z_i))
    y[start:stop] = y_now
    z[start:stop] = z_now
    y_peak[start:stop] = y_most
    z_peak[start:stop] = z_most

"""The input map for Numba kernels: V x + b for the rows of a tile, and the backward pass.

A scan that multiplies its own input writes no drive to memory and reads none; in the backward pass the gradient of the
drive is used where it arises, for that of V, b and x, and is not written either.
"""

from typing import Any, NamedTuple, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.ops._cpu.compiled import procedure
from sostenuto.ops._cpu.panel_product import multiply, pack


class Input(NamedTuple):
    """The input, flat: how far its steps and its batch rows lie apart, and its channels, which are neighbors."""

    values: Any
    step: Any
    row: Any
    channels: Any


def flat_input(x: Float[Tensor, "T B d"]) -> Input:
    """Lay out the input: any layout whose channels are neighbors is read in place."""
    x = x.detach() if x.stride(2) == 1 or x.shape[2] == 1 else x.detach().contiguous()
    span = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return Input(x.as_strided((span,), (1,)).numpy(), x.stride(0), x.stride(1), x.shape[2])


class InputMap(NamedTuple):
    """The input, V and b as kernels read them; no ``channels``: the scan is given its drive.

    ``x`` is flat: the entries of batch row r at step t begin at ``t · step + r · row``, whatever layout the tensor has.
    """

    x: Any
    step: int
    row: int
    channels: int
    into: Any
    back: Any
    bias: Any


def input_map(
    x: Float[Tensor, "T B d"] | None,
    matrix: Float[Tensor, "H d"] | None,
    bias: Float[Tensor, " H"] | None,
    dtype: torch.dtype,
    *,
    back: bool = False,
) -> InputMap:
    """Lay out x, V and b for the kernels; ``back`` packs V for the gradient of x too."""
    none = torch.empty(0, dtype=dtype).numpy()
    if x is None or matrix is None:
        return InputMap(none, 0, 0, 0, none, none, none)
    shift = torch.zeros(len(matrix), dtype=dtype) if bias is None else bias.detach().contiguous()
    packed = pack(matrix) if back else none
    return InputMap(*flat_input(x), pack(matrix.T), packed, shift.numpy())


@no_type_check
@procedure
def project(mapped, t, low, rows, product, drive):
    """Write V x_t + b for ``rows`` batch rows from ``low``, flat, into ``drive``; ``product`` has whole vectors."""
    size, units = drive.itemsize, mapped.bias.shape[0]
    first = mapped.x.ctypes.data + (t * mapped.step + low * mapped.row) * size
    multiply(
        drive.dtype.type(0.0), first, mapped.row * size, size, rows, mapped.into.ctypes.data, mapped.channels,
        product.ctypes.data, product.shape[1] * size, mapped.channels, False, None,
    )  # fmt: skip
    for r in range(rows):
        for c in range(units):
            drive[r * units + c] = product[r, c] + mapped.bias[c]


@no_type_check
@procedure
def gather_inputs(mapped, t, low, rows, chunk, gathered):
    """Keep x_t of a tile until a chunk of rows is multiplied."""
    for r in range(rows):
        at = t * mapped.step + (low + r) * mapped.row
        for c in range(mapped.channels):
            chunk[gathered + r, c] = mapped.x[at + c]


@no_type_check
@procedure
def sum_bias(d_drive, d_bias, rows):
    """Add the drive's gradient to the bias's."""
    units = d_bias.shape[0]
    for r in range(rows):
        for c in range(units):
            d_bias[c] += d_drive[r * units + c]


@no_type_check
@procedure
def project_back(mapped, d_drive, rows, product, d_x):
    """Write Vᵀ z̄ of a tile, flat, into ``d_x``."""
    size, units, channels = d_drive.itemsize, mapped.bias.shape[0], mapped.channels
    multiply(
        d_drive.dtype.type(0.0), d_drive.ctypes.data, units * size, size, rows, mapped.back.ctypes.data, units,
        product.ctypes.data, product.shape[1] * size, units, False, None,
    )  # fmt: skip
    for r in range(rows):
        for c in range(channels):
            d_x[r * channels + c] = product[r, c]

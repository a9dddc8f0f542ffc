"""One step of several blocks around damped oscillators on the CPU, in one call of a compiled kernel."""

from collections.abc import Sequence
from typing import Any, NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit
from torch import Tensor

from sostenuto.ops._cpu.columns import array, copy_row
from sostenuto.ops._cpu.compiled import OPTIONS
from sostenuto.ops._cpu.panel_product import multiply, pack, padded, whole_vectors
from sostenuto.ops._cpu.vector_loop import address
from sostenuto.ops.damped_block.cpu.tiles import (
    GATE_BIAS,
    VALUE_BIAS,
    enter_tile,
    equal_steps,
    leave,
    scan,
    vectors_of,
)
from sostenuto.ops.damped_block.reference import BlockWeights, Widening


class StepPlan(NamedTuple):
    """What a step reads, as arrays: the map that widens the input, or nothing, and by block vectors, V and the gate."""

    widening: Any
    widening_bias: Any
    vectors: Any
    enter: Any
    gate: Any


def plan_steps(blocks: Sequence[BlockWeights], widening: Widening | None) -> StepPlan:
    """Lay the weights of all blocks out for `step_blocks`."""
    dtype, H = blocks[0].norm.dtype, len(blocks[0].norm)
    wide = padded(H, dtype)
    matrix, bias = widening if widening is not None else (blocks[0].norm.new_zeros(0, 0), None)
    shift = np.zeros(wide, array(matrix, dtype).dtype)
    if bias is not None:
        shift[:H] = array(bias, dtype)
    return StepPlan(
        pack(matrix.mT),
        shift,
        np.stack([vectors_of(weights, wide, dtype).numpy() for weights in blocks]),
        np.stack([pack(weights.enter.mT) for weights in blocks]),
        np.stack([pack(weights.gate.mT) for weights in blocks]),
    )


def step_blocks(
    plan: StepPlan, inputs: Float[Tensor, "B d"], real: Float[Tensor, "L B H"], imaginary: Float[Tensor, "L B H"]
) -> tuple[Tensor, Tensor, Tensor]:
    """Advance all blocks one step; give the output, and the real and imaginary parts of the states."""
    dtype = inputs.dtype
    output, after = inputs.new_empty(real.shape[1:]), inputs.new_empty((2, *real.shape))
    kernel: Any = _step
    kernel(array(inputs, dtype), array(real, dtype), array(imaginary, dtype), *plan, output.numpy(), after.numpy())
    return output, after[0], after[1]


@no_type_check
@njit(**OPTIONS)
def _step(x, real, imaginary, widening, widening_bias, all_vectors, enters, gates, output, after):
    (B, H), (_, _, wide), size, zero = output.shape, all_vectors.shape, x.itemsize, x.dtype.type(0.0)
    width, both = wide * size, whole_vectors(2 * H, x) * size
    tile, opened = np.zeros((3, B, wide), x.dtype), np.empty((B, both // size), x.dtype)
    normed, drive, mixed, state = tile[0], tile[1], tile[2], np.zeros((B, 2 * wide), x.dtype)
    stats, stream = np.empty((B, 2), x.dtype), np.empty((1, B, H), x.dtype)
    if len(widening) > 0:
        channels = x.shape[1]
        multiply(
            zero, address(x), channels * size, size, B, address(widening), channels, address(drive), width, channels,
            False, None,
        )  # fmt: skip
        for r in range(B):
            for i in range(H):
                stream[0, r, i] = drive[r, i] + widening_bias[i]
    else:
        for r in range(B):
            copy_row(stream[0, r], x[r])
    for block in range(len(all_vectors)):
        vectors, v = all_vectors[block], address(all_vectors[block])
        for r in range(B):
            copy_row(state[r], real[block, r])
            copy_row(state[r, wide:], imaginary[block, r])
        enter_tile(stream, vectors, stats, 0, True, 0, B, 0, 1, normed)
        multiply(
            zero, address(normed), width, size, B, address(enters[block]), H, address(drive), width, H, False, None
        )
        for r in range(B):
            h, shift = address(state) + 2 * r * width, r * width
            scan(
                zero, width, H, 1, equal_steps(v, width, True), (h, h + width),
                ((address(drive) + shift, address(normed) + shift), (0, 0)), ((), ()),
                ((address(mixed) + shift,), (0,)),
            )  # fmt: skip
            copy_row(after[0, block, r], state[r, :H])
            copy_row(after[1, block, r], state[r, wide : wide + H])
        multiply(zero, address(mixed), width, size, B, address(gates[block]), H, address(opened), both, H, False, None)
        o, place = address(opened), address(stream)
        leave(
            zero, width, H, B, (v + VALUE_BIAS * width, v + GATE_BIAS * width), (),
            ((place, o, o + H * size), (H * size, both, both)), ((), ()), ((place,), (H * size,)),
        )  # fmt: skip
    for r in range(B):
        copy_row(output[r], stream[0, r])
